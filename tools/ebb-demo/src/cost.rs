// SPDX-License-Identifier: GPL-2.0
//! Cost of an EBB in instructions, from the first of the entry to `rfebb`.
//!
//! In a real handler the counters do not count: the overflow freezes them. So the program calls the
//! handler itself, through the whole entry, while PMC5 counts instructions, and then again with an
//! entry that returns at once. The difference is what the entry, the handler and the return
//! execute.

use crate::sampling;
use ebb::Error;
use ebb::Pmc;
use ebb::Save;
use ebb::spr;

/// `PM_RUN_INST_CMPL`, which PMC5 counts.
const INSTRUCTIONS_PMC5: u64 = 0x500fa;
const ROUNDS: u32 = 1000;

/// Entry that does nothing. GE stays off: PMEO is still set and would cause another EBB at once.
#[unsafe(naked)]
unsafe extern "C" fn empty_entry() {
    core::arch::naked_asm!("rfebb 0")
}

/// Returns how many instructions one EBB with the demo's handler executes, `rfebb` included, if the
/// entry saves the registers of `save`.
pub fn instructions(save: Save) -> Result<u32, Error> {
    let event = ebb::event(INSTRUCTIONS_PMC5).open()?;
    event.enable()?;
    event.check_scheduled()?;
    // SAFETY: The handler only stores to atomics that exist already. It may change other registers
    // if the entry does not save them, but this function keeps no value in them.
    unsafe { ebb::install_saving(save, sampling::handler)? };
    let full = count();
    // SAFETY: The entry changes no register and returns by rfebb.
    unsafe { spr::write::<{ spr::EBBHR }>(empty_entry as *const () as u64) };
    let empty = count();
    ebb::disable();
    // SAFETY: GE is off, so nothing branches to the address. With 0 the library can install again.
    unsafe { spr::write::<{ spr::EBBHR }>(0) };
    event.close();
    // Rounds, as the emulator counts whole blocks. Adds 1 for the rfebb of the handler: the
    // subtraction removed the one of the empty entry.
    Ok((full.saturating_sub(empty) + ROUNDS / 2) / ROUNDS + 1)
}

fn count() -> u32 {
    Pmc::Pmc5.write(0);
    for _ in 0..ROUNDS {
        // SAFETY: Both entries that `instructions` writes to EBBHR preserve all registers.
        unsafe { ebb::branch_to_ebbhr() };
    }
    Pmc::Pmc5.read()
}
