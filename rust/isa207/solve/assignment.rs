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

/// A solved group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Number of events; the arrays' entries from there on mean nothing.
    pub(super) len: usize,
    pub(super) pmcs: [Pmc; COUNTERS],
    pub(super) codes: [EventCode; COUNTERS],
    /// Images of the control registers.
    pub mmcr: Mmcr,
}

impl Assignment {
    /// Each event's counter, and the code that it counts there: the one asked for or an
    /// alternative. In the order of the requests.
    pub fn placements(&self) -> impl Iterator<Item = (Pmc, EventCode)> + '_ {
        let both = self.pmcs.iter().zip(self.codes.iter());
        both.map(|(&pmc, &code)| (pmc, code)).take(self.len)
    }
}
