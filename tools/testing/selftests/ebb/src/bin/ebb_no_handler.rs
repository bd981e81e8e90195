// SPDX-License-Identifier: GPL-2.0
//! A counter that overflows while the program takes no EBBs does no harm, and
//! the program may begin to take them later.

use ebb::Pmc;
use ebb::reg::Bescr;
use ebb::reg::Mmcr0;
use ebb::spr;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ktap::OrFail;
use ktap::Outcome;
use ktap::check;

const PERIOD: u32 = 5000;

/// Overflows with `bescr` in BESCR and no handler, then with one.
fn overflow_with(bescr: Bescr) -> Outcome {
    let event = ebb::event(CYCLES).open().or_fail("open")?;
    event.enable().or_fail("enable")?;
    event.check_scheduled().or_fail("schedule")?;
    // SAFETY: reading EBBHR has no effect; no exception can branch with either
    // GE or PME clear.
    let handler = unsafe {
        bescr.write();
        spr::read::<{ spr::EBBHR }>()
    };
    check!(handler == 0, "EBBHR of a new process: {handler:#x}");
    Pmc::Pmc1.write(Pmc::start_value(PERIOD));
    for _ in 0..100 {
        session::work();
    }
    event.check_scheduled().or_fail("schedule, still")?;
    check!(
        Bescr::read().without(Bescr::PMEO) == bescr,
        "BESCR: {:?}",
        Bescr::read()
    );

    Mmcr0::FC.write();
    // SAFETY: the handler does nothing.
    unsafe { ebb::install(session::count_only) }.or_fail("install")?;
    ebb::start(Pmc::Pmc1, PERIOD).or_fail("start")?;
    ebb::enable().or_fail("enable EBBs")?;
    Mmcr0::PMAE.write();
    session::wait_for(20, PERIOD)?;
    session::end(event);
    Ok(())
}

fn nothing_enabled() -> Outcome {
    overflow_with(Bescr(0))
}

fn without_global_enable() -> Outcome {
    overflow_with(Bescr::PME)
}

fn without_pmu_enable() -> Outcome {
    overflow_with(Bescr::GE)
}

ktap::main! {
    first: session::require_ebb;
    nothing_enabled, without_global_enable, without_pmu_enable,
}
