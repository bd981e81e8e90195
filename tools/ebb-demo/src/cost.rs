// SPDX-License-Identifier: GPL-2.0
//! What an EBB costs in instructions, from the first of the entry to `rfebb`.
//!
//! The counters stand still in a real handler: the overflow freezes them. So
//! the handler is run by hand, through the whole entry, with PMC5 counting
//! instructions; then once more with an entry that returns at once. The
//! difference is what the entry, the handler and the way back execute.

use crate::sampling;
use ebb::Error;
use ebb::Pmc;
use ebb::Save;
use ebb::spr;

/// `PM_RUN_INST_CMPL`, which PMC5 counts.
const INSTRUCTIONS_PMC5: u64 = 0x500fa;
const ROUNDS: u32 = 1000;

/// An entry that does nothing. GE stays off: PMEO is still set, and would be an EBB again.
#[unsafe(naked)]
unsafe extern "C" fn empty_entry() {
    core::arch::naked_asm!("rfebb 0")
}

/// Instructions that one EBB with the demo's handler executes, `rfebb` included, where the
/// entry saves what `save` says.
pub fn instructions(save: Save) -> Result<u32, Error> {
    let event = ebb::event(INSTRUCTIONS_PMC5).open()?;
    event.enable()?;
    event.check_scheduled()?;
    // SAFETY: as in `sampling::run`; and what the handler does to other registers would be to
    // those of this function, which keeps nothing there.
    unsafe { ebb::install_saving(save, sampling::handler)? };
    let full = count();
    // SAFETY: the entry changes no register and returns by rfebb.
    unsafe { spr::write::<{ spr::EBBHR }>(empty_entry as *const () as u64) };
    let empty = count();
    ebb::disable();
    // SAFETY: GE is off, and the handler of the library is to be installed again.
    unsafe { spr::write::<{ spr::EBBHR }>(0) };
    event.close();
    // Rounded, as the emulator counts by blocks; the empty entry's own rfebb was
    // taken off with the rest.
    Ok((full.saturating_sub(empty) + ROUNDS / 2) / ROUNDS + 1)
}

fn count() -> u32 {
    Pmc::Pmc5.write(0);
    for _ in 0..ROUNDS {
        // SAFETY: both entries that `instructions` has put into EBBHR keep all registers.
        unsafe { ebb::branch_to_ebbhr() };
    }
    Pmc::Pmc5.read()
}
