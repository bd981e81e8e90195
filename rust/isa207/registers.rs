// SPDX-License-Identifier: GPL-2.0

//! The fields of the PMU's registers that event codes set, or that samples are read from. Bit
//! numbers are those of the Power ISA (bit 0 is the most significant). Where a register has one
//! field for each counter, the constant is the field of PMC1.
//!
//! Sources: Power ISA v2.07B, v3.0B and v3.1 Book III, "Performance Monitor Facility" (MMCR0,
//! MMCR2, MMCRA, SIER); the POWER8, POWER9 and POWER10 Performance Monitor Unit User's Guides
//! (MMCR1, MMCR3, MMCRA, SIER2), whose names are those of `arch/powerpc/perf/isa207-common.h`.

use super::{
    codes::field::Field,
    isa::Isa,
    pmc::Pmc, //
};

/// FCS: no counter counts in privileged state, and before v3.1 the BHRB records nothing there.
pub(crate) const MMCR0_FCS: Field = Field::ibm(33, 33);
/// PMC1CE: a negative PMC1 raises an alert.
pub(crate) const MMCR0_PMC1CE: Field = Field::ibm(48, 48);
/// PMCjCE: a negative PMC2 to PMC6 raises an alert.
pub(crate) const MMCR0_PMCJCE: Field = Field::ibm(49, 49);
/// PMCCEXT (v3.1): with PMCC 0b00 problem state may not read MMCR1, MMCR3, SIAR, SDAR and SIER.
pub(crate) const MMCR0_PMCCEXT: Field = Field::ibm(54, 54);
/// CC56RUN: PMC5 and PMC6 count even while the run latch (CTRL\[RUN\]) is off, like the other
/// counters.
pub(crate) const MMCR0_CC56RUN: Field = Field::ibm(55, 55);
/// FC56: PMC5 and PMC6 are frozen.
pub(crate) const MMCR0_FC56: Field = Field::ibm(59, 59);
/// FCH: the counterpart of FCS for hypervisor state.
pub(crate) const MMCR0_FCH: Field = Field::ibm(63, 63);

/// PMCxUNIT: the unit whose events each of PMC1 to PMC4 receives.
pub(crate) const MMCR1_UNIT: Field = Field::ibm(0, 3);
/// Source qualifier of L1 reload events.
pub(crate) const MMCR1_L1_QUAL: Field = Field::ibm(16, 17);
/// Scope of radix translation events (v3.1).
pub(crate) const MMCR1_RADIX_SCOPE: Field = Field::ibm(18, 18);
/// Match value of the fabric response events (POWER8).
pub(crate) const MMCR1_FAB: Field = Field::ibm(20, 27);
/// PMCxSEL: the event that each of PMC1 to PMC4 counts.
pub(crate) const MMCR1_PMCSEL: Field = Field::ibm(32, 39);

/// The freeze bits of each of PMC1 to PMC6: the states in which the counter does not count.
pub(crate) const MMCR2_FREEZE: Field = Field::ibm(0, 8);
/// FCnS, a bit of [`MMCR2_FREEZE`]: privileged state.
pub(crate) const FREEZE_SUPERVISOR: u64 = 1 << 8;
/// FCnP0: problem state with MSR\[HV\]=0, the state of a partition's programs. Programs can write
/// this bit.
pub(crate) const FREEZE_PROBLEM: u64 = 1 << 7;
/// FCnP1: problem state with MSR\[HV\]=1, the state of programs on bare metal.
pub(crate) const FREEZE_PROBLEM_HV: u64 = 1 << 6;
/// FCnWAIT: wait state (CTRL\[RUN\] off).
pub(crate) const FREEZE_WAIT: u64 = 1 << 3;
/// FCnH: hypervisor state.
pub(crate) const FREEZE_HYPERVISOR: u64 = 1 << 2;
/// The group of L2 and L3 events on the unit's bus (POWER10).
pub(crate) const MMCR2_L2L3_SEL: Field = Field::ibm(56, 60);

