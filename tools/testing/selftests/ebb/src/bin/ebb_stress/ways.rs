// SPDX-License-Identifier: GPL-2.0
//! Ways in which a process passes the time until its EBBs come.

/// Defines an enum with a list of its values.
macro_rules! listed {
    ($(#[$doc:meta])* $name:ident { $($(#[$each:meta])* $value:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$each])* $value),* }

        impl $name {
            /// All values.
            pub const ALL: &[Self] = &[$(Self::$value),*];
        }
    };
}
pub(crate) use listed;

listed! {
    /// Way to pass the time.
    Way {
        /// Works in user mode only.
        Work,
        /// Makes short system calls, so that many overflows happen in the kernel.
        Calls,
        /// Yields the CPU all the time.
        Yield,
        /// Sleeps, so that the event leaves the PMU.
        Sleep,
        /// Turns EBBs off until the counter has overflowed, and then on.
        Gate,
        /// Turns EBBs off until the counter has overflowed, and yields the CPU in the meantime.
        GateYield,
        /// Takes many EBBs in a row.
        Stream,
        /// Moves to other CPUs repeatedly.
        Migrate,
        /// Disables and enables its event.
        Disable,
        /// Disables and enables all its events with prctl.
        Prctl,
        /// Sends signals to itself.
        Signal,
        /// Forks children that end at once.
        Fork,
        /// Forks children with EBBs of their own, which end while one is pending.
        Mortal,
        /// Closes its event while EBBs are pending, and opens another one.
        Reopen,
        /// Closes its event while EBBs are pending and turned off, and opens another one.
        ReopenGate,
    }
}

impl Way {
    /// Returns the way with this name, as `--only` uses it.
    pub fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|way| format!("{way:?}") == name)
    }

    /// Returns how many EBBs a round requests.
    pub fn ebbs(self) -> u32 {
        match self {
            Self::Stream => 50,
            Self::Reopen | Self::ReopenGate => 0,
            _ => 1,
        }
    }

    /// Returns the number of steps, beyond those that the counter needs, before the way is given
    /// up.
    pub fn steps(self) -> u32 {
        match self {
            Self::Fork | Self::Mortal => 20,
            _ => 300,
        }
    }
}
