// SPDX-License-Identifier: GPL-2.0
//! An EBB event that a process puts on another one.

use ebb::Event;
use ebb::Pmc;
use ebb::reg::Bescr;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ebb_selftests::trap;
use ebb_selftests::trap::traps;
use ktap::Failure;
use ktap::OrFail;
use ktap::Outcome;
use ktap::check;
use ktap::process::Peer;

const PERIOD: u32 = 10_000;

fn put_on(child: &Peer) -> Result<Event, Failure> {
    let event = ebb::event(CYCLES)
        .pid(child.pid())
        .open()
        .or_fail("open on child")?;
    event.enable().or_fail("enable on child")?;
    Ok(event)
}

/// A child that expects it installs a handler and gets EBBs; its parent gets
/// neither EBBs nor access.
fn willing() -> Outcome {
    let mut child = Peer::spawn(|parent| {
        // SAFETY: the handler does nothing.
        unsafe { ebb::install(session::count_only) }.or_fail("install")?;
        parent.tell()?;
        parent.listen()?;
        check!(!traps(trap::write_pmc1)?, "no access to PMC1");
        ebb::start(Pmc::Pmc1, PERIOD).or_fail("start")?;
        ebb::enable().or_fail("enable EBBs")?;
        session::wait_for(100, PERIOD)?;
        parent.tell()?;
        // The parent closes the event now.
        parent.listen()?;
        check!(traps(trap::write_pmc1)?, "PMC1 is writable after close");
        session::expect_none(10 * u64::from(PERIOD))
    })?;
    child.listen()?;
    let event = put_on(&child)?;
    check!(traps(trap::write_pmc1)?, "the parent may write PMC1");
    child.tell()?;
    child.listen()?;
    check!(event.is_scheduled().or_fail("read")?, "not scheduled");
    event.close();
    child.tell()?;
    child.join()
}

/// A child that knows nothing of it runs on as if nothing were there.
fn unaware() -> Outcome {
    let mut child = Peer::spawn(|parent| {
        parent.listen()?;
        for _ in 0..1000 {
            session::work();
        }
        check!(Bescr::read() == Bescr(0), "{:?}", Bescr::read());
        check!(!traps(trap::write_pmc1)?, "the event is not there");
        // From here it overflows, and nobody has a handler.
        Pmc::Pmc1.write(Pmc::start_value(PERIOD));
        for _ in 0..1000 {
            session::work();
        }
        check!(!Bescr::read().has(Bescr::GE), "{:?}", Bescr::read());
        Ok(())
    })?;
    let _event = put_on(&child)?;
    child.tell()?;
    child.join()
}

ktap::main! {
    first: session::require_ebb;
    willing, unaware,
}
