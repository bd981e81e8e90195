// SPDX-License-Identifier: GPL-2.0

//! Rules of the model that a test breaks on purpose, to see which check detects it.
//!
//! Two facilities that share a wrong rule agree, so comparing a program's registers with those of
//! another facility does not detect it.

use std::cell::Cell;

/// A rule that can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// PMC6 counts one cycle too many for each instruction.
    Cycles,
    /// An event-based exception leaves BESCR\[PME\] set.
    Exception,
    /// An event-based branch leaves BESCR\[GE\] set.
    Branch,
    /// EBBRR gets the address of the instruction after the next one.
    ReturnAddress,
    /// `rfebb` leaves BESCR\[GE\] off.
    Return,
    /// Counters count in programs although MMCR0\[FC\] is set.
    Frozen,
    /// A counter counts in a program although MMCR2\[FCnP0\] is set.
    FrozenOne,
    /// An enabled condition does not freeze the counters, whatever MMCR0\[FCECE\] says.
    Freeze,
    /// An alert leaves MMCR0\[PMAE\] set.
    Alert,
}

impl Fault {
    /// All rules.
    pub const ALL: [Self; 9] = [
        Self::Cycles,
        Self::Exception,
        Self::Branch,
        Self::ReturnAddress,
        Self::Return,
        Self::Frozen,
        Self::FrozenOne,
        Self::Freeze,
        Self::Alert,
    ];

    /// Returns whether the rule is broken.
    pub(crate) fn is_on(self) -> bool {
        BROKEN.get() == Some(self)
    }
}

thread_local! {
    static BROKEN: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// Breaks a rule for all facilities of this thread, or with `None` restores all rules.
pub fn break_rule(fault: Option<Fault>) {
    BROKEN.set(fault);
}
