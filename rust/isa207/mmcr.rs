// SPDX-License-Identifier: GPL-2.0

//! The control registers' images for a solved group.
//!
//! Invariant: as the group's events agree on every shared setting, no field is
//! ever the OR of two different values.
//!
//! Sources: Power ISA v3.1 Book III, "Performance Monitor Facility" (MMCR0,
//! MMCR2); the POWER8, POWER9 and POWER10 Performance Monitor Unit User's Guides
//! (MMCR1, MMCR3, MMCRA); `isa207_compute_mmcr()` in the kernel's
//! `arch/powerpc/perf/isa207-common.c`.

use super::{
    cpu::{
        CpuModel,
        Isa, //
    },
    event_code::EventCode,
    layout::Field,
    request::{
        Assignment,
        Exclude,
        Machine,
        Pmc,
        Request,
        COUNTERS, //
    },
    threshold::Threshold, //
};

/// Images of the monitor mode control registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mmcr {
    /// MMCR0 without the bits that start and stop the PMU (FC, PMAE, FCECE) and
    /// those of EBB, which are the driver's.
    pub mmcr0: u64,
    /// MMCR1: what PMC1 to PMC4 count.
    pub mmcr1: u64,
    /// MMCR2: in which states each counter is frozen.
    pub mmcr2: u64,
    /// MMCRA: sampling, thresholds, branch recording.
    pub mmcra: u64,
    /// MMCR3: data source match of PMC1 to PMC4. 0 before ISA v3.1, which has
    /// no such register.
    pub mmcr3: u64,
}

/// MMCR0\[48\] PMC1CE: PMC1 raises an alert when it turns negative.
const PMC1CE: Field = Field::ibm(48, 48);
/// MMCR0\[49\] PMCjCE: so do PMC2 to PMC6.
const PMCJCE: Field = Field::ibm(49, 49);
/// MMCR0\[54\] PMCCEXT: without PMCC, problem state may not even read the PMU's
/// registers (ISA v3.1).
const PMCCEXT: Field = Field::ibm(54, 54);
/// MMCR0\[55\] CC56RUN: PMC5 and PMC6 count whatever the run latch says, as the
/// other counters do.
const CC56RUN: Field = Field::ibm(55, 55);
/// MMCR0\[59\] FC56: PMC5 and PMC6 are frozen.
const FC56: Field = Field::ibm(59, 59);

/// MMCR1\[16:17\]: source qualifier of L1 reload events.
const L1_QUALIFIER: Field = Field::ibm(16, 17);
/// MMCR1\[18\]: scope of radix translation events (ISA v3.1).
const RADIX_SCOPE: Field = Field::ibm(18, 18);
/// MMCR1\[20:27\]: match value of the fabric response events (POWER8).
const FAB_MATCH: Field = Field::ibm(20, 27);

/// MMCR2\[56:60\]: the group of L2/L3 events on the bus (POWER10).
const L2L3_SEL: Field = Field::ibm(56, 60);

/// MMCRA\[20:21\]: when SDAR is updated in continuous sampling.
const SDAR_MODE: Field = Field::ibm(20, 21);
/// MMCRA\[26\] BHRBRD: the BHRB records nothing (ISA v3.1).
const BHRBRD: Field = Field::ibm(26, 26);
/// MMCRA\[32:33\] IFM: which branches the BHRB records.
const IFM: Field = Field::ibm(32, 33);
/// MMCRA\[57:59\]: which instructions may be marked.
pub(super) const SAMPLE_ELIGIBILITY: Field = Field::ibm(57, 59);
/// MMCRA\[61:62\]: how instructions are chosen for marking.
const SAMPLE_MODE: Field = Field::ibm(61, 62);
/// MMCRA\[63\]: instructions are marked at all.
const SAMPLE_ENABLE: Field = Field::ibm(63, 63);

/// SDAR mode "update on a TLB miss", which POWER8 always uses.
const SDAR_ON_TLB_MISS: u64 = 1;
/// SDAR mode "update on a data cache miss", the default from POWER9 on. Modes
/// other than 0 are required in continuous sampling.
pub(super) const SDAR_ON_DCACHE_MISS: u64 = 2;

impl Mmcr {
    /// The BHRB filter in force, 0 to 3. 0 as well if branch stacks want different
    /// ones, so each must be filtered unless this is the one it asked for and that
    /// is [exact](super::HardwareFilter::exact).
    pub const fn ifm(&self) -> u8 {
        // CAST: two bits.
        IFM.of(self.mmcra) as u8
    }

    /// The images for `reqs`, placed as `assignment` says.
    pub(super) fn new(
        cpu: &CpuModel,
        reqs: &[Request],
        assignment: &Assignment,
        machine: Machine,
    ) -> Self {
        let mut this = Self::default();
        let mut used = [false; COUNTERS];
        for ((pmc, code), req) in assignment.placements().zip(reqs) {
            if let Some(slot) = used.get_mut(pmc.index()) {
                *slot = true;
            }
            if pmc.is_programmable() {
                this.mmcr1 |= counter_select(cpu, pmc, code);
                this.mmcr1 |= shared_select(cpu, code);
                this.mmcr3 |= source_match(cpu, pmc, code);
            }
            this.mmcr2 |= L2L3_SEL.put(cpu.layout.l2l3_sel.of(code.0));
            this.mmcr2 |= freeze(pmc, req.exclude, machine);
            this.mmcra |= marking(code);
            this.mmcra |= Threshold::new(cpu, req).mmcra(cpu.isa);
        }
        this.mmcr0 = counting(cpu, used);
        this.mmcra |= branch_filter(reqs);
        this.mmcra |= sdar_mode(cpu, assignment);
        if cpu.isa >= Isa::V31 && !reqs.iter().any(Request::wants_branches) {
            this.mmcra |= BHRBRD.put(1);
        }
        this
    }
}

