// SPDX-License-Identifier: GPL-2.0
//! Each counter that overflows makes EBBs, and only when the counters may run.

use ebb::EbbContext;
use ebb::Pmc;
use ebb::Rearm;
use ebb::pmc;
use ebb::reg::Mmcr0;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ktap::Outcome;
use ktap::check;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const PERIOD: u32 = 10_000;

/// EBBs without an overflow of PMC1, and EBBs with alerts still enabled.
static NOT_NEGATIVE: AtomicU32 = AtomicU32::new(0);
static ALERTS_ON: AtomicU32 = AtomicU32::new(0);

fn look_at_pmc1(context: &mut EbbContext<'_>) {
    if !context.overflowed(Pmc::Pmc1) {
        NOT_NEGATIVE.fetch_add(1, Relaxed);
    }
    if Mmcr0::read().has(Mmcr0::PMAE) {
        ALERTS_ON.fetch_add(1, Relaxed);
    }
}

fn one_counter() -> Outcome {
    let event = session::begin(CYCLES, PERIOD, look_at_pmc1)?;
    session::wait_for(1000, PERIOD)?;
    session::end(event)?;
    let n = NOT_NEGATIVE.load(Relaxed);
    check!(n == 0, "{n} EBBs while PMC1 was not negative");
    let n = ALERTS_ON.load(Relaxed);
    check!(n == 0, "{n} EBBs with MMCR0[PMAE] still set");
    Ok(())
}

fn frozen_by_the_program() -> Outcome {
    let event = session::cycles(PERIOD)?;
    for _ in 0..20 {
        session::wait_for(ebb::count() + 5, PERIOD)?;
        pmc::freeze();
        let value = Pmc::Pmc1.read();
        session::expect_none(5 * u64::from(PERIOD))?;
        check!(Pmc::Pmc1.read() == value, "PMC1 counts while frozen");
        let mmcr0 = Mmcr0::read();
        check!(mmcr0 == Mmcr0::FC | Mmcr0::PMAE, "frozen: {mmcr0:?}");
        pmc::unfreeze();
    }
    session::end(event)
}

/// Codes that count cycles on PMC1 to PMC4 and PMC6, each with its own period.
const GROUP: [(u64, u32); 5] = [
    (CYCLES, 10_000),
    (0x2001e, 13_000),
    (0x3001e, 17_000),
    (0x4001e, 23_000),
    (0x600f4, 29_000),
];
static OVERFLOWS: [AtomicU64; 6] = [const { AtomicU64::new(0) }; 6];

fn count_each(context: &mut EbbContext<'_>) {
    for pmc in Pmc::ALL {
        if context.overflowed(pmc) {
            OVERFLOWS[pmc.index()].fetch_add(1, Relaxed);
        }
    }
}

fn several_counters() -> Outcome {
    let leader = ebb::event(GROUP[0].0).open()?;
    let members = GROUP[1..].iter();
    let members = members.map(|(code, _)| ebb::member(*code).open_with(&leader));
    let _members: Vec<_> = members.collect::<Result<_, _>>()?;
    session::install(count_each)?;
    leader.enable()?;
    leader.check_scheduled()?;
    pmc::freeze();
    for (code, period) in GROUP {
        ebb::start(session::pmc_of(code)?, period.into())?;
    }
    ebb::enable()?;
    pmc::unfreeze();
    session::wait_for(1000, PERIOD)?;
    ebb::disable();

    for (code, _) in GROUP {
        let pmc = session::pmc_of(code)?;
        let came = OVERFLOWS[pmc.index()].load(Relaxed);
        check!(came > 0, "no EBB of {pmc:?}");
    }
    Ok(())
}

/// PMC5 and PMC6 are frozen unless the group has an event on one of them. The kernel may clear them
/// at a task switch, as they do not belong to this task.
fn unused_pmc5_and_6_stand_still() -> Outcome {
    const NEAR: u32 = 0x7fff_ff00;
    let event = session::begin(0x2001e, PERIOD, count_each)?;
    Pmc::Pmc5.write(NEAR);
    Pmc::Pmc6.write(NEAR);
    session::wait_for(100, PERIOD)?;
    let values = [Pmc::Pmc5.read(), Pmc::Pmc6.read()];
    session::end(event)?;
    let still = values.iter().all(|value| [0, NEAR].contains(value));
    check!(still, "PMC5 and PMC6 count: {values:x?}");
    let n = OVERFLOWS[4].load(Relaxed) + OVERFLOWS[5].load(Relaxed);
    check!(n == 0, "{n} overflows of PMC5 and PMC6");
    let n = OVERFLOWS[1].load(Relaxed);
    check!(n >= 100, "only {n} overflows of PMC2");
    Ok(())
}

