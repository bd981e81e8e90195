// SPDX-License-Identifier: GPL-2.0
//! A task's first EBB event starts from zero, and so does the first after it
//! closed its last: no value of its parent's, of whoever had the PMU before, or
//! of its own past shows in its registers.

use ebb::Attr;
use ebb::Pmc;
use ebb::pmc;
use ebb::reg::Mmcr0;
use ebb::reg::Mmcr2;
use ebb::spr;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ktap::OrFail;
use ktap::Outcome;
use ktap::check;
use ktap::process::Peer;

/// Opens this task's first event and looks at everything it can read.
fn look() -> Outcome {
    let event = ebb::event(CYCLES).open().or_fail("open")?;
    event.enable().or_fail("enable")?;
    event.check_scheduled().or_fail("schedule")?;
    let mmcr0 = Mmcr0::read();
    check!(mmcr0 == Mmcr0::PMAE, "{mmcr0:?}");
    check!(Mmcr2::read() == Mmcr2(0), "{:?}", Mmcr2::read());
    let sampled = [pmc::siar(), pmc::sdar(), pmc::sier()];
    check!(sampled == [0; 3], "SIAR, SDAR, SIER: {sampled:x?}");
    let own = Pmc::Pmc1.read();
    check!(own < 0x1000_0000, "PMC1: {own:#x}");
    for pmc in &Pmc::ALL[1..] {
        check!(pmc.read() == 0, "{pmc:?}: {:#x}", pmc.read());
    }
    if session::isa_v31() {
        // SAFETY: reading them has no effect.
        let v31 = unsafe {
            [
                spr::read::<{ spr::MMCR3 }>(),
                spr::read::<{ spr::SIER2 }>(),
                spr::read::<{ spr::SIER3 }>(),
            ]
        };
        check!(v31 == [0; 3], "MMCR3, SIER2, SIER3: {v31:x?}");
    }
    Ok(())
}

/// The parent has an EBB event and leaves its marks while the child begins.
fn child_of_an_ebb_task() -> Outcome {
    let event = session::begin(CYCLES, 5000, session::count_only)?;
    session::wait_for(20, 5000)?;
    Mmcr0::FC.write();
    Mmcr2::USER.write();
    for pmc in Pmc::ALL {
        pmc.write(0x3333_3333);
    }
    Peer::spawn(|_| look())?.join()?;
    check!(Mmcr2::read() == Mmcr2::USER, "parent's {:?}", Mmcr2::read());
    let own = Pmc::Pmc1.read();
    check!(own == 0x3333_3333, "parent's PMC1: {own:#x}");
    session::end(event);
    Ok(())
}

/// Somebody else counted and sampled on this CPU before.
fn after_ordinary_events() -> Outcome {
    for code in [CYCLES, 0x2001e, 0x600f4, 0x500fa] {
        let event = Attr::raw(code).user_only().open().or_fail("open")?;
        event.enable().or_fail("enable")?;
        for _ in 0..100 {
            session::work();
        }
        event.close();
    }
    look()
}

/// A program ends its session in the state `leave` makes; its next event counts
/// at once, and makes an EBB when it shall and not before.
fn after_closing(leave: fn()) -> Outcome {
    const PERIOD: u32 = 10_000;
    for _ in 0..3 {
        let event = session::prepare(CYCLES, session::count_only)?;
        leave();
        event.close();

        look()?;
        let event = ebb::event(CYCLES).open().or_fail("open")?;
        ebb::enable().or_fail("enable EBBs")?;
        event.enable().or_fail("enable")?;
        let first = Pmc::Pmc1.read();
        session::work();
        let second = Pmc::Pmc1.read();
        check!(second > first, "PMC1 stands still at {second:#x}");
        session::expect_none(20 * u64::from(PERIOD))?;
        ebb::start(Pmc::Pmc1, PERIOD).or_fail("start")?;
        session::wait_for(20, PERIOD)?;
        session::end(event);
    }
    Ok(())
}

fn after_closing_frozen() -> Outcome {
    after_closing(|| Mmcr0::FC.write())
}

fn after_closing_without_alerts() -> Outcome {
    after_closing(|| Mmcr0(0).write())
}

/// With an alert that nobody has taken.
fn after_closing_alerted() -> Outcome {
    after_closing(|| (Mmcr0::FC | Mmcr0::PMAO).write())
}

fn after_closing_with_mmcr2() -> Outcome {
    after_closing(|| Mmcr2::USER.write())
}

/// What begins clean is an event, not each of its turns on the PMU.
fn state_outlives_disable() -> Outcome {
    let event = session::prepare(CYCLES, session::count_only)?;
    for mmcr0 in [Mmcr0::FC, Mmcr0::FC | Mmcr0::PMAE, Mmcr0(0)] {
        Mmcr2::freeze_problem(2).write();
        mmcr0.write();
        event.disable().or_fail("disable")?;
        event.enable().or_fail("enable")?;
        let (now, mmcr2) = (Mmcr0::read(), Mmcr2::read());
        check!(now == mmcr0, "{mmcr0:?} became {now:?}");
        check!(mmcr2 == Mmcr2::freeze_problem(2), "{mmcr2:?}");
    }
    session::end(event);
    Ok(())
}

ktap::main! {
    first: session::require_ebb;
    child_of_an_ebb_task, after_ordinary_events, after_closing_frozen, after_closing_without_alerts,
    after_closing_alerted, after_closing_with_mmcr2, state_outlives_disable,
}
