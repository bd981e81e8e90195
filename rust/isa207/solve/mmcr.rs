// SPDX-License-Identifier: GPL-2.0

//! The control registers' images for a solved group.
//!
//! Invariant: as the group's events agree on every setting they share, no field is ever the OR of
//! two different values.
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
            Machine,
            Request, //
        }, //
    },
    constraint::Constraints,
    demand::Demand,
    threshold::Threshold, //
};

/// Images of the monitor mode control registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mmcr {
    /// MMCR0 without what starts and stops the PMU (FC, PMAE, FCECE) and what EBBs need, which the
    /// driver adds.
    pub mmcr0: u64,
    /// MMCR1: what PMC1 to PMC4 count.
    pub mmcr1: u64,
    /// MMCR2: the states in which each counter is frozen.
    pub mmcr2: u64,
    /// MMCRA: sampling, thresholds, branch recording.
    pub mmcra: u64,
    /// MMCR3 (v3.1): data source match of PMC1 to PMC4. 0 on CPUs without it.
    pub mmcr3: u64,
}

impl Mmcr {
    /// The BHRB filter in force, 0 to 3. 0 as well if branch stacks want different ones, so a
    /// branch stack need not be filtered only if this is the filter that it asked for and that
    /// filter is [exact](super::super::HardwareFilter::exact).
    pub const fn ifm(&self) -> u8 {
        // CAST: two bits.
        MMCRA_IFM.get(self.mmcra) as u8
    }

    /// Whether an event has a threshold. Then MMCRA counts, and the latency of what was sampled
    /// last stays there until it is written.
    #[inline]
    pub const fn has_threshold(&self) -> bool {
        MMCRA_THR_SEL.is_set(self.mmcra)
    }

    /// The images of a [separable](super::super::Assignment::is_separable) group of these when the
    /// events on the counters `gone` left it and those on `used`, at least one, stay: as if these
    /// had been placed there alone. Both have a bit for each counter, PMC1 the lowest.
    #[inline]
    pub fn without(&self, isa: Isa, gone: u8, used: u8) -> Self {
        let selects = match isa {
            Isa::V207 => &SELECTS_V207,
            Isa::V300 | Isa::V31 => &SELECTS_V300,
        };
        let mut mmcr = *self;
        mmcr.mmcr0 = mmcr.mmcr0 & !IN_USE | in_use(used);
        let mut left = gone;
        while let Some(pmc) = Pmc::lowest(left & Constraints::PROGRAMMABLE_PMCS) {
            left &= left.wrapping_sub(1);
            mmcr.mmcr1 &= !selects.get(pmc.index()).map_or(0, |mask| *mask);
            mmcr.mmcr2 &= !of_pmc(MMCR2_FREEZE, pmc).mask();
        }
        // PMC5 and PMC6 are frozen in the same states as all others while one of them is in use:
        // if not for its event, then as its neighbour.
        if used & FIXED_PMCS == 0 {
            mmcr.mmcr2 &= !FREEZE_FIXED;
        }
        mmcr
    }

    /// Whether the BHRB may hold branches of hypervisor state, which on bare metal is the kernel's.
    /// In real mode their addresses look like those of programs.
    pub fn records_hypervisor(&self, isa: Isa) -> bool {
        isa < Isa::V31 && !MMCR0_FCH.is_set(self.mmcr0)
    }
}

/// PMC5 and PMC6 as a set.
const FIXED_PMCS: u8 = Pmc::Pmc5.bit() | Pmc::Pmc6.bit();

/// MMCR2: the states in which these are frozen.
const FREEZE_FIXED: u64 =
    of_pmc(MMCR2_FREEZE, Pmc::Pmc5).mask() | of_pmc(MMCR2_FREEZE, Pmc::Pmc6).mask();

/// MMCR0: what depends on the counters in use.
const IN_USE: u64 = MMCR0_PMC1CE.mask() | MMCR0_PMCJCE.mask() | MMCR0_FC56.mask();

/// MMCR1: what each of PMC1 to PMC4 counts, in v2.07 and since v3.0, which v3.1 has not changed.
static SELECTS_V207: [u64; 4] = counter_selects(Isa::V207);
static SELECTS_V300: [u64; 4] = counter_selects(Isa::V300);

const fn counter_selects(isa: Isa) -> [u64; 4] {
    const fn select(isa: Isa, pmc: Pmc) -> u64 {
        of_pmc(MMCR1_UNIT, pmc).mask()
            | of_pmc(mmcr1_combine(isa), pmc).mask()
            | of_pmc(MMCR1_PMCSEL, pmc).mask()
    }
    [
        select(isa, Pmc::Pmc1),
        select(isa, Pmc::Pmc2),
        select(isa, Pmc::Pmc3),
        select(isa, Pmc::Pmc4),
    ]
}

