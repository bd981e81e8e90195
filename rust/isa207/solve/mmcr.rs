// SPDX-License-Identifier: GPL-2.0

//! The fields of the control registers, computed from requests and demands.
//!
//! Source: `isa207_compute_mmcr()` in the kernel's `arch/powerpc/perf/isa207-common.c`; for the
//! fields, see `registers.rs`.

use super::{
    super::{
        codes::event_code::EventCode,
        isa::Isa,
        models::model::CpuModel,
        pmc::Pmc,
        registers::*,
        request::{
            Exclude,
            Platform,
            Request, //
        }, //
    },
    threshold::Threshold, //
};

/// Images of the monitor mode control registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mmcr {
    /// MMCR0 without the bits that start and stop the PMU (FC, PMAE, FCECE) and without those for
    /// EBBs; the driver adds both.
    pub mmcr0: u64,
    /// MMCR1: the events of PMC1 to PMC4.
    pub mmcr1: u64,
    /// MMCR2: the states in which each counter is frozen.
    pub mmcr2: u64,
    /// MMCRA: sampling, thresholds, branch recording.
    pub mmcra: u64,
    /// MMCR3 (v3.1): data source match of PMC1 to PMC4. 0 on CPUs without it.
    pub mmcr3: u64,
}

impl Mmcr {
    /// Returns the BHRB filter in force, 0 to 3. It is also 0 if branch stacks want different
    /// filters. So a branch stack needs no software filter only if this filter is the one that it
    /// asked for and that filter is [exact](super::super::HardwareFilter::exact).
    pub const fn ifm(&self) -> u8 {
        // CAST: The field has two bits.
        MMCRA_IFM.get(self.mmcra) as u8
    }

    /// Returns whether an event has a threshold. Then the threshold counter in MMCRA runs, and
    /// MMCRA keeps the latency of the last sample until it is written.
    #[inline]
    pub const fn has_threshold(&self) -> bool {
        MMCRA_THR_SEL.is_set(self.mmcra)
    }

    /// Returns whether the BHRB may hold branches of hypervisor state, which on bare metal means
    /// those of the kernel. Real-mode addresses of that state look like addresses of programs.
    pub fn records_hypervisor(&self, isa: Isa) -> bool {
        isa < Isa::V31 && !MMCR0_FCH.is_set(self.mmcr0)
    }
}

/// PMC5 and PMC6 as a set.
const FIXED_PMCS: u8 = Pmc::Pmc5.bit() | Pmc::Pmc6.bit();

/// Returns MMCR0's bits for alerts, and for freezing PMC5 and PMC6.
pub(super) fn counting(model: &CpuModel, used: u8) -> u64 {
    let pmc1 = Pmc::Pmc1.bit();
    MMCR0_PMC1CE.prep((used & pmc1 != 0).into())
        | MMCR0_PMCJCE.prep((used & !pmc1 != 0).into())
        | MMCR0_FC56.prep((used & FIXED_PMCS == 0).into())
        | MMCR0_CC56RUN.prep(model.cc56run.into())
        | MMCR0_PMCCEXT.prep((model.isa >= Isa::V31).into())
}

/// Returns MMCR1's fields for one of PMC1 to PMC4.
#[inline]
pub(super) fn counter_select(isa: Isa, pmc: Pmc, unit: u64, combine: u64, pmcxsel: u64) -> u64 {
    of_pmc(MMCR1_UNIT, pmc).prep(unit)
        | of_pmc(mmcr1_combine(isa), pmc).prep(combine)
        | of_pmc(MMCR1_PMCSEL, pmc).prep(pmcxsel)
}

/// Returns MMCR1's settings that PMC1 to PMC4 share.
pub(super) fn shared_select(model: &CpuModel, code: EventCode) -> u64 {
    // POWER8's select has four bits; the lower two are 0 unless they are the L1 qualifier.
    let mut mmcr1 = MMCR1_L1_QUAL.prep(model.layout.cache_sel.get(code.0));
    mmcr1 |= MMCR1_RADIX_SCOPE.prep(model.layout.radix_scope.get(code.0));
    if model.is_fab_match(code) {
        mmcr1 |= MMCR1_FAB.prep(EventCode::THRESH_CTL.get(code.0));
    }
    mmcr1
}

