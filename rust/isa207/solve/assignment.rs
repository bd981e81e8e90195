// SPDX-License-Identifier: GPL-2.0

//! What the solver answers: who counts where, and what the control registers get.

use super::{
    super::{
        codes::event_code::EventCode,
        pmc::{
            Pmc,
            COUNTERS, //
        }, //
    },
    mmcr::Mmcr, //
};
use core::ops::Deref;

/// The counters of a group's events, and the control registers for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Number of events; the array's entries from there on mean nothing.
    pub(super) len: u8,
    pub(super) pmcs: [Pmc; COUNTERS],
    /// Images of the control registers.
    pub mmcr: Mmcr,
}

impl Assignment {
    /// Each event's counter, in the order of the group.
    #[inline]
    pub fn pmcs(&self) -> &[Pmc] {
        self.pmcs.get(..self.len.into()).unwrap_or(&[])
    }
}

/// A solved group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solution {
    pub(super) assignment: Assignment,
    pub(super) codes: [EventCode; COUNTERS],
}

impl Solution {
    /// Each event's counter, and the code that it counts there: the one asked for or an
    /// alternative. In the order of the requests.
    pub fn placements(&self) -> impl Iterator<Item = (Pmc, EventCode)> + '_ {
        let both = self.pmcs().iter().zip(self.codes.iter());
        both.map(|(&pmc, &code)| (pmc, code))
    }
}

impl Deref for Solution {
    type Target = Assignment;

    fn deref(&self) -> &Assignment {
        &self.assignment
    }
}