/// MMCR1: what events on PMC1 to PMC4 share.
const SHARED_SELECTS: u64 = MMCR1_L1_QUAL.mask() | MMCR1_RADIX_SCOPE.mask() | MMCR1_FAB.mask();

/// The images of a group, as its events are added.
#[derive(Default)]
pub(super) struct Images {
    mmcr: Mmcr,
    /// The counters in use, a bit each.
    used: u8,
    /// The states in which an event counts.
    counted: u64,
    /// Those in which one is frozen.
    frozen_by_any: u64,
    /// Not 0: an event asks for what the PMU has only once, or for a data source.
    shared: u64,
    /// The BHRB filters that events want.
    ifm: Option<u64>,
    /// They want different ones.
    ifms_differ: bool,
}

impl Images {
    /// Adds an event, which asks for `demand`, on a counter.
    #[inline]
    pub(super) fn add(&mut self, model: &CpuModel, demand: &Demand, pmc: Pmc) {
        self.add_simple(demand, pmc);
        if demand.is_simple() {
            return;
        }
        self.mmcr.mmcr1 |= counter_select(model, pmc, demand);
        self.mmcr.mmcr3 |= of_pmc(MMCR3_SOURCE, pmc).prep(demand.get(Demand::SOURCE));
        self.mmcr.mmcr2 |= MMCR2_L2L3_SEL.prep(demand.get(Demand::L2L3_SEL));
        if let Some(ifm) = demand.branch_ifm() {
            self.ifms_differ |= self.ifm.is_some_and(|other| other != ifm);
            self.ifm = Some(ifm);
        }
    }

    /// As [`Images::add`], for a [simple](Demand::is_simple) demand.
    #[inline]
    pub(super) fn add_simple(&mut self, demand: &Demand, pmc: Pmc) {
        let frozen = demand.get(Demand::FREEZE);
        self.used |= pmc.bit();
        self.mmcr.mmcr1 |= demand.mmcr1;
        self.mmcr.mmcr2 |= of_pmc(MMCR2_FREEZE, pmc).prep(frozen);
        self.mmcr.mmcra |= demand.mmcra;
        self.counted |= !frozen;
        self.frozen_by_any |= frozen;
        self.shared |= demand.mmcr1 & SHARED_SELECTS | demand.mmcra | demand.shared();
    }

    /// Whether each event's part of the images lies in fields of its own counter, and all are
    /// frozen in the same states.
    #[inline]
    pub(super) fn are_separable(&self) -> bool {
        self.shared == 0 && self.frozen_by_any == self.frozen()
    }

    /// The states in which all events are frozen, as MMCR2 has them for a counter.
    #[inline]
    pub(super) fn frozen(&self) -> u64 {
        // Without events there is nothing to freeze.
        if self.used == 0 {
            0
        } else {
            !self.counted
        }
    }

