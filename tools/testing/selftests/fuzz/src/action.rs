// SPDX-License-Identifier: GPL-2.0
//! Actions that a process can take in a step, and how often it takes each.

use pmu_selftests::random::Random;

macro_rules! actions {
    ($($name:ident $weight:literal,)*) => {
        /// Action of a step, chosen as often as its weight.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Action { $($name),* }

        const ACTIONS: &[(Action, u64)] = &[$((Action::$name, $weight)),*];
    };
}

actions! {
    Open 12,
    Close 2,
    Control 8,
    ControlAll 1,
    Read 3,
    Map 4,
    Look 3,
    Notify 1,
    Mark 6,
    Arm 8,
    Registers 5,
    Branches 6,
    ClearBranches 1,
    Return 2,
    Bescr 2,
    Address 2,
    Work 5,
    Calls 2,
    Yield 2,
    Sleep 1,
    Move 2,
    Timer 1,
    Signal 1,
    // Only processes that are not children themselves do the following.
    Fork 2,
    Exec 1,
    User 1,
    Thread 1,
    Trace 1,
}

impl Action {
    /// Returns a random action.
    pub fn any(random: &mut Random) -> Self {
        let mut number = random.below(ACTIONS.iter().map(|(_, weight)| weight).sum());
        for &(action, weight) in ACTIONS {
            if number < weight {
                return action;
            }
            number -= weight;
        }
        Self::Work
    }
}
