// SPDX-License-Identifier: GPL-2.0

//! Rules of the model that a test breaks on purpose, to see who notices.
//!
//! Two facilities agree by a wrong rule, so who compares a program's registers with those of
//! another facility would not.

use std::cell::Cell;

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// PMC6 counts a cycle more for each instruction.
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
    /// All of them.
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

    /// Whether the rule is broken.
    pub(crate) fn is_on(self) -> bool {
        BROKEN.get() == Some(self)
    }
}

thread_local! {
    static BROKEN: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// Breaks a rule for each facility of this thread, or none.
pub fn break_rule(fault: Option<Fault>) {
    BROKEN.set(fault);
}
