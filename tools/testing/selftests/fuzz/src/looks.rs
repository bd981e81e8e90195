// SPDX-License-Identifier: GPL-2.0
//! What a process saw last, for who looks into a failure: the process alone knows what it was about.

use std::collections::VecDeque;
use std::fmt;

use crate::action::Action;
use crate::events::Events;
use crate::marks;
use crate::registers;
use crate::view::Counters;

/// Looks that are kept.
const KEPT: usize = 8;

/// Where a look was.
struct Place {
    cpu: libc::c_int,
    /// For how long the thread had run, in nanoseconds.
    time: u64,
}

impl Place {
    fn here() -> Self {
        Self {
            // SAFETY: a question without pointers.
            cpu: unsafe { libc::sched_getcpu() },
            time: marks::time_run(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "on CPU {}, run {} ns", self.cpu, self.time)
    }
}

struct Look {
    step: u64,
    action: Action,
    place: Place,
    counters: Counters,
}

/// The last looks at the counters, the newest first.
pub struct Looks(VecDeque<Look>);

impl Looks {
    /// None yet.
    pub fn new() -> Self {
        Self(VecDeque::with_capacity(KEPT))
    }

    /// After a step.
    pub fn add(&mut self, step: u64, action: Action, counters: Counters) {
        self.0.truncate(KEPT - 1);
        self.0.push_front(Look {
            step,
            action,
            place: Place::here(),
            counters,
        });
    }

    /// All there is to say now and of the time before, on lines of their own.
    pub fn describe(&self, events: &Events) -> String {
        let mut text = format!("\n  now {}:", Place::here());
        for register in registers::all() {
            if let Some(value) = register.read() {
                text += &format!(" {} {value:x}", register.name);
            }
        }
        text += &format!("\n  events:{}", events.describe());
        for look in &self.0 {
            let (step, action) = (look.step, look.action);
            text += &format!(
                "\n  after step {step}, {action:?}, {}:{}",
                look.place, look.counters
            );
        }
        text
    }
}
