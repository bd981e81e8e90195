// SPDX-License-Identifier: GPL-2.0

//! The control registers' images for a group of events.
//!
//! Invariant: the group's events agree on every setting that they share, so no field is ever the OR
//! of two different values.

use super::{
    super::{
        models::model::CpuModel,
        pmc::Pmc,
        registers::{
            of_pmc,
            MMCR2_FREEZE,
            MMCR2_L2L3_SEL,
            MMCR3_SOURCE,
            MMCRA_SDAR_MODE, //
        }, //
    },
    demand::Demand,
    mmcr::{
        branches,
        continuous_sampling,
        counting,
        frozen_for_all,
        idle_neighbour,
        Mmcr, //
    }, //
};

/// The images of a group while its events are added.
#[derive(Default)]
pub(super) struct Images {
    mmcr: Mmcr,
    /// The counters in use, a bit each.
    used: u8,
    /// The states in which an event counts.
    counted: u64,
    /// The BHRB filter of the event that was added last, among those that want one.
    ifm: Option<u64>,
    /// Whether events want different BHRB filters.
    ifms_differ: bool,
}

impl Images {
    /// Adds an event with the demand `demand` on a counter.
    #[inline]
    pub(super) fn add(&mut self, model: &CpuModel, demand: &Demand, pmc: Pmc) {
        let frozen = demand.get(Demand::FREEZE);
        self.used |= pmc.bit();
        self.mmcr.mmcr1 |= demand.mmcr1;
        self.mmcr.mmcr2 |= of_pmc(MMCR2_FREEZE, pmc).prep(frozen);
        self.mmcr.mmcra |= demand.mmcra;
        self.counted |= !frozen;
        if demand.is_simple() {
            return;
        }
        self.mmcr.mmcr1 |= demand.counter_select(model, pmc);
        self.mmcr.mmcr3 |= of_pmc(MMCR3_SOURCE, pmc).prep(demand.get(Demand::SOURCE));
        self.mmcr.mmcr2 |= MMCR2_L2L3_SEL.prep(demand.get(Demand::L2L3_SEL));
        if let Some(ifm) = demand.branch_ifm() {
            self.ifms_differ |= self.ifm.is_some_and(|other| other != ifm);
            self.ifm = Some(ifm);
        }
    }

    /// Returns the states in which all events are frozen, in the format of one counter's MMCR2
    /// field.
    #[inline]
    pub(super) fn frozen(&self) -> u64 {
        // Without events there is nothing to freeze.
        if self.used == 0 {
            0
        } else {
            !self.counted
        }
    }

    /// Returns the complete images.
    #[inline]
    pub(super) fn finish(self, model: &CpuModel) -> Mmcr {
        let mut mmcr = self.mmcr;
        let common = self.frozen();
        mmcr.mmcr0 = counting(model, self.used) | frozen_for_all(model.isa, common);
        mmcr.mmcr2 |= idle_neighbour(self.used, common);
        let ifm = self.ifm.filter(|_| !self.ifms_differ);
        mmcr.mmcra |= branches(model.isa, self.ifm.is_some(), ifm.unwrap_or(0));
        // Without events there is nothing to sample.
        if self.used != 0 {
            let sdar_mode = continuous_sampling(model.isa, mmcr.mmcra);
            mmcr.mmcra &= !MMCRA_SDAR_MODE.mask();
            mmcr.mmcra |= MMCRA_SDAR_MODE.prep(sdar_mode);
        }
        mmcr
    }
}
