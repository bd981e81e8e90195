// SPDX-License-Identifier: GPL-2.0
//! Closing a thread's last EBB event takes its access to the PMU away, and no
//! EBB comes any more. What the program did before does not show in its next
//! event.

use ebb::Pmc;
use ebb::pmc;
use ebb::reg::Bescr;
use ebb::reg::Mmcr0;
use ebb::reg::Mmcr2;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ebb_selftests::trap;
use ebb_selftests::trap::traps;
use ktap::OrFail;
use ktap::Outcome;
use ktap::check;

const PERIOD: u32 = 10_000;
/// Cycles on PMC2.
const MEMBER: u64 = 0x2001e;

fn takes_access_away() -> Outcome {
    let event = session::begin(CYCLES, PERIOD, session::count_only)?;
    session::wait_for(1, PERIOD)?;
    check!(!traps(trap::write_pmc1)?, "PMC1 traps under an EBB event");
    session::end(event);
    check!(traps(trap::write_pmc1)?, "PMC1 is writable after close");
    check!(traps(trap::write_mmcr0)?, "MMCR0 is writable after close");
    check!(traps(trap::write_mmcr2)?, "MMCR2 is writable after close");
    Ok(())
}

fn ebb_registers_stay() -> Outcome {
    let event = session::begin(CYCLES, PERIOD, session::count_only)?;
    session::end(event);
    check!(
        !traps(|| {
            std::hint::black_box(Bescr::read());
        })?,
        "BESCR traps after close"
    );
    Ok(())
}

/// Closed while GE and PME are on and the counter is about to overflow.
fn stops_ebbs() -> Outcome {
    let event = session::begin(CYCLES, PERIOD, session::count_only)?;
    session::wait_for(5, PERIOD)?;
    event.close();
    session::expect_none(50 * u64::from(PERIOD))?;
    check!(
        Bescr::read().has(Bescr::GE | Bescr::PME),
        "BESCR: {:?}",
        Bescr::read()
    );
    ebb::disable();
    Ok(())
}

/// Another EBB event after a close starts with counters running, alerts on and
/// nothing of its predecessor.
fn next_event_is_fresh() -> Outcome {
    let event = session::prepare(CYCLES, session::count_only)?;
    Mmcr2::USER.write();
    Pmc::Pmc1.write(0x5555_5555);
    Mmcr0::FC.write();
    session::end(event);

    let event = ebb::event(CYCLES).open().or_fail("open")?;
    event.enable().or_fail("enable")?;
    check!(
        Mmcr0::read() == Mmcr0::PMAE,
        "MMCR0 of a new event: {:?}",
        Mmcr0::read()
    );
    check!(
        Mmcr2::read() == Mmcr2(0),
        "MMCR2 of a new event: {:?}",
        Mmcr2::read()
    );
    let value = Pmc::Pmc1.read();
    check!(value < 0x1000_0000, "PMC1 of a new event: {value:#x}");
    session::end(event);
    Ok(())
}

/// Who leads the group from now on has the state that the program made.
fn closing_the_leader_changes_nothing() -> Outcome {
    let leader = session::prepare(CYCLES, session::count_only)?;
    let member = ebb::member(MEMBER).open_with(&leader).or_fail("open")?;
    member.check_scheduled().or_fail("member")?;
    Mmcr2::freeze_problem(2).write();
    Mmcr0::FC.write();
    leader.close();
    member.check_scheduled().or_fail("member alone")?;
    check!(
        Mmcr0::read() == Mmcr0::FC && Mmcr2::read() == Mmcr2::freeze_problem(2),
        "after the leader is closed: {:?}, {:?}",
        Mmcr0::read(),
        Mmcr2::read()
    );
    session::end(member);
    Ok(())
}

/// A hundred times from open to close, with EBBs in between.
fn again_and_again() -> Outcome {
    for _ in 0..100 {
        let event = session::begin(CYCLES, 2000, session::count_only)?;
        session::wait_for(3, 2000)?;
        pmc::freeze();
        session::end(event);
    }
    Ok(())
}

ktap::main! {
    first: session::require_ebb;
    takes_access_away, ebb_registers_stay, stops_ebbs, next_event_is_fresh,
    closing_the_leader_changes_nothing, again_and_again,
}
