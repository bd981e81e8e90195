// SPDX-License-Identifier: GPL-2.0
//! Raises one alert at a time, at a moment that the test chooses, and counts the EBBs that it
//! makes.
//!
//! The handler of these sessions clears the counter, so that an alert makes one EBB and no more;
//! the next overflow is 2^31 cycles away.

use crate::session;
use crate::session::CYCLES;
use ebb::EbbContext;
use ebb::Event;
use ebb::Pmc;
use ebb::Rearm;
use ebb::pmc;
use ebb::reg::Bescr;
use ebb::reg::Mmcr0;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Cycles after which an alert has made its EBB, if the program does not hold EBBs back for longer
/// than that.
pub const SETTLED: u64 = 100_000;

/// Cycles after which an alert has made its EBB in any case. An emulator's driver has to check
/// repeatedly whether GE is on (hardware needs no such check). It may check less often as time
/// passes, and on a CPU that has just come online not before the first tick, for which the driver's
/// other timers wait.
const PATIENCE: u64 = 9_000_000;

/// EBBs at which PMC1 had not overflowed.
static FOREIGN: AtomicU64 = AtomicU64::new(0);

fn clear_counter(context: &mut EbbContext<'_>) {
    if !context.overflowed(Pmc::Pmc1) {
        FOREIGN.fetch_add(1, Relaxed);
    }
    Pmc::Pmc1.write(0);
    context.rearm(Rearm::Keep);
}

/// Starts a session on PMC1 whose counter runs, with `bescr` in BESCR.
#[track_caller]
pub fn begin(bescr: Bescr) -> Result<Event, Failure> {
    let event = session::prepare(CYCLES, clear_counter)?;
    Pmc::Pmc1.write(0);
    set(bescr);
    pmc::unfreeze();
    Ok(event)
}

/// Writes BESCR, for sessions of [`begin`], which have a handler.
pub fn set(bescr: Bescr) {
    // SAFETY: `begin` has installed a handler, which stays installed as long as the process lives.
    unsafe { bescr.write() };
}

/// Turns EBBs on: BESCR is GE and PME.
pub fn on() {
    set(Bescr::GE | Bescr::PME);
}

/// Holds EBBs back, but not the exception: BESCR is PME.
pub fn hold() {
    set(Bescr::PME);
}

/// Holds EBBs back and raises an alert.
pub fn raise_held() {
    hold();
    raise();
}

/// Turns EBBs on again. Fails unless the alert of [`raise_held`] makes EBB number `n` + 1 now, and
/// made none before.
#[track_caller]
pub fn release(n: u64, what: impl std::fmt::Display) -> Outcome {
    let came = ebb::count();
    check!(came == n, "{what}: {came} EBBs with GE off, {n} before");
    on();
    expect_total(n + 1, what)
}

/// Makes an alert come `cycles` from now.
#[inline(always)]
pub fn due_in(cycles: u32) {
    Pmc::Pmc1.write(Pmc::start_value(cycles));
}

/// Raises an alert, and waits until it has arrived.
pub fn raise() {
    due_in(0);
    session::work_for(2000);
}

/// Fails unless this thread gets `n` EBBs, and no more within a while.
#[track_caller]
pub fn expect_total(n: u64, what: impl std::fmt::Display) -> Outcome {
    for _ in 0..PATIENCE / 5000 {
        if ebb::count() >= n {
            break;
        }
        session::work_for(5000);
    }
    session::work_for(SETTLED / 2);
    let (came, mmcr0, bescr) = (ebb::count(), Mmcr0::read(), Bescr::read());
    check!(
        came == n,
        "{what}: {came} EBBs came, {n} expected ({mmcr0:?}, {bescr:?})"
    );
    let foreign = FOREIGN.load(Relaxed) + ebb::spurious();
    check!(foreign == 0, "{what}: {foreign} EBBs without an overflow");
    Ok(())
}

/// Fails if an EBB came so far or comes within a while. Also works without an event, other than
/// [`expect_total`].
#[track_caller]
pub fn expect_none(what: impl std::fmt::Display) -> Outcome {
    session::work_for(PATIENCE / 6);
    let came = ebb::count() + ebb::spurious();
    check!(came == 0, "{what}: {came} EBBs came");
    Ok(())
}

/// Returns the cycles that PMC1 counts during `action`; in QEMU, which counts in the kernel
/// although that is excluded, the kernel's too.
pub fn cycles_of(mut action: impl FnMut()) -> u32 {
    action();
    let start = Pmc::Pmc1.read();
    action();
    Pmc::Pmc1.read().wrapping_sub(start)
}

/// Runs `action` with an alert at each of `steps` moments from its start until after its end, with
/// EBBs on. Fails unless each alert makes one EBB.
#[track_caller]
pub fn sweep(steps: u32, what: &str, mut action: impl FnMut()) -> Outcome {
    let event = begin(Bescr::GE | Bescr::PME)?;
    let cycles = cycles_of(&mut action);
    check!(cycles > steps, "{what} takes {cycles} cycles only");
    println!("{what}: {cycles} cycles");
    for step in 0..=steps {
        let before = ebb::count();
        let lead = u64::from(cycles) * u64::from(step) * 9 / 8 / u64::from(steps);
        // CAST: The lead is at most 9/8 of a number of cycles that a counter holds.
        due_in(lead as u32);
        action();
        // The action may have been faster this time.
        let mut left = u64::from(cycles) * 2;
        while ebb::count() == before && left > 0 {
            session::work_for(5000);
            left = left.saturating_sub(5000);
        }
        expect_total(
            before + 1,
            format_args!("{what}, alert {lead} cycles from its start"),
        )?;
    }
    end(event)
}

/// Turns EBBs off and closes the event. Fails if it was in error state.
pub fn end(event: Event) -> Outcome {
    event.check_scheduled()?;
    session::end(event)
}
