// SPDX-License-Identifier: GPL-2.0
//! An alert that the program cannot take at once stays pending. It makes exactly one EBB when GE
//! and PME are on, and none if the program or a close has cleared it.
//!
//! Power ISA v3.1 Book II, "Event-Based Branch Facility"; Book III, "Performance Monitor Facility",
//! MMCR0\[PMAO\].

use ebb::EbbContext;
use ebb::Pmc;
use ebb::Rearm;
use ebb::pmc;
use ebb::reg::Bescr;
use ebb::reg::Mmcr0;
use ebb::spr;
use ebb_selftests::alert;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ktap::Outcome;
use ktap::check;
use ktap::process;
use pmu_selftests::machine;
use std::fs::File;
use std::io::Read;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

const BACK_TO_BACK: u64 = 5000;

/// Leaves the counter negative until the last EBB.
fn again(context: &mut EbbContext<'_>) {
    let value = match context.number() {
        ..BACK_TO_BACK => pmc::OVERFLOW,
        _ => 0,
    };
    Pmc::Pmc1.write(value);
    context.rearm(Rearm::Keep);
}

/// The counter overflows again before the handler has returned, each time.
fn back_to_back() -> Outcome {
    let event = session::prepare(CYCLES, again)?;
    Pmc::Pmc1.write(0);
    ebb::enable()?;
    pmc::unfreeze();
    alert::due_in(1000);
    // Time that a driver may take for each EBB, if it must check for GE.
    for _ in 0..BACK_TO_BACK {
        session::work_for(alert::SETTLED / 2);
        if ebb::count() >= BACK_TO_BACK {
            break;
        }
    }
    alert::expect_total(BACK_TO_BACK, "back to back")?;
    alert::end(event)
}

/// The counter overflows while BESCR is `off`, and the EBB comes when EBBs are on again.
fn overflow_with(off: Bescr) -> Outcome {
    let event = alert::begin(off)?;
    for n in 0..100 {
        alert::set(off);
        alert::raise();
        // Waits short and long times, some with a tick of the kernel.
        session::work_for(n * n * 500);
        alert::release(n, format_args!("after {off:?}"))?;
    }
    alert::end(event)
}

/// The alert comes at any place of a program that turns EBBs off and on, as a program does that
/// protects data from its handler.
fn while_switching_on_and_off() -> Outcome {
    alert::sweep(1000, "guarded sections", || {
        for _ in 0..10 {
            alert::hold();
            session::work();
            alert::on();
            session::work();
        }
    })
}

fn in_system_calls() -> Outcome {
    let mut zero = File::open("/dev/zero")?;
    let mut buffer = vec![1; 1 << 20];
    alert::sweep(200, "read", || {
        buffer.fill(1);
        let _ = zero.read(&mut buffer);
    })?;
    alert::sweep(100, "getppid", || {
        for _ in 0..20 {
            let _ = std::os::unix::process::parent_id();
        }
    })
}

static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, Relaxed);
}

/// The alert has been held back for long. A driver that must check whether EBBs are on again does
/// so at least every 640 us.
fn held_back_for_long() -> Outcome {
    const MOST: f64 = 640e-6;
    // Time of the interrupt in which the driver checks, and of the branch to the handler. Other
    // timers of a debug kernel make the pause longer.
    let later = if machine::is_debug_kernel() {
        MOST
    } else {
        20e-6
    };
    let most = MOST + later;
    let event = alert::begin(Bescr::PME)?;
    for n in 0..20 {
        alert::raise_held();
        // Each round ends in another phase of the driver's pauses.
        session::work_for(3_000_000 + n * 33_000);
        check!(ebb::count() == n, "{} EBBs while GE was off", ebb::count());
        let start = machine::time_base();
        alert::on();
        let mut end = machine::time_base();
        while ebb::count() == n && end - start < machine::TIME_BASE_HZ {
            end = machine::time_base();
        }
        let seconds = (end - start) as f64 / machine::TIME_BASE_HZ as f64;
        check!(
            ebb::count() == n + 1 && seconds < most,
            "{} EBBs, {} us after EBBs were on again",
            ebb::count(),
            seconds * 1e6
        );
    }
    alert::end(event)
}

/// The alert comes at any moment of a signal: its raising, its handler, and the return.
fn in_signals() -> Outcome {
    // SAFETY: The signal handler only adds to an atomic.
    unsafe { libc::signal(libc::SIGUSR1, count_signal as *const () as usize) };
    alert::sweep(500, "signal", || {
        // SAFETY: The signal has the handler above.
        unsafe { libc::raise(libc::SIGUSR1) };
    })?;
    check!(SIGNALS.load(Relaxed) > 500, "signals got lost");
    Ok(())
}

/// The alert comes in page faults: the kernel is entered at instructions that are then executed
/// again.
fn in_page_faults() -> Outcome {
    const PAGES: usize = 16;
    // SAFETY: The mapping is new, and only the writes below access it.
    let area = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            PAGES * 65536,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    check!(area != libc::MAP_FAILED, "mmap failed");
    alert::sweep(200, "page faults", || {
        for page in 0..PAGES {
            // SAFETY: The address is inside the mapping.
            unsafe {
                area.byte_add(page * 65536).cast::<u8>().write_volatile(1);
            }
        }
        // SAFETY: The mapping is ours, and no reference into it exists.
        unsafe { libc::madvise(area, PAGES * 65536, libc::MADV_DONTNEED) };
    })
}

