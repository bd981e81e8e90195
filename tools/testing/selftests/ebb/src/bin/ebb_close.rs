// SPDX-License-Identifier: GPL-2.0
//! No EBB comes after a thread's last EBB event is closed; closing one of several events changes
//! nothing. `ebb_first_event` tests the state in which the next event starts, `ebb_isolation` that
//! the thread has no access to the PMU.

use ebb::Pmc;
use ebb::pmc;
use ebb::reg::Bescr;
use ebb::reg::Mmcr0;
use ebb::reg::Mmcr2;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ktap::Outcome;
use ktap::check;

const PERIOD: u32 = 10_000;

/// The event is closed while GE and PME are on and the counter is about to overflow. BESCR needs no
/// event: the program reads the same value as before.
fn stops_ebbs() -> Outcome {
    let event = session::cycles(PERIOD)?;
    session::wait_for(5, PERIOD)?;
    event.close();
    session::expect_none(50 * u64::from(PERIOD))?;
    let bescr = Bescr::read();
    check!(bescr.has(Bescr::GE | Bescr::PME), "{bescr:?}");
    ebb::disable();
    Ok(())
}

/// The event that leads the group after the close keeps the state that the program made.
fn closing_the_leader_changes_nothing() -> Outcome {
    let leader = session::prepare(CYCLES, session::count_only)?;
    // Cycles on PMC2.
    let member = ebb::member(0x2001e).open_with(&leader)?;
    member.check_scheduled()?;
    Mmcr2::freeze_problem(Pmc::Pmc2).write();
    Mmcr0::FC.write();
    leader.close();
    member.check_scheduled()?;
    let (mmcr0, mmcr2) = (Mmcr0::read(), Mmcr2::read());
    check!(mmcr0 == Mmcr0::FC, "{mmcr0:?}");
    check!(mmcr2 == Mmcr2::freeze_problem(Pmc::Pmc2), "{mmcr2:?}");
    session::end(member)
}

/// The member that becomes the leader was disabled until then, and has never been on the PMU. It
/// was opened before the leader was on the PMU, or after.
fn disabled_member_takes_over() -> Outcome {
    for opened_first in [true, false] {
        session::install(session::count_only)?;
        let leader = ebb::event(CYCLES).open()?;
        let open = || ebb::member(0x2001e).open_in(Some(&leader));
        let early = opened_first.then(open).transpose()?;
        leader.enable()?;
        leader.check_scheduled()?;
        pmc::freeze();
        let disabled = early.map_or_else(open, Ok)?;
        Mmcr2::freeze_problem(Pmc::Pmc3).write();
        leader.close();
        disabled.enable()?;
        disabled.check_scheduled()?;
        let mmcr2 = Mmcr2::read();
        check!(
            mmcr2 == Mmcr2::freeze_problem(Pmc::Pmc3),
            "opened first: {opened_first}: {mmcr2:?}"
        );
        session::end(disabled)?;
    }
    Ok(())
}

/// Members of a leader that was closed unused become leaders, side by side. When one is closed the
/// other keeps the state that the program made.
fn members_of_an_unused_leader() -> Outcome {
    session::install(session::count_only)?;
    let leader = ebb::event(CYCLES).open()?;
    let [first, second] = [0x2001e, 0x3001e].map(|code| ebb::member(code).open_in(Some(&leader)));
    let (first, second) = (first?, second?);
    leader.close();
    for event in [&first, &second] {
        event.enable()?;
        event.check_scheduled()?;
    }
    pmc::freeze();
    Mmcr2::freeze_problem(Pmc::Pmc3).write();
    first.close();
    second.check_scheduled()?;
    let mmcr2 = Mmcr2::read();
    check!(mmcr2 == Mmcr2::freeze_problem(Pmc::Pmc3), "{mmcr2:?}");
    session::end(second)
}

/// The registers that the program wrote belong to the thread. Another group, which is on the PMU
/// only while the first is disabled, finds them and leaves them unchanged.
fn another_group_changes_nothing() -> Outcome {
    let first = session::prepare(CYCLES, session::count_only)?;
    Mmcr2::freeze_problem(Pmc::Pmc3).write();
    Mmcr0::FC.write();
    first.disable()?;
    let second = ebb::event(0x2001e).open()?;
    second.enable()?;
    second.check_scheduled()?;
    let found = Mmcr2::read();
    check!(found == Mmcr2::freeze_problem(Pmc::Pmc3), "{found:?}");
    second.close();
    first.enable()?;
    first.check_scheduled()?;
    let (mmcr0, mmcr2) = (Mmcr0::read(), Mmcr2::read());
    check!(mmcr0 == Mmcr0::FC, "{mmcr0:?}");
    check!(mmcr2 == Mmcr2::freeze_problem(Pmc::Pmc3), "{mmcr2:?}");
    session::end(first)
}

/// Opens and closes a hundred times, with EBBs in between.
fn again_and_again() -> Outcome {
    for _ in 0..100 {
        let event = session::cycles(2000)?;
        session::wait_for(3, 2000)?;
        pmc::freeze();
        session::end(event)?;
    }
    Ok(())
}

ktap::main! {
    first: session::require_ebb;
    stops_ebbs, closing_the_leader_changes_nothing, disabled_member_takes_over,
    members_of_an_unused_leader, another_group_changes_nothing, again_and_again,
}
