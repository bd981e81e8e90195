// SPDX-License-Identifier: GPL-2.0
//! A thread with a scheduled EBB event, and work for it to be interrupted in.

use ebb::EbbContext;
use ebb::Event;
use ebb::Handler;
use ebb::Pmc;
use ebb::pmc;
use ebb::reg::Bescr;
use ebb::reg::Mmcr0;
use ktap::Failure;
use ktap::OrFail;
use ktap::Outcome;
use std::hint::black_box;

/// Cycles on PMC1, the event of most tests.
pub const CYCLES: u64 = ebb::config::CYCLES_PMC1;

/// `PM_RUN_INST_CMPL` on PMC4, for events that are not EBB.
pub const INSTRUCTIONS: u64 = 0x400fa;

/// A handler that leaves everything to the library, which counts.
pub fn count_only(_: &mut EbbContext<'_>) {}

/// Skips the test where the kernel offers no EBB.
///
/// # Errors
///
/// [`Failure::Skip`].
pub fn require_ebb() -> Outcome {
    match ebb::supported() {
        true => Ok(()),
        false => ktap::skip("the kernel offers no EBB on this machine"),
    }
}

/// Whether this is a CPU of Power ISA v3.1 or later (POWER10 on).
#[must_use]
pub fn isa_v31() -> bool {
    const PPC_FEATURE2_ARCH_3_1: u64 = 0x0004_0000;
    // SAFETY: getauxval only reads the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & PPC_FEATURE2_ARCH_3_1 != 0 }
}

/// Opens and enables an EBB event of `code` on this thread and makes sure that
/// it is scheduled. Its counter stands still and no EBB comes yet.
///
/// # Errors
///
/// A failure of the test.
#[track_caller]
pub fn prepare(code: u64, handler: Handler) -> Result<Event, Failure> {
    require_ebb()?;
    let event = ebb::event(code).open().or_fail("open EBB event")?;
    // SAFETY: the tests' handlers keep to what a signal handler may do.
    unsafe { ebb::install(handler) }.or_fail("install")?;
    event.enable().or_fail("enable")?;
    event.check_scheduled().or_fail("schedule")?;
    pmc::freeze();
    Ok(event)
}

/// [`prepare`], then lets EBBs come every `period` counts.
///
/// # Errors
///
/// A failure of the test.
#[track_caller]
pub fn begin(code: u64, period: u32, handler: Handler) -> Result<Event, Failure> {
    let event = prepare(code, handler)?;
    let counter = Pmc::of_event(code).ok_or("no counter").or_fail("code")?;
    ebb::start(counter, period).or_fail("start")?;
    ebb::enable().or_fail("enable EBBs")?;
    pmc::unfreeze();
    Ok(event)
}

/// No more EBBs, and the event closed.
pub fn end(event: Event) {
    ebb::disable();
    event.close();
}

/// About a thousand instructions.
#[inline(never)]
pub fn work() {
    for i in 0..250u32 {
        black_box(i);
    }
}

/// Works until this thread has had `n` EBBs, or for many times as long as `n`
/// periods take. Lost EBBs thus make a failure and no hang.
///
/// # Errors
///
/// A failure of the test if fewer came.
#[track_caller]
pub fn wait_for(n: u64, period: u32) -> Outcome {
    // 500 is what an EBB costs itself, roughly.
    let rounds = 20 * n * (u64::from(period) + 500) / 1000 + 1000;
    for _ in 0..rounds {
        if ebb::count() >= n {
            return Ok(());
        }
        work();
    }
    let came = ebb::count();
    if came >= n {
        return Ok(());
    }
    ktap::fail(format!(
        "only {came} of {n} EBBs came, {} spurious; {:?}, {:?}",
        ebb::spurious(),
        Bescr::read(),
        Mmcr0::read()
    ))
}

/// Works for at least `cycles` and fails if an EBB came meanwhile.
///
/// # Errors
///
/// A failure of the test.
#[track_caller]
pub fn expect_none(cycles: u64) -> Outcome {
    let before = ebb::count();
    for _ in 0..cycles / 500 {
        work();
    }
    match ebb::count() - before {
        0 => Ok(()),
        n => ktap::fail(format!("{n} EBBs came where none may come")),
    }
}