    /// The images.
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

/// MMCR0: which counters raise alerts, and whether PMC5 and PMC6 run.
fn counting(model: &CpuModel, used: u8) -> u64 {
    let mmcr0 = in_use(used) | MMCR0_CC56RUN.prep(model.cc56run.into());
    mmcr0 | MMCR0_PMCCEXT.prep((model.isa >= Isa::V31).into())
}

/// The part of it that depends on the counters in use ([`IN_USE`]).
fn in_use(used: u8) -> u64 {
    let pmc1 = Pmc::Pmc1.bit();
    let mut mmcr0 = MMCR0_PMC1CE.prep((used & pmc1 != 0).into());
    mmcr0 |= MMCR0_PMCJCE.prep((used & !pmc1 != 0).into());
    mmcr0 | MMCR0_FC56.prep((used & FIXED_PMCS == 0).into())
}

/// MMCR1: what one of PMC1 to PMC4 counts.
#[inline(always)] // As Constraints::new().
pub(super) fn counter_select(model: &CpuModel, pmc: Pmc, demand: &Demand) -> u64 {
    of_pmc(MMCR1_UNIT, pmc).prep(demand.get(Demand::UNIT))
        | of_pmc(mmcr1_combine(model.isa), pmc).prep(demand.get(Demand::COMBINE))
        | of_pmc(MMCR1_PMCSEL, pmc).prep(demand.get(Demand::PMCXSEL))
}

/// MMCR1: the settings that PMC1 to PMC4 share.
pub(super) fn shared_select(model: &CpuModel, code: EventCode) -> u64 {
    // POWER8's select has four bits; the lower two are 0 unless they are this qualifier.
    let mut mmcr1 = MMCR1_L1_QUAL.prep(model.layout.cache_sel.get(code.0));
    mmcr1 |= MMCR1_RADIX_SCOPE.prep(model.layout.radix_scope.get(code.0));
    if model.is_fab_match(code) {
        mmcr1 |= MMCR1_FAB.prep(EventCode::THRESH_CTL.get(code.0));
    }
    mmcr1
}

/// MMCR0: the states in which all events are frozen.
///
/// MMCR2 freezes the counters already. Before v3.1 the BHRB records in every state in which the
/// PMU is not frozen, so without these bits a program that reads it with `mfbhrbe` sees branches
/// of the kernel. Source: Power ISA v2.07B and v3.0B Book III, MMCR0\[FCS\] and \[FCH\].
fn frozen_for_all(isa: Isa, common: u64) -> u64 {
    if isa >= Isa::V31 {
        return 0;
    }
    MMCR0_FCS.prep((common & FREEZE_SUPERVISOR != 0).into())
        | MMCR0_FCH.prep((common & FREEZE_HYPERVISOR != 0).into())
}

/// MMCR2: the states in which PMC5 or PMC6 is frozen while only the other one has an event.
///
/// MMCR0\[FC56\] stops both or none. A program with an EBB group reads both: without these bits the
/// one that has no event tells it how many instructions or cycles the kernel took.
fn idle_neighbour(used: u8, common: u64) -> u64 {
    let [.., pmc5, pmc6] = Pmc::ALL;
    let idle = match (used & pmc5.bit() != 0, used & pmc6.bit() != 0) {
        (true, false) => pmc6,
        (false, true) => pmc5,
        _ => return 0,
    };
    of_pmc(MMCR2_FREEZE, idle).prep(common)
}

/// MMCR2: the states in which a counter is frozen.
pub(super) fn frozen_states(isa: Isa, req: &Request, machine: Machine) -> u64 {
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
    if machine.hypervisor_mode {
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
        // Whoever may not see the kernel's branches gets none of the hypervisor's.
        if hv || kernel && records_all_states(isa, req) {
            states |= FREEZE_HYPERVISOR;
        }
    }
    states
}

/// Whether the event's owner sees branches of every state in which the PMU is not frozen: before
/// v3.1 in stacks of the program's branches, and with `mfbhrbe` as long as an EBB group is on the
/// PMU.
fn records_all_states(isa: Isa, req: &Request) -> bool {
    let stacks = req.branch_ifm().is_some() && !req.exclude.user;
    isa < Isa::V31 && (req.event_code().is_ebb() || stacks)
}

/// MMCRA: random sampling and the threshold of an event, and its SDAR mode.
#[inline(always)] // As Constraints::new().
pub(super) fn sampling(model: &CpuModel, threshold: Threshold, code: EventCode) -> u64 {
    marking(code)
        | threshold.mmcra(model.isa)
        | MMCRA_SDAR_MODE.prep(model.layout.sdar_mode.get(code.0))
}

/// MMCRA: random sampling.
fn marking(code: EventCode) -> u64 {
    if !code.is_marked() {
        return 0;
    }
    // The code's five bits are eligibility, then mode.
    MMCRA_SAMPLE_ENABLE.prep(1)
        | MMCRA_SAMP_MODE.prep(code.sample_mode())
        | MMCRA_SAMP_ELIG.prep(code.sample_mode() >> 2)
}

/// MMCRA: whether the BHRB records, and with which filter. 0 if events want different ones.
fn branches(isa: Isa, wanted: bool, ifm: u64) -> u64 {
    let off = isa >= Isa::V31 && !wanted;
    MMCRA_BHRBRD.prep(off.into()) | MMCRA_IFM.prep(ifm)
}

/// When SDAR is updated in continuous sampling, if `mmcra` has what events ask for. From POWER9 on
/// a marked event turns that off, as marking updates SDAR by itself.
fn continuous_sampling(isa: Isa, mmcra: u64) -> u64 {
    match MMCRA_SDAR_MODE.get(mmcra) {
        _ if isa == Isa::V207 => SDAR_MODE_TLB,
        _ if MMCRA_SAMPLE_ENABLE.is_set(mmcra) => 0,
        0 => SDAR_MODE_DCACHE,
        asked => asked,
    }
}
