// SPDX-License-Identifier: GPL-2.0

//! What the solver answers: who counts where, and what the control registers get.

use super::{
    super::{
        codes::event_code::EventCode,
        pmc::{
            Pmc,
            COUNTERS, //
        },
        registers::{
            FREEZE_HYPERVISOR,
            FREEZE_SUPERVISOR, //
        },
        request::Machine, //
    },
    demand::Demand,
    mmcr::Mmcr, //
};
use core::{
    iter,
    ops::Deref, //
};

/// The counters of a group's events, in the order of the group.
///
/// A byte has an event's counter, 1 for PMC1, the lowest that of the first event; 0 ends them, if
/// only the seventh. The eighth has the counters as a set. So they are copied as one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pmcs(u64);

impl Pmcs {
    /// The counters as a set.
    const SET: u32 = 56;

    /// Puts the counter of event `index` in, the events before it being in.
    #[inline]
    pub(super) fn set(&mut self, index: usize, pmc: Pmc) {
        // CAST: Small numbers.
        self.0 |= (pmc.number() as u64).wrapping_shl(8u32.wrapping_mul(index as u32));
        self.0 |= u64::from(pmc.bit()).wrapping_shl(Self::SET);
    }

    /// The counters, a bit each, PMC1 in the lowest place.
    #[inline]
    pub const fn as_set(self) -> u8 {
        // CAST: The highest byte.
        self.0.wrapping_shr(Self::SET) as u8
    }

    /// The counters.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = Pmc> + Clone {
        let mut left = self.0;
        iter::from_fn(move || {
            let pmc = Pmc::from_number(left & 0xff);
            left >>= 8;
            pmc
        })
    }
}

/// The counters of a group's events, and the control registers for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// Each event's counter.
    pub pmcs: Pmcs,
    /// Images of the control registers.
    pub mmcr: Mmcr,
    /// The states in which all events are frozen, as MMCR2 has them for a counter.
    pub(super) frozen: u64,
}

impl Assignment {
    /// Whether no event counts in the kernel or in a hypervisor.
    #[inline]
    pub const fn is_frozen_in_kernel(&self, machine: Machine) -> bool {
        let kernel = if machine.hypervisor_mode {
            FREEZE_HYPERVISOR
        } else {
            FREEZE_HYPERVISOR | FREEZE_SUPERVISOR
        };
        self.frozen & kernel == kernel
    }
}

/// A solved group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solution {
    pub(super) assignment: Assignment,
    pub(super) codes: [EventCode; COUNTERS],
    pub(super) demands: [Demand; COUNTERS],
}

impl Solution {
    /// Each event's counter, and the code that it counts there: the one asked for or an
    /// alternative. In the order of the requests.
    pub fn placements(&self) -> impl Iterator<Item = (Pmc, EventCode)> + '_ {
        self.pmcs.iter().zip(self.codes.iter().copied())
    }

    /// Returns what each event asks of the PMU by that code, in the same order.
    pub fn demands(&self) -> impl Iterator<Item = Demand> + '_ {
        self.pmcs
            .iter()
            .zip(&self.demands)
            .map(|(_, demand)| *demand)
    }
}

impl Deref for Solution {
    type Target = Assignment;

    fn deref(&self) -> &Assignment {
        &self.assignment
    }
}