/// MMCR0: which counters raise alerts and whether PMC5 and PMC6 run.
fn counting(cpu: &CpuModel, used: [bool; COUNTERS]) -> u64 {
    let [pmc1, pmc2, pmc3, pmc4, pmc5, pmc6] = used;
    let mut mmcr0 = PMC1CE.put(pmc1.into());
    mmcr0 |= PMCJCE.put((pmc2 || pmc3 || pmc4 || pmc5 || pmc6).into());
    mmcr0 |= FC56.put((!pmc5 && !pmc6).into());
    if cpu.isa >= Isa::V31 {
        mmcr0 |= PMCCEXT.put(1) | CC56RUN.put(1);
    }
    mmcr0
}

/// MMCR1: what one of PMC1 to PMC4 counts.
fn counter_select(cpu: &CpuModel, pmc: Pmc, code: EventCode) -> u64 {
    let n = pmc.position();
    // MMCR1[0:15]: four bits of unit for each counter.
    let unit = nth(n, 0, 4);
    // MMCR1[24:31] or, with one bit each, MMCR1[28:31].
    let combine = match cpu.isa {
        Isa::V207 => nth(n, 28, 1),
        Isa::V300 | Isa::V31 => nth(n, 24, 2),
    };
    // MMCR1[32:63]: eight bits of event for each.
    let event = nth(n, 32, 8);
    unit.put(code.unit()) | combine.put(cpu.layout.combine.of(code.0)) | event.put(code.pmcxsel())
}

/// MMCR1: the settings that all of PMC1 to PMC4 share.
fn shared_select(cpu: &CpuModel, code: EventCode) -> u64 {
    // POWER8's select has the bit 4 set where its two lower bits mean this, so
    // these are 0 otherwise.
    let mut mmcr1 = L1_QUALIFIER.put(cpu.layout.cache_sel.of(code.0));
    mmcr1 |= RADIX_SCOPE.put(cpu.layout.radix_scope.of(code.0));
    if cpu.is_fab_match(code) {
        mmcr1 |= FAB_MATCH.put(EventCode::THRESH_CTL.of(code.0));
    }
    mmcr1
}

/// MMCR3: 15 bits of data source match for each of PMC1 to PMC4.
fn source_match(cpu: &CpuModel, pmc: Pmc, code: EventCode) -> u64 {
    nth(pmc.position(), 0, 15).put(cpu.layout.source.of(code.0))
}

/// MMCR2: the states in which a counter is frozen. Each counter has nine bits,
/// of which Linux uses four.
fn freeze(pmc: Pmc, exclude: Exclude, machine: Machine) -> u64 {
    let counter = nth(pmc.position(), 0, 9);
    // Frozen in privileged, problem, wait and hypervisor state, counted from
    // the left.
    let [fcs, fcp, fcwait, fch] = [8, 7, 3, 2];
    let mut bits: u64 = 0;
    if exclude.user {
        bits |= 1 << fcp;
    }
    if exclude.kernel {
        bits |= 1 << if machine.hypervisor_mode { fch } else { fcs };
    }
    // Under the kernel there is no hypervisor to exclude if it is one itself.
    if exclude.hv && !machine.hypervisor_mode {
        bits |= 1 << fch;
    }
    if exclude.idle {
        bits |= 1 << fcwait;
    }
    counter.put(bits)
}

/// MMCRA: marking of instructions.
fn marking(code: EventCode) -> u64 {
    // The code's field is eligibility, then mode: five bits.
    if !code.is_marked() {
        return 0;
    }
    SAMPLE_ENABLE.put(1)
        | SAMPLE_MODE.put(code.sample_mode())
        | SAMPLE_ELIGIBILITY.put(code.sample_mode() >> 2)
}

/// MMCRA: the filter that all who want branches want, else none.
fn branch_filter(reqs: &[Request]) -> u64 {
    IFM.put(common_ifm(reqs).unwrap_or(0).into())
}

/// The BHRB filter of all events that want branches, 0 if none does; `None` if
/// they want different ones.
pub(super) fn common_ifm(reqs: &[Request]) -> Option<u8> {
    let mut wanted = reqs.iter().filter_map(Request::branch_ifm);
    let first = wanted.next().unwrap_or(0);
    wanted.all(|ifm| ifm == first).then_some(first)
}

/// MMCRA: when SDAR is updated in continuous sampling.
///
/// From POWER9 on a group with a marked event has 0, as marking updates SDAR by
/// itself; other groups have the mode that an event asks for, or the default.
fn sdar_mode(cpu: &CpuModel, assignment: &Assignment) -> u64 {
    let codes = || assignment.placements().map(|(_, code)| code);
    let asked = codes().map(|code| cpu.layout.sdar_mode.of(code.0));
    SDAR_MODE.put(match (cpu.isa, asked.max()) {
        // No event, nothing to sample.
        (_, None) => 0,
        (Isa::V207, _) => SDAR_ON_TLB_MISS,
        _ if codes().any(EventCode::is_marked) => 0,
        (_, Some(0)) => SDAR_ON_DCACHE_MISS,
        (_, Some(asked)) => asked,
    })
}

/// The field of the counter `n` (0 to 5) in a register where fields of `width`
/// bits, one for each counter, begin at bit `first` (IBM order).
const fn nth(n: u32, first: u32, width: u32) -> Field {
    let start = first.wrapping_add(n.wrapping_mul(width));
    Field::ibm(start, start.wrapping_add(width).wrapping_sub(1))
}
