// SPDX-License-Identifier: MIT OR Apache-2.0
//! Takes 1000 EBBs, one every 100,000 cycles.

use ebb::EbbContext;
use ebb::Save;
use ebb::Session;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

static LAST: AtomicU64 = AtomicU64::new(0);

fn handler(context: &mut EbbContext<'_>) {
    LAST.store(context.interrupted(), Relaxed);
}

/// Runs the whole program; a test calls it too.
pub fn main() -> Result<(), ebb::Error> {
    let session = Session::open("cycles", 100_000)?;
    // SAFETY: `handler` reads its context and stores to an atomic.
    unsafe { session.start(Save::Full, handler)? };
    while session.count() < 1000 {
        std::hint::spin_loop();
    }
    session.pause()?;
    println!(
        "{} EBBs, the last at {:#x}",
        session.count(),
        LAST.load(Relaxed)
    );
    session.close();
    Ok(())
}
