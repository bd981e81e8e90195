// SPDX-License-Identifier: GPL-2.0
//! Neither a child process nor a new thread inherits anything of EBB, and the
//! parent keeps all of it.

use ebb::reg::Bescr;
use ebb::spr;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ebb_selftests::trap;
use ebb_selftests::trap::traps;
use ktap::OrFail;
use ktap::Outcome;
use ktap::check;
use ktap::process::Peer;

const PERIOD: u32 = 10_000;

/// BESCR, EBBHR and EBBRR of this thread.
fn ebb_registers() -> [u64; 3] {
    // SAFETY: these registers are always readable, without effect.
    unsafe {
        [
            Bescr::read().0,
            spr::read::<{ spr::EBBHR }>(),
            spr::read::<{ spr::EBBRR }>(),
        ]
    }
}

/// What holds in every new thread and process.
fn newborn(registers: [u64; 3]) -> Outcome {
    check!(registers == [0; 3], "BESCR, EBBHR, EBBRR: {registers:#x?}");
    check!(traps(trap::write_pmc1)?, "PMC1 is writable");
    check!(traps(trap::write_mmcr0)?, "MMCR0 is writable");
    Ok(())
}

fn parent_goes_on() -> Outcome {
    check!(!traps(trap::write_mmcr2)?, "the parent lost its access");
    session::wait_for(ebb::count() + 20, PERIOD)
}

fn process_starts_without() -> Outcome {
    let event = session::begin(CYCLES, PERIOD, session::count_only)?;
    session::wait_for(5, PERIOD)?;
    let parents = ebb_registers();
    check!(
        parents.iter().all(|&value| value != 0),
        "nothing to inherit: {parents:#x?}"
    );
    let child = Peer::spawn(|_| {
        newborn(ebb_registers())?;
        let before = ebb::count();
        session::expect_none(20 * u64::from(PERIOD))?;
        check!(ebb::count() == before, "an EBB came");
        // The descriptor is inherited and speaks of the parent's event.
        let n = event.read_bytes(&mut [0; 64]).or_fail("read")?;
        check!(n == 8, "read of the parent's event gave {n} bytes");
        Ok(())
    })?;
    child.join()?;
    parent_goes_on()?;
    session::end(event);
    Ok(())
}

/// The child of a process with EBBs may have EBBs of its own, while its parent's
/// counter runs.
fn process_with_its_own() -> Outcome {
    let event = session::begin(CYCLES, PERIOD, session::count_only)?;
    session::wait_for(5, PERIOD)?;
    let child = Peer::spawn(|_| {
        let own = session::begin(CYCLES, PERIOD, session::count_only)?;
        session::wait_for(50, PERIOD)?;
        session::end(own);
        Ok(())
    })?;
    child.join()?;
    parent_goes_on()?;
    session::end(event);
    Ok(())
}

fn thread_starts_without() -> Outcome {
    let event = session::begin(CYCLES, PERIOD, session::count_only)?;
    session::wait_for(5, PERIOD)?;
    let thread = std::thread::spawn(|| -> Outcome {
        let registers = ebb_registers();
        newborn(registers)?;
        session::expect_none(20 * u64::from(PERIOD))?;
        let own = session::begin(CYCLES, PERIOD, session::count_only)?;
        session::wait_for(20, PERIOD)?;
        session::end(own);
        Ok(())
    });
    thread.join().map_err(|_| "panic").or_fail("thread")??;
    parent_goes_on()?;
    session::end(event);
    Ok(())
}

ktap::main! {
    first: session::require_ebb;
    process_starts_without, process_with_its_own, thread_starts_without,
}
