// SPDX-License-Identifier: GPL-2.0
//! The ways in which a process passes the time until its EBBs come.

/// An enum with a list of its values.
macro_rules! listed {
    ($(#[$doc:meta])* $name:ident { $($(#[$each:meta])* $value:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$each])* $value),* }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$value),*];
        }
    };
}
pub(crate) use listed;

listed! {
    /// A way to pass the time.
    Way {
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
}

impl Way {
    /// The one of that name, as `--only` has it.
    pub fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|way| format!("{way:?}") == name)
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
