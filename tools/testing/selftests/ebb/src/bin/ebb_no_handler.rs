// SPDX-License-Identifier: GPL-2.0
//! A counter that overflows while the program takes no EBBs does no harm, and
//! the program may begin to take them later.

use ebb::Pmc;
use ebb::reg::Bescr;
use ebb::reg::Mmcr0;
use ebb_selftests::session;
use ktap::Outcome;
use ktap::check;

const PERIOD: u32 = 5000;

/// Overflows with `bescr` in BESCR and no handler, then with one.
fn overflow_with(bescr: Bescr) -> Outcome {
    let event = session::without_handler()?;
    // SAFETY: no exception can branch with either GE or PME clear.
    unsafe { bescr.write() };
    let [_, handler, _] = session::ebb_registers();
    check!(handler == 0, "EBBHR of a new process: {handler:#x}");
    Pmc::Pmc1.write(Pmc::start_value(PERIOD));
    session::work_for(100_000);
    event.check_scheduled()?;
    let now = Bescr::read();
    check!(
        now.without(Bescr::PMEO) == bescr,
        "{bescr:?} became {now:?}"
    );

    Mmcr0::FC.write();
    session::install(session::count_only)?;
    session::arm(PERIOD)?;
    session::wait_for(20, PERIOD)?;
    session::end(event)
}

ktap::main! {
    first: session::require_ebb;
    nothing_enabled = overflow_with(Bescr(0)),
    without_global_enable = overflow_with(Bescr::PME),
    without_pmu_enable = overflow_with(Bescr::GE),
}