/// Data source to match, for each of PMC1 to PMC4 (v3.1).
pub(crate) const MMCR3_SOURCE: Field = Field::ibm(0, 14);

/// When SDAR is updated in continuous sampling. 0 with marked events: only marking updates SDAR.
pub(crate) const MMCRA_SDAR_MODE: Field = Field::ibm(20, 21);
/// SDAR mode: on a TLB miss. POWER8 always uses this mode.
pub(crate) const SDAR_MODE_TLB: u64 = 1;
/// SDAR mode: on a data cache miss. The default from POWER9 on.
pub(crate) const SDAR_MODE_DCACHE: u64 = 2;
/// BHRBRD (v3.1): the BHRB records no branches.
pub(crate) const MMCRA_BHRBRD: Field = Field::ibm(26, 26);
/// IFM, instruction filtering mode: which branches the BHRB records.
pub(crate) const MMCRA_IFM: Field = Field::ibm(32, 33);
/// Exponent of the threshold counter's value, to the base 4.
pub(crate) const MMCRA_THR_CTR_EXP: Field = Field::ibm(34, 36);
/// THR_SEL: selects the events that the threshold counter counts.
pub(crate) const MMCRA_THR_SEL: Field = Field::ibm(45, 47);
/// The events that start and stop the threshold counter.
pub(crate) const MMCRA_THR_CTL: Field = Field::ibm(48, 55);
/// Random sampling: which instructions are eligible for marking.
pub(crate) const MMCRA_SAMP_ELIG: Field = Field::ibm(57, 59);
/// Random sampling: how instructions are chosen for marking.
pub(crate) const MMCRA_SAMP_MODE: Field = Field::ibm(61, 62);
/// Random sampling is on: instructions are marked.
pub(crate) const MMCRA_SAMPLE_ENABLE: Field = Field::ibm(63, 63);

/// Returns PMC1's PMCxCOMB in MMCR1: how a counter combines the bits of its unit's event bus.
pub(crate) const fn mmcr1_combine(isa: Isa) -> Field {
    match isa {
        Isa::V207 => Field::ibm(28, 28),
        Isa::V300 | Isa::V31 => Field::ibm(24, 25),
    }
}

/// Returns the field of the threshold to compare with in MMCRA: exponent (three bits) and mantissa.
pub(crate) const fn mmcra_thr_cmp(isa: Isa) -> Field {
    match isa {
        Isa::V207 => Field::ibm(22, 31),
        Isa::V300 => Field::ibm(9, 18),
        Isa::V31 => Field::ibm(8, 18),
    }
}

/// Returns the field of the mantissa of the threshold counter's value in MMCRA.
pub(crate) const fn mmcra_thr_ctr_mant(isa: Isa) -> Field {
    match isa {
        Isa::V207 | Isa::V300 => Field::ibm(38, 44),
        Isa::V31 => Field::ibm(37, 44),
    }
}

/// Returns the field of `pmc` in a row of fields whose first one, PMC1's, is `first`.
pub(crate) const fn of_pmc(first: Field, pmc: Pmc) -> Field {
    // CAST: The discriminants are 0 to 5, which any integer type holds.
    first.right(pmc as u32)
}

/// The source of the data, within the level in SIER\[LDST\].
pub(crate) const SIER_DATA_SRC: Field = Field::ibm(8, 10);
/// Type of the sampled instruction.
pub(crate) const SIER_TYPE: Field = Field::ibm(46, 48);
/// The level of the memory hierarchy that the sampled load or store reached.
pub(crate) const SIER_LDST: Field = Field::ibm(60, 62);

/// Cycles to dispatch (POWER10).
pub(crate) const SIER2_DISPATCH_CYC: Field = Field::ibm(3, 13);
/// Cycles to finish (POWER10).
pub(crate) const SIER2_FINISH_CYC: Field = Field::ibm(27, 37);