/// The program restarts the counter, as a handler does: PMAO off, PMAE on.
fn dropped_when_armed_again() -> Outcome {
    let event = alert::begin(Bescr::PME)?;
    for n in 0..50 {
        alert::raise_held();
        session::work_for(n * 500);
        Pmc::Pmc1.write(0);
        Mmcr0::PMAE.write();
        alert::on();
        alert::expect_none("armed again before GE was on")?;
    }
    alert::due_in(1000);
    alert::expect_total(1, "the next overflow")?;
    alert::end(event)
}

/// Skips the test if the pending alert is not visible: an emulator may raise an interrupt for it,
/// which repeats as long as PMAO is set.
fn require_visible_alert() -> Outcome {
    match Mmcr0::read().has(Mmcr0::PMAO) {
        true => Ok(()),
        false => ktap::skip("PMAO cannot stay set on this machine"),
    }
}

/// The program clears PMAO and leaves alerts off.
fn dropped_when_cleared() -> Outcome {
    let event = alert::begin(Bescr::PME)?;
    alert::raise();
    require_visible_alert()?;
    Pmc::Pmc1.write(0);
    Mmcr0::FC.write();
    alert::on();
    alert::expect_none("PMAO cleared before GE was on")?;
    Mmcr0::PMAE.write();
    alert::expect_none("alerts on again, nothing negative")?;
    alert::due_in(1000);
    alert::expect_total(1, "the next overflow")?;
    alert::end(event)
}

/// MMCR0 shows the program that there was an alert, and that the counters are frozen since then.
fn alert_is_visible() -> Outcome {
    let event = alert::begin(Bescr(0))?;
    alert::raise();
    session::work_for(alert::SETTLED);
    let mmcr0 = Mmcr0::read();
    check!(
        mmcr0.without(Mmcr0::PMAO) == Mmcr0::FC,
        "alerts on after one: {mmcr0:?}"
    );
    require_visible_alert()?;
    process::give_way();
    let mmcr0 = Mmcr0::read();
    check!(
        mmcr0 == Mmcr0::FC | Mmcr0::PMAO,
        "after a switch: {mmcr0:?}"
    );
    alert::end(event)
}

/// The program raises the alert itself: a write that sets PMAO makes an EBB.
fn written_by_the_program() -> Outcome {
    let event = alert::begin(Bescr(0))?;
    for n in 0..20 {
        alert::on();
        Mmcr0::FC.write();
        Pmc::Pmc1.write(pmc::OVERFLOW);
        (Mmcr0::FC | Mmcr0::PMAO).write();
        alert::expect_total(n + 1, "PMAO written")?;
    }
    alert::end(event)
}

fn dropped_by_close() -> Outcome {
    for _ in 0..20 {
        let event = alert::begin(Bescr::PME)?;
        alert::raise();
        event.close();
        alert::on();
        alert::expect_none("closed")?;
        let event = session::without_handler()?;
        session::check_fresh()?;
        alert::expect_none("the next event")?;
        alert::end(event)?;
    }
    Ok(())
}

/// The driver's work for the EBB does not show in the counters, which are frozen. It may clear them
/// at a task switch, as they do not belong to this task.
fn other_counters_keep_their_values() -> Outcome {
    const NEAR: u32 = 0x7fff_ff00;
    let event = alert::begin(Bescr::PME)?;
    for n in 0..50 {
        alert::hold();
        for pmc in &Pmc::ALL[1..] {
            pmc.write(NEAR);
        }
        alert::raise();
        alert::release(n, "with values in the others")?;
        for pmc in &Pmc::ALL[1..] {
            let value = pmc.read();
            check!([0, NEAR].contains(&value), "{pmc:?} became {value:#x}");
        }
    }
    alert::end(event)
}

/// A disabled event is not closed: its alert is pending again when it is enabled.
fn kept_while_disabled() -> Outcome {
    let event = alert::begin(Bescr::PME)?;
    for n in 0..20 {
        alert::raise_held();
        event.disable()?;
        alert::on();
        session::work_for(alert::SETTLED);
        check!(ebb::count() == n, "an EBB without an event");
        event.enable()?;
        alert::expect_total(n + 1, "enabled again")?;
    }
    alert::end(event)
}

/// As long as no EBB can come, EBBRR keeps the program's value, even if the driver checks for EBBs
/// in the meantime.
fn return_address_stays_without_pme() -> Outcome {
    const ADDRESS: u64 = 0x1234_5678;
    let event = alert::begin(Bescr::GE | Bescr::PME)?;
    alert::raise();
    alert::expect_total(1, "with EBBs on")?;
    alert::set(Bescr::GE);
    // SAFETY: PME is off, so no EBB is in progress, and no rfebb branches to the address.
    unsafe { spr::write::<{ spr::EBBRR }>(ADDRESS) };
    for _ in 0..50 {
        session::work_for(100_000);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let [_, _, value] = session::ebb_registers();
    check!(value == ADDRESS, "EBBRR is {value:#x}");
    alert::end(event)
}

ktap::main! {
    first: session::require_ebb;
    back_to_back,
    global_enable_off = overflow_with(Bescr::PME),
    // MMCR0[PMAO] stays set, and PME turns it into an exception.
    pmu_enable_off = overflow_with(Bescr::GE),
    all_off = overflow_with(Bescr(0)),
    while_switching_on_and_off, held_back_for_long, return_address_stays_without_pme, in_system_calls, in_signals,
    in_page_faults, dropped_when_armed_again, dropped_when_cleared, alert_is_visible,
    written_by_the_program, dropped_by_close, other_counters_keep_their_values, kept_while_disabled,
}
