// SPDX-License-Identifier: GPL-2.0
//! The ways in which a process passes the time until its EBBs come.

/// A way to pass the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Way {
    /// Work in user mode only.
    Work,
    /// Short system calls, so that many overflows happen in the kernel.
    Calls,
    /// Gives the CPU to others all the time.
    Yield,
    /// Sleeps, so that the event leaves the PMU.
    Sleep,
    /// Has EBBs off until the counter has overflowed, and then turns them on.
    Gate,
    /// The same, and gives the CPU away in between.
    GateYield,
    /// Many EBBs in a row.
    Stream,
    /// Moves to another CPU again and again.
    Migrate,
    /// Disables and enables its event.
    Disable,
    /// Disables and enables all its events by prctl.
    Prctl,
    /// Among signals to itself.
    Signal,
    /// Forks children that end at once.
    Fork,
    /// Forks children with EBBs of their own, which end while one is due.
    Mortal,
    /// Closes its event while EBBs are due, and opens another one.
    Reopen,
    /// Closes its event in the same state while EBBs are off.
    ReopenGate,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Work,
        Self::Calls,
        Self::Yield,
        Self::Sleep,
        Self::Gate,
        Self::GateYield,
        Self::Stream,
        Self::Migrate,
        Self::Disable,
        Self::Prctl,
        Self::Signal,
        Self::Fork,
        Self::Mortal,
        Self::Reopen,
        Self::ReopenGate,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Calls => "calls",
            Self::Yield => "yield",
            Self::Sleep => "sleep",
            Self::Gate => "gate",
            Self::GateYield => "gate-yield",
            Self::Stream => "stream",
            Self::Migrate => "migrate",
            Self::Disable => "disable",
            Self::Prctl => "prctl",
            Self::Signal => "signal",
            Self::Fork => "fork",
            Self::Mortal => "mortal",
            Self::Reopen => "reopen",
            Self::ReopenGate => "reopen-gate",
        }
    }

    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.name() == name)
    }

    /// EBBs that a round asks for.
    pub fn ebbs(self) -> u32 {
        match self {
            Self::Stream => 50,
            Self::Reopen | Self::ReopenGate => 0,
            _ => 1,
        }
    }

    /// Steps beyond those that the counter needs before the way is given up.
    pub fn steps(self) -> u32 {
        match self {
            Self::Fork | Self::Mortal => 20,
            _ => 300,
        }
    }
}
