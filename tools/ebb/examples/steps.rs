// SPDX-License-Identifier: MIT OR Apache-2.0
//! Takes 1000 EBBs step by step, without a session.

use ebb::EbbContext;
use ebb::Pmc;

fn handler(context: &mut EbbContext<'_>) {
    let _address = context.interrupted();
}

/// Runs the whole program; a test calls it too.
pub fn main() -> Result<(), ebb::Error> {
    let event = ebb::event(ebb::config::CYCLES_PMC1).open()?;
    // SAFETY: `handler` only reads its context.
    unsafe { ebb::install(handler)? };
    event.enable()?;
    event.check_scheduled()?;
    ebb::enable()?;
    ebb::start(Pmc::Pmc1, 100_000)?;
    while ebb::count() < 1000 {
        std::hint::spin_loop();
    }
    ebb::disable();
    println!("{} EBBs", ebb::count());
    event.close();
    Ok(())
}
