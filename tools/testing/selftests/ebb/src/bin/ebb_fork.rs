// SPDX-License-Identifier: GPL-2.0
//! Neither a child process nor a new thread inherits anything of EBB, and the
//! parent keeps all of it.

use ebb::Event;
use ebb_selftests::session;
use ebb_selftests::trap;
use ebb_selftests::trap::traps;
use ktap::Outcome;
use ktap::check;
use ktap::process;
use ktap::process::Peer;

const PERIOD: u32 = 10_000;

/// What a new thread or process finds; then it has EBBs of its own.
fn starts_without() -> Outcome {
    let registers = session::ebb_registers();
    check!(registers == [0; 3], "BESCR, EBBHR, EBBRR: {registers:#x?}");
    check!(traps(trap::write_pmc1)?, "PMC1 is writable");
    check!(traps(trap::write_mmcr0)?, "MMCR0 is writable");
    session::expect_none(20 * u64::from(PERIOD))?;
    let own = session::cycles(PERIOD)?;
    session::wait_for(50, PERIOD)?;
    session::end(own)
}

/// A task with EBBs has a child meanwhile, and goes on with them.
fn with_child(child: fn(&Event) -> Outcome) -> Outcome {
    let event = session::cycles(PERIOD)?;
    session::wait_for(5, PERIOD)?;
    let own = session::ebb_registers();
    check!(!own.contains(&0), "nothing to inherit: {own:#x?}");
    child(&event)?;
    check!(!traps(trap::write_mmcr2)?, "the parent lost its access");
    session::wait_for(ebb::count() + 20, PERIOD)?;
    session::end(event)
}

/// The descriptor is inherited and speaks of the parent's event.
fn in_process(event: &Event) -> Outcome {
    Peer::spawn(|_| {
        starts_without()?;
        event.read()?;
        Ok(())
    })?
    .join()
}

ktap::main! {
    first: session::require_ebb;
    process_starts_without = with_child(in_process),
    thread_starts_without = with_child(|_| process::in_thread(starts_without)),
}
