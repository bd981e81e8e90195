// SPDX-License-Identifier: GPL-2.0

//! Numbers of the registers, and the bits of their fields.
//!
//! \[kernel\] `asm/reg.h`; for BESCR the selftests' `reg.h`; for IFM, SDAR_MODE, the threshold
//! counter and the description of a marked instruction in SIER `isa207-common.h`. \[microwatt\]
//! `pmu.vhdl` for FCPC, PMAQ and MMCR2. \[KVM\] `book3s_hv_tm.c` for BESCR\[TS\]. FCnP1:
//! \[memory\].

/// Returns the mask of the bit with this IBM number.
const fn bit(number: u32) -> u64 {
    1 << (63 - number)
}

/// Numbers of special purpose registers.
pub mod spr {
    /// MMCR0.
    pub const MMCR0: u32 = 795;
    /// MMCR1.
    pub const MMCR1: u32 = 798;
    /// MMCR2.
    pub const MMCR2: u32 = 785;
    /// MMCR3 (v3.1).
    pub const MMCR3: u32 = 754;
    /// MMCRA.
    pub const MMCRA: u32 = 786;
    /// PMC1; PMC2 to PMC6 have the next numbers.
    pub const PMC1: u32 = 787;
    /// PMC6.
    pub const PMC6: u32 = 792;
    /// SIAR.
    pub const SIAR: u32 = 796;
    /// SDAR.
    pub const SDAR: u32 = 797;
    /// SIER.
    pub const SIER: u32 = 784;
    /// SIER2 (v3.1).
    pub const SIER2: u32 = 752;
    /// SIER3 (v3.1).
    pub const SIER3: u32 = 753;
    /// BESCRS: sets the bits of BESCR that are written as 1.
    pub const BESCRS: u32 = 800;
    /// BESCRSU: sets bits of the upper half of BESCR, from the low word of the value.
    pub const BESCRSU: u32 = 801;
    /// BESCRR: clears the bits of BESCR that are written as 1.
    pub const BESCRR: u32 = 802;
    /// BESCRRU: clears bits of the upper half of BESCR, from the low word of the value.
    pub const BESCRRU: u32 = 803;
    /// EBBHR.
    pub const EBBHR: u32 = 804;
    /// EBBRR.
    pub const EBBRR: u32 = 805;
    /// BESCR.
    pub const BESCR: u32 = 806;

    /// Difference between the numbers of a register in privileged and in problem state.
    pub const PROBLEM: u32 = 16;
}

/// Fields of MMCR0.
pub mod mmcr0 {
    use super::bit;

    /// FC: no counter counts.
    pub const FC: u64 = bit(32);
    /// FCS: no counter counts in privileged, non-hypervisor state.
    pub const FCS: u64 = bit(33);
    /// FCP: no counter counts in problem state.
    pub const FCP: u64 = bit(34);
    /// FCM1: no counter counts while MSR\[PMM\] is 1.
    pub const FCM1: u64 = bit(35);
    /// FCM0: no counter counts while MSR\[PMM\] is 0.
    pub const FCM0: u64 = bit(36);
    /// PMAE: alerts are enabled.
    pub const PMAE: u64 = bit(37);
    /// FCECE: an enabled condition or event freezes the counters.
    pub const FCECE: u64 = bit(38);
    /// TBEE: events of the time base are enabled.
    pub const TBEE: u64 = bit(41);
    /// BHRBA: problem state may use the BHRB's instructions.
    pub const BHRBA: u64 = bit(42);
    /// EBE: alerts cause event-based exceptions.
    pub const EBE: u64 = bit(43);
    /// PMCC: the access of problem state to the registers.
    pub const PMCC: u64 = bit(44) | bit(45);
    /// PMC1CE: a negative PMC1 is an enabled condition.
    pub const PMC1CE: u64 = bit(48);
    /// PMCjCE: a negative counter of PMC2 to PMC6 is an enabled condition.
    pub const PMCJCE: u64 = bit(49);
    /// TRIGGER: PMC2 to PMC6 do not count until PMC1 is negative or an enabled condition exists.
    pub const TRIGGER: u64 = bit(50);
    /// FCPC: selects the problem state that FCP freezes, that of a partition (0) or with
    /// MSR\[HV\]=1 (1).
    pub const FCPC: u64 = bit(51);
    /// PMAQ, the kernel's `MMCR0_PMAO_SYNC`: an attribute of the alert.
    pub const PMAQ: u64 = bit(52);
    /// PMCCEXT (v3.1): problem state may not read group B if PMCC is 0b00.
    pub const PMCCEXT: u64 = bit(54);
    /// CC56RUN: PMC5 and PMC6 count even while the run latch is off.
    pub const CC56RUN: u64 = bit(55);
    /// PMAO: an alert occurred.
    pub const PMAO: u64 = bit(56);
    /// FC1-4: PMC1 to PMC4 do not count.
    pub const FC14: u64 = bit(58);
    /// FC5-6: PMC5 and PMC6 do not count.
    pub const FC56: u64 = bit(59);
    /// FC1-4WAIT: PMC1 to PMC4 do not count while the run latch is off.
    pub const FC14WAIT: u64 = bit(62);
    /// FCH: no counter counts in hypervisor state.
    pub const FCH: u64 = bit(63);

