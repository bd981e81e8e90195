// SPDX-License-Identifier: GPL-2.0
//! No EBB is lost in a long run. The counters stay frozen after an EBB that got
//! lost on its way, so one lost EBB ends the run.

use ebb_selftests::session;
use ktap::Outcome;
use ktap::check;
use ktap::process;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::time::Instant;

const PERIOD: u32 = 5000;

fn twelve_thousand() -> Outcome {
    let event = session::cycles(PERIOD)?;
    session::wait_for(12_000, PERIOD)?;
    session::end(event)
}

static ALARMS: AtomicU32 = AtomicU32::new(0);

extern "C" fn alarm(_: libc::c_int) {
    ALARMS.fetch_add(1, Relaxed);
}

/// EBBs among timer signals, which take the thread into the kernel and back at
/// every kind of moment.
fn with_signals() -> Outcome {
    let interval = libc::timeval {
        tv_sec: 0,
        tv_usec: 500,
    };
    let timer = libc::itimerval {
        it_interval: interval,
        it_value: interval,
    };
    let event = session::cycles(PERIOD)?;
    // SAFETY: the signal handler adds to an atomic; `timer` lives through the
    // call.
    ktap::os_result(unsafe {
        libc::signal(libc::SIGALRM, alarm as *const () as usize);
        libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut())
    })?;
    session::wait_for(5000, PERIOD)?;
    session::end(event)?;
    let alarms = ALARMS.load(Relaxed);
    check!(alarms > 10, "only {alarms} signals came");
    Ok(())
}

/// EBBs among system calls that switch to another process and back.
fn with_switches() -> Outcome {
    let _hog = session::hog()?;
    let before = process::switches();
    let event = session::cycles(PERIOD)?;
    let end = Instant::now() + Duration::from_secs(20);
    while ebb::count() < 3000 && Instant::now() < end {
        session::work_for(20_000);
        process::give_way();
    }
    session::wait_for(3000, PERIOD)?;
    session::end(event)?;
    let switches = process::switches() - before;
    check!(switches > 50, "only {switches} switches");
    Ok(())
}

ktap::main! {
    first: session::require_ebb;
    twelve_thousand, with_signals, with_switches,
}
