// SPDX-License-Identifier: GPL-2.0

//! The table of accesses to registers, and of what else happens, that a history that fails prints.

use super::with_machine;
use pmu_model::spr;

/// An access to a register, or something else that a reader of the table wants to know.
#[derive(Clone, Debug)]
pub enum Entry {
    /// CPU, whether a program's, whether a write, the register's number, the value, MMCR0 then.
    Access(usize, bool, bool, u32, u64, u64),
    /// What else happens.
    Note(String),
}

/// Writes a line into the table of accesses, if there is one.
pub fn note(text: impl FnOnce() -> String) {
    with_machine(|machine| {
        if let Some(log) = &mut machine.log {
            log.push(Entry::Note(text()));
        }
    });
}

/// Writes an access to a register into that table.
pub fn note_access(of_program: bool, write: bool, number: u32, value: u64) {
    with_machine(|machine| {
        let (cpu, current) = (&machine.cpus[machine.current], machine.current);
        let mmcr0 = cpu.facility.mfspr(spr::MMCR0);
        if let Some(log) = &mut machine.log {
            log.push(Entry::Access(
                current, of_program, write, number, value, mmcr0,
            ));
        }
    });
}