/// With an event on one of PMC5 and PMC6 the other counts too, and raises alerts.
fn pmc5_and_6_run_together() -> Outcome {
    const DUE: u32 = 5000;
    for (code, own, other) in [
        (0x500fa, Pmc::Pmc5, Pmc::Pmc6),
        (0x600f4, Pmc::Pmc6, Pmc::Pmc5),
    ] {
        let count = |pmc: Pmc| OVERFLOWS[pmc.index()].load(Relaxed);
        let before = [own, other].map(count);
        let event = session::prepare(code, count_each)?;
        own.write(0);
        other.write(Pmc::start_value(DUE));
        pmc::unfreeze();
        session::work_for(20 * u64::from(DUE));
        let (value, mmcr0) = (other.read(), Mmcr0::read());
        check!(value >= pmc::OVERFLOW, "{other:?} is {value:#x}");
        check!(own.read() >= DUE / 2, "{own:?} is {:#x}", own.read());
        check!(
            mmcr0.without(Mmcr0::PMAO) == Mmcr0::FC,
            "no alert of {other:?}: {mmcr0:?}"
        );
        ebb::enable()?;
        session::wait_for(ebb::count() + 1, PERIOD)?;
        session::end(event)?;
        let (after, expected) = ([own, other].map(count), [before[0], before[1] + 1]);
        check!(
            after == expected,
            "EBBs of {own:?}, {other:?}: {before:?}, then {after:?}"
        );
    }
    Ok(())
}

/// The longest period of a counter starts at 0.
fn longest_period() -> Outcome {
    let event = session::prepare(CYCLES, look_at_pmc1)?;
    ebb::start(Pmc::Pmc1, 1 << 31)?;
    ebb::enable()?;
    for n in 0..20 {
        pmc::unfreeze();
        session::work();
        pmc::freeze();
        let value = Pmc::Pmc1.read();
        check!((1..1_000_000).contains(&value), "round {n}: {value:#x}");
        check!(ebb::count() == n, "{} EBBs, not {n}", ebb::count());
        // Skips the remaining part of the period.
        Pmc::Pmc1.write(Pmc::start_value(1000));
        pmc::unfreeze();
        session::wait_for(n + 1, PERIOD)?;
    }
    session::end(event)?;
    let n = NOT_NEGATIVE.load(Relaxed);
    check!(n == 0, "{n} EBBs while PMC1 was not negative");
    Ok(())
}

const IN_A_ROW: u64 = 200;

fn stop_after_many(context: &mut EbbContext<'_>) {
    if context.number() == IN_A_ROW {
        context.rearm(Rearm::Stop);
    }
}

/// With the shortest period one EBB follows another, and none is lost.
fn shortest_period() -> Outcome {
    let event = session::begin(CYCLES, 1, stop_after_many)?;
    session::wait_for(IN_A_ROW, PERIOD)?;
    session::expect_none(50 * u64::from(PERIOD))?;
    check!(ebb::count() == IN_A_ROW, "{} EBBs", ebb::count());
    session::end(event)
}

/// The library sets a negative counter without a period to 0, as it would make EBBs without end.
fn negative_without_a_period() -> Outcome {
    let event = session::begin(CYCLES, PERIOD, look_at_pmc1)?;
    Pmc::Pmc3.write(pmc::OVERFLOW + 16);
    session::wait_for(ebb::count() + 10, PERIOD)?;
    let value = Pmc::Pmc3.read();
    session::end(event)?;
    check!(value == 0, "PMC3 is {value:#x}");
    Ok(())
}

ktap::main! {
    first: session::require_ebb;
    one_counter, frozen_by_the_program, several_counters,
    negative_without_a_period, unused_pmc5_and_6_stand_still, pmc5_and_6_run_together,
    longest_period, shortest_period,
}