/// Returns MMCR0's freeze bits for the states in which all events are frozen.
///
/// MMCR2 freezes the counters already. Before v3.1 the BHRB records in every state in which the PMU
/// is not frozen, so without these bits a program that reads the BHRB with `mfbhrbe` would see
/// branches of the kernel. Source: Power ISA v2.07B and v3.0B Book III, MMCR0\[FCS\] and \[FCH\].
pub(super) fn frozen_for_all(isa: Isa, common: u64) -> u64 {
    if isa >= Isa::V31 {
        return 0;
    }
    MMCR0_FCS.prep((common & FREEZE_SUPERVISOR != 0).into())
        | MMCR0_FCH.prep((common & FREEZE_HYPERVISOR != 0).into())
}

/// Returns MMCR2's freeze bits for PMC5 or PMC6 if only the other of the two has an event.
///
/// MMCR0\[FC56\] stops both or none. A program with an EBB group can read both: without these bits
/// the counter without an event would reveal how many instructions or cycles the kernel took.
pub(super) fn idle_neighbour(used: u8, common: u64) -> u64 {
    let [.., pmc5, pmc6] = Pmc::ALL;
    let idle = match (used & pmc5.bit() != 0, used & pmc6.bit() != 0) {
        (true, false) => pmc6,
        (false, true) => pmc5,
        _ => return 0,
    };
    of_pmc(MMCR2_FREEZE, idle).prep(common)
}

/// Returns the states in which MMCR2 freezes the counter of `req`.
pub(super) fn frozen_states(isa: Isa, req: &Request, platform: Platform) -> u64 {
    let Exclude {
        user,
        kernel,
        hv,
        idle,
    } = req.exclude;
    let mut states: u64 = 0;
    if user {
        states |= FREEZE_PROBLEM;
    }
    if idle {
        states |= FREEZE_WAIT;
    }
    if platform.hypervisor_mode {
        // The kernel is the hypervisor, and MSR[HV] stays set in its programs. Ignore exclude_hv.
        if user {
            states |= FREEZE_PROBLEM_HV;
        }
        if kernel {
            states |= FREEZE_HYPERVISOR;
        }
    } else {
        if kernel {
            states |= FREEZE_SUPERVISOR;
        }
        // An event that may not see the kernel's branches must not see the hypervisor's either.
        if hv || kernel && records_all_states(isa, req) {
            states |= FREEZE_HYPERVISOR;
        }
    }
    states
}

/// Returns whether the event's owner would see branches of every state in which the PMU is not
/// frozen. Before v3.1 this holds for stacks of user branches, and for `mfbhrbe` while an EBB group
/// is on the PMU.
fn records_all_states(isa: Isa, req: &Request) -> bool {
    let stacks = req.branch_ifm().is_some() && !req.exclude.user;
    isa < Isa::V31 && (req.event_code().is_ebb() || stacks)
}

/// Returns MMCRA's fields for an event's random sampling, threshold and SDAR mode.
#[inline]
pub(super) fn sampling(model: &CpuModel, threshold: Threshold, code: EventCode) -> u64 {
    marking(code)
        | threshold.mmcra(model.isa)
        | MMCRA_SDAR_MODE.prep(model.layout.sdar_mode.get(code.0))
}

/// Returns MMCRA's fields for random sampling.
fn marking(code: EventCode) -> u64 {
    if !code.is_marked() {
        return 0;
    }
    // The code's five bits are eligibility, then mode.
    MMCRA_SAMPLE_ENABLE.prep(1)
        | MMCRA_SAMP_MODE.prep(code.sample_mode())
        | MMCRA_SAMP_ELIG.prep(code.sample_mode() >> 2)
}

/// Returns MMCRA's fields for the BHRB: off or on, and the filter `ifm` (0 if events want different
/// filters).
pub(super) fn branches(isa: Isa, wanted: bool, ifm: u64) -> u64 {
    let off = isa >= Isa::V31 && !wanted;
    MMCRA_BHRBRD.prep(off.into()) | MMCRA_IFM.prep(ifm)
}

/// Returns the SDAR mode for continuous sampling, given the requested modes in `mmcra`. From POWER9
/// on a marked event turns continuous updates off, because marking updates SDAR.
pub(super) fn continuous_sampling(isa: Isa, mmcra: u64) -> u64 {
    match MMCRA_SDAR_MODE.get(mmcra) {
        _ if isa == Isa::V207 => SDAR_MODE_TLB,
        _ if MMCRA_SAMPLE_ENABLE.is_set(mmcra) => 0,
        0 => SDAR_MODE_DCACHE,
        requested => requested,
    }
}
