// SPDX-License-Identifier: GPL-2.0
//! Each overflow raises a signal, whatever code runs when its interrupt comes.
//!
//! Programs such as debuggers that replay rely on the signal alone. If two events exclude the
//! kernel, the counter of the second one often overflows while the kernel handles the first: the
//! sample then has the address at which the program entered the kernel.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pmu_selftests::fields::sample::IP;
use pmu_selftests::prelude::*;

/// `F_SETSIG` of the kernel's `fcntl.h`, which the libc crate lacks here.
const F_SETSIG: libc::c_int = 10;

/// Number of signals received, by event.
static CAME: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

extern "C" fn count_first(_: libc::c_int) {
    CAME[0].fetch_add(1, Relaxed);
}

extern "C" fn count_second(_: libc::c_int) {
    CAME[1].fetch_add(1, Relaxed);
}

/// Makes overflows of `event` raise the signal `number`, which `handler` counts.
fn signal(event: &Event, number: libc::c_int, handler: extern "C" fn(libc::c_int)) -> Outcome {
    let fd = event.as_raw_fd();
    // SAFETY: The handlers only change an atomic, and the calls take no pointers except these
    // handlers.
    let done = unsafe {
        libc::signal(number, handler as *const () as libc::sighandler_t) != libc::SIG_ERR
            && libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK) == 0
            && libc::fcntl(fd, F_SETSIG, number) == 0
            && libc::fcntl(fd, libc::F_SETOWN, libc::getpid()) == 0
    };
    check!(done, "signal {number}: {}", io::Error::last_os_error());
    Ok(())
}

/// Checks signals and samples of two events, one with 40 periods and one with 20.
fn two_events(pinned: bool) -> Outcome {
    let period = machine::period(1_000_000);
    let attr = |period| {
        Attr::instructions()
            .user_only()
            .sampling(period, IP)
            .pinned(pinned)
    };
    let attrs = [attr(period), attr(2 * period)];
    let events = [attrs[0].open()?, attrs[1].open()?];
    let mut rings = [Ring::map(&events[0], 8)?, Ring::map(&events[1], 8)?];
    signal(&events[0], libc::SIGRTMIN() + 1, count_first)?;
    signal(&events[1], libc::SIGRTMIN() + 2, count_second)?;
    let before = CAME.each_ref().map(|came| came.load(Relaxed));
    for event in &events {
        event.enable()?;
    }
    work::run(40 * period + period / 2);
    for event in &events {
        event.disable()?;
    }
    for (index, due) in [40, 20].into_iter().enumerate() {
        let came = CAME[index].load(Relaxed) - before[index];
        // The handlers are counted, too, and so is the kernel in an emulator without freeze bits.
        check!(
            came >= due && came <= due + machine::kernel_share(due / 10),
            "event {index}: {came} signals, {due} due"
        );
        let samples = Sample::all(&attrs[index], &rings[index].take())?;
        check!(
            samples.len() as u64 == came,
            "event {index}: {} samples, {came} signals",
            samples.len()
        );
        for sample in samples {
            let ip = sample.ip;
            check!(
                ip != 0 && ip >> 60 == 0,
                "event {index}: a sample at {ip:#x}"
            );
        }
    }
    Ok(())
}

fn of_two_events() -> Outcome {
    two_events(false)
}

fn of_two_pinned_events() -> Outcome {
    two_events(true)
}

/// Tests that `PERF_EVENT_IOC_REFRESH` counts each overflow, also those of a second event.
fn refresh_counts_down() -> Outcome {
    let period = machine::period(1_000_000);
    let attr = Attr::instructions().user_only().sampling(period, IP);
    let first = attr.open()?;
    let second = attr.open()?;
    let mut ring = Ring::map(&second, 8)?;
    first.enable()?;
    second.refresh(5)?;
    work::run(20 * period);
    let samples = Sample::all(&attr, &ring.take())?;
    check!(samples.len() == 5, "{} samples, 5 allowed", samples.len());
    // The count shows that no overflow was missed before the fifth sample.
    let count = second.read()?.value;
    let most = 6 * period + machine::kernel_share(period);
    check!(count < most, "{count} counted up to the fifth overflow");
    Ok(())
}

ktap::main! {
    first: machine::keep_sample_rate;
    of_two_events, of_two_pinned_events, refresh_counts_down,
}
