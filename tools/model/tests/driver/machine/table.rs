// SPDX-License-Identifier: GPL-2.0

//! The table that is printed for a failing history: accesses to registers and other events.

use super::with_machine;
use pmu_model::spr;

/// A line of the table.
#[derive(Clone, Debug)]
pub enum Entry {
    /// CPU, whether by a program, whether a write, the register's number, the value, the present
    /// MMCR0.
    Access(usize, bool, bool, u32, u64, u64),
    /// Text about other events.
    Note(String),
}

/// Adds a line of text to the table, if there is one.
pub fn note(text: impl FnOnce() -> String) {
    with_machine(|machine| {
        if let Some(log) = &mut machine.log {
            log.push(Entry::Note(text()));
        }
    });
}

/// Adds an access to a register to the table, if there is one.
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
