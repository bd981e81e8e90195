// SPDX-License-Identifier: GPL-2.0
//! A task's first EBB event starts from zero, and so does the first one after it closed its last.
//! Its registers contain no value of the task's parent, of the previous task on the PMU, or of the
//! task's own past. A counter that overflows while there is no handler does no harm.

use ebb::Attr;
use ebb::Pmc;
use ebb::pmc;
use ebb::reg::Bescr;
use ebb::reg::Mmcr0;
use ebb::reg::Mmcr2;
use ebb::spr;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ktap::Outcome;
use ktap::check;
use ktap::process::Peer;

/// Opens this task's first event and checks all registers that it can read.
fn check_first_event() -> Outcome {
    let _event = session::without_handler()?;
    session::check_fresh()?;
    let sampled = [pmc::siar(), pmc::sdar(), pmc::sier()];
    check!(sampled == [0; 3], "SIAR, SDAR, SIER: {sampled:x?}");
    let own = Pmc::Pmc1.read();
    check!(own < 0x1000_0000, "PMC1: {own:#x}");
    for pmc in &Pmc::ALL[1..] {
        check!(pmc.read() == 0, "{pmc:?}: {:#x}", pmc.read());
    }
    if session::isa_v31() {
        // SAFETY: A read of it has no effect.
        let mmcr3 = unsafe { spr::read::<{ spr::MMCR3 }>() };
        // SAFETY: A read of them has no effect.
        let sier = unsafe { [spr::read::<{ spr::SIER2 }>(), spr::read::<{ spr::SIER3 }>()] };
        check!(
            mmcr3 == 0 && sier == [0; 2],
            "MMCR3, SIER2, SIER3: {mmcr3:x} {sier:x?}"
        );
    }
    Ok(())
}

/// The parent has an EBB event and its own values in the registers when the child begins.
fn child_of_an_ebb_task() -> Outcome {
    let event = session::cycles(5000)?;
    session::wait_for(20, 5000)?;
    Mmcr0::FC.write();
    Mmcr2::USER.write();
    session::write_counters(0x3333_3333);
    Peer::spawn(|_| check_first_event())?.join()?;
    check!(Mmcr2::read() == Mmcr2::USER, "parent's {:?}", Mmcr2::read());
    let own = Pmc::Pmc1.read();
    check!(own == 0x3333_3333, "parent's PMC1: {own:#x}");
    session::end(event)
}

/// Ordinary events counted on this CPU before.
fn after_ordinary_events() -> Outcome {
    for code in [CYCLES, 0x2001e, 0x600f4, 0x500fa] {
        let event = session::schedule(&Attr::raw(code).user_only())?;
        session::work_for(100_000);
        event.close();
    }
    check_first_event()
}

/// A program closes its event in the state that `leave` makes. Its next event counts at once, and
/// makes EBBs only after a period was set.
fn after_closing(leave: fn()) -> Outcome {
    const PERIOD: u32 = 10_000;
    for _ in 0..3 {
        let event = session::prepare(CYCLES, session::count_only)?;
        session::write_counters(0x5555_5555);
        leave();
        event.close();

        check_first_event()?;
        let event = ebb::event(CYCLES).open()?;
        ebb::enable()?;
        event.enable()?;
        let first = Pmc::Pmc1.read();
        session::work();
        let second = Pmc::Pmc1.read();
        check!(second > first, "PMC1 stands still at {second:#x}");
        session::expect_none(20 * u64::from(PERIOD))?;
        ebb::start(Pmc::Pmc1, PERIOD.into())?;
        session::wait_for(20, PERIOD)?;
        session::end(event)?;
    }
    Ok(())
}

/// The state starts clean for each event, not for each of its turns on the PMU.
fn state_outlives_disable() -> Outcome {
    let event = session::prepare(CYCLES, session::count_only)?;
    for mmcr0 in [Mmcr0::FC, Mmcr0::FC | Mmcr0::PMAE, Mmcr0(0)] {
        Mmcr2::freeze_problem(Pmc::Pmc2).write();
        mmcr0.write();
        event.disable()?;
        event.enable()?;
        let (now, mmcr2) = (Mmcr0::read(), Mmcr2::read());
        check!(now == mmcr0, "{mmcr0:?} became {now:?}");
        check!(mmcr2 == Mmcr2::freeze_problem(Pmc::Pmc2), "{mmcr2:?}");
    }
    session::end(event)
}

/// A counter overflows with `bescr` in BESCR and no handler; later the program takes EBBs.
fn without_handler(bescr: Bescr) -> Outcome {
    const PERIOD: u32 = 5000;
    let event = session::without_handler()?;
    // SAFETY: No exception can branch while GE or PME is clear.
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
    child_of_an_ebb_task,
    after_ordinary_events,
    after_closing_frozen = after_closing(|| Mmcr0::FC.write()),
    after_closing_without_alerts = after_closing(|| Mmcr0(0).write()),
    // An alert is pending.
    after_closing_alerted = after_closing(|| (Mmcr0::FC | Mmcr0::PMAO).write()),
    after_closing_with_mmcr2 = after_closing(|| Mmcr2::USER.write()),
    state_outlives_disable,
    no_handler = without_handler(Bescr(0)),
    no_handler_without_global_enable = without_handler(Bescr::PME),
    no_handler_without_pmu_enable = without_handler(Bescr::GE),
}
