// SPDX-License-Identifier: GPL-2.0

//! The solver's answer: each event's counter, and the values of the control registers.

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
        request::Platform, //
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
/// One word, so that a copy is cheap. Byte `i` (byte 0 is the lowest) has the counter of event `i`:
/// 1 for PMC1, or 0 after the last event. There are at most six events, so byte 6 is always 0. Byte
/// 7 has the counters as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pmcs(u64);

impl Pmcs {
    /// Position of the set of counters.
    const SET: u32 = 56;

    /// Stores the counter of event `index`. The events before it must be stored already.
    #[inline]
    pub(super) fn set(&mut self, index: usize, pmc: Pmc) {
        // CAST: Counter numbers are at most 6, and indexes at most 5.
        self.0 |= (pmc.number() as u64).wrapping_shl(8u32.wrapping_mul(index as u32));
        self.0 |= u64::from(pmc.bit()).wrapping_shl(Self::SET);
    }

    /// Returns the counters as a set, one bit each; PMC1 has the lowest bit.
    #[inline]
    pub const fn as_set(self) -> u8 {
        // CAST: Only the highest byte remains after the shift.
        self.0.wrapping_shr(Self::SET) as u8
    }

    /// Iterates over the counters, in the order of the events.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = Pmc> + Clone {
        let mut remaining = self.0;
        iter::from_fn(move || {
            let pmc = Pmc::from_number(remaining & 0xff);
            remaining >>= 8;
            pmc
        })
    }
}

/// The counters of a group's events, and the control registers for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// The events' counters.
    pub pmcs: Pmcs,
    /// Images of the control registers.
    pub mmcr: Mmcr,
    /// The states in which all events are frozen, in the format of one counter's MMCR2 field.
    pub(super) frozen: u64,
}

impl Assignment {
    /// Returns whether no event counts in the kernel or in a hypervisor.
    #[inline]
    pub const fn is_frozen_in_kernel(&self, platform: Platform) -> bool {
        let kernel = if platform.hypervisor_mode {
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
    /// Returns each event's counter, and the code that the event has there: the requested code or
    /// an alternative. The order is that of the requests.
    pub fn placements(&self) -> impl Iterator<Item = (Pmc, EventCode)> + '_ {
        self.pmcs.iter().zip(self.codes.iter().copied())
    }

    /// Returns the demand of each event with that code, in the same order.
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
