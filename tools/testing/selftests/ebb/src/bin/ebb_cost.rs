// SPDX-License-Identifier: GPL-2.0
//! What an EBB costs in instructions, from the first of the entry to `rfebb`, as PMC5 counts them.
//!
//! The counters stand still in a real handler, which the overflow and the entry see to. So the
//! handler is branched to with the counters running. It makes PMC1 negative with PMAE off, so that
//! nothing raises an alert, but the entry has a counter to reload as after an overflow.

use ebb::Pmc;
use ebb::Save;
use ebb::pmc::OVERFLOW;
use ebb::reg::Mmcr0;
use ebb::spr;
use ebb_selftests::session;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;

/// `PM_RUN_INST_CMPL`, which PMC5 counts.
const INSTRUCTIONS: u64 = 0x500fa;
const ROUNDS: u32 = 100;
/// The emulator counts the kernel's instructions too: the least of so many runs has none.
const RUNS: u32 = 20;

/// FC and PMAE off, PMC1 negative.
fn overflow(_: &mut ebb::EbbContext<'_>) {
    Mmcr0(0).write();
    Pmc::Pmc1.write(OVERFLOW);
}

/// An entry that does nothing. GE stays off: PMEO is still set, and would be an EBB again.
#[unsafe(naked)]
unsafe extern "C" fn empty_entry() {
    core::arch::naked_asm!("rfebb 0")
}

fn count() -> u32 {
    let run = |_| {
        Pmc::Pmc5.write(0);
        for _ in 0..ROUNDS {
            // SAFETY: both entries that `cost` has put into EBBHR keep all registers.
            unsafe { ebb::branch_to_ebbhr() };
        }
        Pmc::Pmc5.read()
    };
    (0..RUNS).map(run).fold(u32::MAX, u32::min)
}

/// Instructions from entry to rfebb, those of the handler among them.
fn cost(save: Save) -> Result<u32, Failure> {
    let event = session::schedule(&ebb::event(INSTRUCTIONS))?;
    // SAFETY: the handler keeps to its context.
    unsafe { ebb::install_saving(save, overflow)? };
    ebb::set_period(Pmc::Pmc1, 1 << 31)?;
    Mmcr0(0).write();
    let full = count();
    let reloaded = Pmc::Pmc1.read();
    let ebbhr = session::ebb_registers()[1];
    // SAFETY: the entry changes no register and returns by rfebb.
    unsafe { spr::write::<{ spr::EBBHR }>(empty_entry as *const () as u64) };
    let empty = count();
    // SAFETY: as it was.
    unsafe { spr::write::<{ spr::EBBHR }>(ebbhr) };
    event.close();
    check!(reloaded == 0, "PMC1 was not reloaded: {reloaded:#x}");
    // Rounded, as the emulator counts by blocks, and forgets some at their ends; the empty entry's
    // own rfebb was taken off with the rest.
    Ok((full.saturating_sub(empty) + ROUNDS / 2) / ROUNDS + 1)
}

fn gprs() -> Outcome {
    let cost = cost(Save::Gprs)?;
    println!("{cost} instructions");
    check!((80..=110).contains(&cost), "{cost} instructions");
    Ok(())
}

fn all_registers() -> Outcome {
    let cost = cost(Save::Full)?;
    println!("{cost} instructions");
    check!((200..=330).contains(&cost), "{cost} instructions");
    Ok(())
}

ktap::main! {
    first: session::require_ebb;
    gprs, all_registers,
}