    /// Bits that problem state may read and write.
    pub const USER: u64 = FC | PMAE | PMAO;

    /// Returns the PMCC field of a value.
    pub const fn pmcc(value: u64) -> u64 {
        (value & PMCC) >> 18
    }
}

/// Fields of MMCR2 for PMC1, which each freeze it in one state. The fields of the next counter are
/// nine bits to the right.
pub mod mmcr2 {
    use super::bit;

    /// FC1S: frozen in privileged, non-hypervisor state.
    pub const FCS: u64 = bit(0);
    /// FC1P0: frozen in problem state of a partition.
    pub const FCP0: u64 = bit(1);
    /// FC1P1: frozen in problem state with MSR\[HV\]=1.
    pub const FCP1: u64 = bit(2);
    /// FC1M1: frozen while MSR\[PMM\] is 1.
    pub const FCM1: u64 = bit(3);
    /// FC1M0: frozen while MSR\[PMM\] is 0.
    pub const FCM0: u64 = bit(4);
    /// FC1WAIT: frozen while the run latch is off.
    pub const FCWAIT: u64 = bit(5);
    /// FC1H: frozen in hypervisor state.
    pub const FCH: u64 = bit(6);

    /// Bits that problem state may read and write: FCnP0.
    pub const USER: u64 = 0x4020_1008_0402_0000;
    /// All fields of the six counters, which freeze them in all states.
    pub const FREEZE: u64 = !0 << 10;
}

/// Fields of MMCRA.
pub mod mmcra {
    use super::bit;

    /// BHRBRD (v3.1): no branches are recorded.
    pub const BHRBRD: u64 = bit(26);
    /// SDAR_MODE: when continuous sampling updates SDAR; 0 for never.
    pub const SDAR_MODE: u64 = bit(20) | bit(21);
    /// IFM: the filter for the branches that the BHRB records.
    pub const IFM: u64 = bit(32) | bit(33);
    /// THR_CTR, exponent of the threshold counter (base 4). The mantissa ends at bit 44 and has
    /// seven bits, eight on v3.1.
    pub const THR_CTR_EXP: u64 = 0b111 << 27;
    /// Shift of the mantissa.
    pub const THR_CTR_MANT_SHIFT: u32 = 19;
    /// Returns the bits that problem state may read and write: the threshold counter, whose
    /// mantissa has one more bit on v3.1.
    pub const fn user(is_v31: bool) -> u64 {
        let mantissa = if is_v31 { 0xff } else { 0x7f };
        THR_CTR_EXP | mantissa << THR_CTR_MANT_SHIFT
    }
    /// TECE: the event that the threshold counter counts; 0 for none.
    pub const TECE: u64 = bit(45) | bit(46) | bit(47);
    /// SAMPLE_ENABLE: instructions are marked.
    pub const SAMPLE_ENABLE: u64 = bit(63);

    /// Returns the IFM field of a value.
    pub const fn ifm(value: u64) -> u64 {
        (value & IFM) >> 30
    }
}

/// Fields of SIER.
pub mod sier {
    use super::bit;

    /// SIPR: MSR\[PR\] of the sampled instruction.
    pub const SIPR: u64 = bit(38);
    /// SIHV: MSR\[HV\] of the sampled instruction.
    pub const SIHV: u64 = bit(39);
    /// SIARV: SIAR is valid.
    pub const SIARV: u64 = bit(41);
    /// SDARV: SDAR is valid.
    pub const SDARV: u64 = bit(42);

    /// Shift of DATA_SRC: where the data came from within the level.
    pub const DATA_SRC_SHIFT: u32 = 53;
    /// Shift of TYPE: the type of the marked instruction.
    pub const TYPE_SHIFT: u32 = 15;
    /// Shift of LDST: the level that the data came from.
    pub const LDST_SHIFT: u32 = 1;

    /// Bits that problem state may read.
    pub const USER: u64 = 0x7f_ffff;
}

/// Fields of BESCR.
pub mod bescr {
    use super::bit;

    /// GE: event-based branches are enabled.
    pub const GE: u64 = bit(0);
    /// PME: event-based exceptions of the performance monitor are enabled.
    pub const PME: u64 = bit(31);
    /// TS: MSR\[TS\] when an event-based branch occurred, before v3.1.
    pub const TS: u64 = bit(32) | bit(33);
    /// Shift of TS.
    pub const TS_SHIFT: u32 = 30;
    /// PMEO: an event-based exception of the performance monitor occurred.
    pub const PMEO: u64 = bit(63);
}
