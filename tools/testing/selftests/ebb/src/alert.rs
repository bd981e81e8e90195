// SPDX-License-Identifier: GPL-2.0
//! One alert at a time, at a moment of the test's choice, and how many EBBs came
//! of it.
//!
//! The handler of these sessions clears the counter, so that an alert makes one
//! EBB and no more; the next overflow is 2^31 cycles away.

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

/// Cycles after which an alert has made its EBB if the program holds EBBs back for
/// no longer than that.
pub const SETTLED: u64 = 100_000;

/// Cycles after which it has in any case: a driver that has to look for the time
/// when GE is on (no hardware needs that) may do so ever more rarely, and on a CPU
/// that has come up not before its first tick, for which its other timers wait.
const PATIENCE: u64 = 9_000_000;

/// EBBs for which PMC1 is no reason.
static FOREIGN: AtomicU64 = AtomicU64::new(0);

fn clear_counter(context: &mut EbbContext<'_>) {
    if !context.overflowed(Pmc::Pmc1) {
        FOREIGN.fetch_add(1, Relaxed);
    }
    Pmc::Pmc1.write(0);
    context.rearm(Rearm::Keep);
}

/// A session on PMC1 whose counter runs, with `bescr` in BESCR.
#[track_caller]
pub fn begin(bescr: Bescr) -> Result<Event, Failure> {
    let event = session::prepare(CYCLES, clear_counter)?;
    Pmc::Pmc1.write(0);
    set(bescr);
    pmc::unfreeze();
    Ok(event)
}

/// Writes BESCR. For sessions of [`begin`], which have a handler.
pub fn set(bescr: Bescr) {
    // SAFETY: `begin` has installed a handler, which stays for the process'
    // life.
    unsafe { bescr.write() };
}

/// EBBs on: BESCR is GE and PME.
pub fn on() {
    set(Bescr::GE | Bescr::PME);
}

/// EBBs held back, but not the exception: BESCR is PME.
pub fn hold() {
    set(Bescr::PME);
}

/// EBBs held back, and an alert that has arrived.
pub fn raise_held() {
    hold();
    raise();
}

/// EBBs on again: the alert of [`raise_held`] makes the EBB that follows the first `n`,
/// and had made none so far.
#[track_caller]
pub fn release(n: u64, what: impl std::fmt::Display) -> Outcome {
    let came = ebb::count();
    check!(came == n, "{what}: {came} EBBs in spite of GE, {n} before");
    on();
    expect_total(n + 1, what)
}

/// An alert comes `cycles` from now.
#[inline(always)]
pub fn due_in(cycles: u32) {
    Pmc::Pmc1.write(Pmc::start_value(cycles));
}

/// An alert, and time for it to arrive.
pub fn raise() {
    due_in(0);
    session::work_for(2000);
}

/// Fails unless this thread has had `n` EBBs, and has no more a while later.
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

/// Fails if an EBB came so far or comes in a while; like [`expect_total`], but
/// also where there is no event.
#[track_caller]
pub fn expect_none(what: impl std::fmt::Display) -> Outcome {
    session::work_for(PATIENCE / 6);
    let came = ebb::count() + ebb::spurious();
    check!(came == 0, "{what}: {came} EBBs came");
    Ok(())
}

/// Cycles that PMC1 counts during `action`, in the kernel too where the machine
/// counts there all the same (QEMU).
pub fn cycles_of(mut action: impl FnMut()) -> u32 {
    action();
    let start = Pmc::Pmc1.read();
    action();
    Pmc::Pmc1.read().wrapping_sub(start)
}

/// Has `action` with an alert due at `steps` moments from before it to after its
/// end, one EBB each, with EBBs on all the while.
#[track_caller]
pub fn sweep(steps: u32, what: &str, mut action: impl FnMut()) -> Outcome {
    let event = begin(Bescr::GE | Bescr::PME)?;
    let cycles = cycles_of(&mut action);
    check!(cycles > steps, "{what} takes {cycles} cycles only");
    println!("{what}: {cycles} cycles");
    for step in 0..=steps {
        let before = ebb::count();
        let lead = u64::from(cycles) * u64::from(step) * 9 / 8 / u64::from(steps);
        // CAST: an eighth above a number of cycles that a counter holds.
        due_in(lead as u32);
        action();
        // It may have been faster this time.
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

/// Closes the event, EBBs off. Fails if it was in error state.
pub fn end(event: Event) -> Outcome {
    event.check_scheduled()?;
    session::end(event)
}
