// SPDX-License-Identifier: GPL-2.0
//! An EBB event is enabled and disabled by ioctl and by prctl; without it the
//! program has no access to the PMU.

use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ebb_selftests::trap::traps;
use ebb_selftests::trap::write_pmc1;
use ktap::Outcome;
use ktap::check;

const PERIOD: u32 = 10_000;

/// Opening alone gives nothing.
fn opened_is_not_enabled() -> Outcome {
    let _event = ebb::event(CYCLES).open()?;
    check!(traps(write_pmc1)?, "PMC1 is writable before enable");
    Ok(())
}

/// Turns on and off by the two calls, and looks at access and EBBs each time.
fn on_and_off(
    on: fn(&ebb::Event) -> perf_event::Result<()>,
    off: fn(&ebb::Event) -> perf_event::Result<()>,
) -> Outcome {
    let event = session::cycles(PERIOD)?;
    off(&event)?;
    for round in 0..3 {
        check!(traps(write_pmc1)?, "PMC1 is writable when off");
        session::expect_none(10 * u64::from(PERIOD))?;
        on(&event)?;
        event.check_scheduled()?;
        check!(!traps(write_pmc1)?, "PMC1 traps when on, round {round}");
        session::arm(PERIOD)?;
        session::wait_for(ebb::count() + 10, PERIOD)?;
        off(&event)?;
    }
    session::end(event)
}

ktap::main! {
    first: session::require_ebb;
    opened_is_not_enabled,
    by_ioctl = on_and_off(ebb::Event::enable, ebb::Event::disable),
    by_prctl = on_and_off(|_| ebb::enable_all(), |_| ebb::disable_all()),
}
