// SPDX-License-Identifier: GPL-2.0

//! Reads and writes of registers in problem state, and the interrupts if they are not allowed.
//!
//! In problem state the registers have other numbers, 16 below those of privileged state. There are
//! two groups: A are the counters, MMCR0, MMCR2 and MMCRA; B, which can only be read, are MMCR1,
//! SIAR, SDAR and SIER, and on v3.1 MMCR3, SIER2 and SIER3.
//!
//! | PMCC | reads A | writes A | reads B |
//! |---|---|---|---|
//! | 0b00 | yes | emulation assistance | yes, but with PMCCEXT (v3.1) facility unavailable |
//! | 0b01 | facility unavailable | facility unavailable | facility unavailable |
//! | 0b10 | yes | yes | yes |
//! | 0b11 | yes, but PMC5 and PMC6: facility unavailable | likewise | yes |
//!
//! Group A: \[QEMU\] `power8-pmu-regs.c.inc`, after the Power ISA v3.1, Book III, 10.4.4; \[kernel\]
//! selftests `close_clears_pmcc_test.c`, `reg_access_test.c`. Group B with PMCCEXT: \[kernel\]
//! selftest `regs_access_pmccext_test.c`, whose comment names group B only. That group B goes with
//! group A for PMCC 0b01: \[memory\].

use crate::{
    Facility, Isa,
    fields::{mmcr0, mmcr2, mmcra, sier, spr},
};

/// An interrupt that an instruction of problem state causes instead of being executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// Facility unavailable.
    FacilityUnavailable,
    /// Hypervisor emulation assistance, for an illegal instruction or a write to a read-only
    /// register.
    EmulationAssistance,
    /// A program interrupt, because only privileged state has the register.
    Privileged,
    /// A program interrupt "TM Bad Thing", for a forbidden change of the transaction's state.
    TmBadThing,
}

/// PMC5, the first of the counters that PMCC 0b11 takes out.
const PMC5: u32 = spr::PMC1 + 4;

impl Facility {
    /// Returns the privileged number of the register that has `number` in problem state.
    ///
    /// A number is privileged if its bit `spr::PROBLEM` is set (the first bit of the instruction's
    /// spr0 field), whether or not the register exists. \[QEMU\] `gen_op_mfspr()`, `gen_mtspr()`;
    /// \[memory\] Book III, `mfspr`.
    fn problem_number(&self, number: u32) -> Result<u32, Trap> {
        if number & spr::PROBLEM != 0 {
            return Err(Trap::Privileged);
        }
        if (spr::BESCRS..=spr::BESCR).contains(&number) {
            return Ok(number);
        }
        let privileged = number + spr::PROBLEM;
        if self.has_spr(privileged) {
            Ok(privileged)
        } else {
            Err(Trap::EmulationAssistance)
        }
    }

    /// Checks that problem state may read (or, if `write` is set, write) a register of group A.
    fn check_group_a(&self, number: u32, write: bool) -> Result<(), Trap> {
        match mmcr0::pmcc(self.mmcr0) {
            0b00 if write => Err(Trap::EmulationAssistance),
            0b01 => Err(Trap::FacilityUnavailable),
            0b11 if (PMC5..=spr::PMC6).contains(&number) => Err(Trap::FacilityUnavailable),
            _ => Ok(()),
        }
    }

    /// Returns the mask of the MMCRA bits that problem state may access.
    fn users_mmcra(&self) -> u64 {
        mmcra::user(self.processor.isa() >= Isa::V31)
    }

    fn check_group_b(&self) -> Result<(), Trap> {
        let closed = self.processor.isa() >= Isa::V31 && self.mmcr0 & mmcr0::PMCCEXT != 0;
        match mmcr0::pmcc(self.mmcr0) {
            0b00 if closed => Err(Trap::FacilityUnavailable),
            0b01 => Err(Trap::FacilityUnavailable),
            _ => Ok(()),
        }
    }

    /// Executes `mfspr` in problem state, with the register's number there.
    ///
    /// Bits that are not for problem state read as 0: in MMCR0 all but FC, PMAE and PMAO, in MMCR2
    /// all but FCnP0 (\[ISA\] v3.1, Book III, 10.4.4 and 10.4.6, as \[QEMU\] quotes them;
    /// \[kernel\] selftest `no_handler_test.c`), in MMCRA all but the threshold counter (\[memory\]
    /// Book III, MMCRA, in the words of 10.4.6), in SIER those outside of `SIER_USER_MASK`
    /// (\[kernel\] `asm/reg.h`).
    pub fn problem_mfspr(&self, number: u32) -> Result<u64, Trap> {
        let number = self.problem_number(number)?;
        let value = self.mfspr(number);
        match number {
            spr::BESCRS..=spr::BESCR => Ok(value),
            spr::PMC1..=spr::PMC6 => self.check_group_a(number, false).map(|()| value),
            spr::MMCRA => self
                .check_group_a(number, false)
                .map(|()| value & self.users_mmcra()),
            spr::MMCR0 => self
                .check_group_a(number, false)
                .map(|()| value & mmcr0::USER),
            spr::MMCR2 => self
                .check_group_a(number, false)
                .map(|()| value & mmcr2::USER),
            spr::SIER => self.check_group_b().map(|()| value & sier::USER),
            _ => self.check_group_b().map(|()| value),
        }
    }

    /// Executes `mtspr` in problem state. Bits that are not for problem state keep their values
    /// (\[ISA\] v3.1, Book III, 10.4.6, as \[QEMU\] quotes it; for MMCR0 \[QEMU\], for MMCRA
    /// \[memory\]). A write to group B traps like one to any read-only register: \[QEMU\]. No
    /// facility control denies programs BESCR, EBBHR and EBBRR: \[kernel\] `init_FSCR()`, which
    /// sets FSCR\[EBB\].
    pub fn problem_mtspr(&mut self, number: u32, value: u64) -> Result<(), Trap> {
        let number = self.problem_number(number)?;
        let kept = match number {
            spr::BESCRS..=spr::BESCR => {
                self.mtspr(number, value);
                return Ok(());
            }
            spr::PMC1..=spr::PMC6 => 0,
            spr::MMCR0 => self.mmcr0 & !mmcr0::USER,
            spr::MMCR2 => self.mmcr2 & !mmcr2::USER,
            spr::MMCRA => self.mmcra & !self.users_mmcra(),
            _ => return Err(Trap::EmulationAssistance),
        };
        self.check_group_a(number, true)?;
        let own = match number {
            spr::PMC1..=spr::PMC6 => value,
            spr::MMCR0 => value & mmcr0::USER,
            spr::MMCR2 => value & mmcr2::USER,
            _ => value & self.users_mmcra(),
        };
        self.mtspr(number, kept | own);
        Ok(())
    }

    /// Checks that problem state may use the BHRB's instructions (MMCR0\[BHRBA\]).
    ///
    /// \[kernel\] `asm/reg.h` ("BHRB Access allowed in userspace"), `ebb_switch_in()`; for the trap
    /// `facility_unavailable_exception()`, which lists 'BHRB'.
    fn check_bhrb(&self) -> Result<(), Trap> {
        if self.mmcr0 & mmcr0::BHRBA == 0 {
            Err(Trap::FacilityUnavailable)
        } else {
            Ok(())
        }
    }

    /// Executes `mfbhrbe` in problem state.
    pub fn problem_mfbhrbe(&self, entry: usize) -> Result<u64, Trap> {
        self.check_bhrb().map(|()| self.mfbhrbe(entry))
    }

    /// Executes `clrbhrb` in problem state.
    pub fn problem_clrbhrb(&mut self) -> Result<(), Trap> {
        self.check_bhrb().map(|()| self.clrbhrb())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Processor;

    const FU: Result<u64, Trap> = Err(Trap::FacilityUnavailable);
    const HEA: Result<u64, Trap> = Err(Trap::EmulationAssistance);
    const GROUP_B: [u32; 4] = [spr::MMCR1, spr::SIAR, spr::SDAR, spr::SIER];
    const GROUP_B_V31: [u32; 3] = [spr::MMCR3, spr::SIER2, spr::SIER3];

    fn facility(processor: Processor, mmcr0: u64) -> Facility {
        let mut facility = Facility::new(processor);
        facility.mtspr(spr::MMCR0, mmcr0);
        facility
    }

    fn write(facility: &mut Facility, number: u32, value: u64) -> Result<u64, Trap> {
        facility
            .problem_mtspr(number - spr::PROBLEM, value)
            .map(|()| 0)
    }

    #[test]
    fn pmcc_opens_group_a() {
        for processor in Processor::ALL {
            let group_a = (spr::PMC1..=spr::PMC6).chain([spr::MMCR0, spr::MMCR2, spr::MMCRA]);
            for (pmcc, number) in (0..4).flat_map(|pmcc| group_a.clone().map(move |n| (pmcc, n))) {
                let mut facility = facility(processor, pmcc << 18);
                let out = pmcc == 3 && (PMC5..=spr::PMC6).contains(&number);
                let read = facility.problem_mfspr(number - spr::PROBLEM);
                assert_eq!(read == FU, pmcc == 1 || out, "{pmcc} {number}");
                let expected = match pmcc {
                    0 => HEA,
                    1 => FU,
                    _ if out => FU,
                    _ => Ok(0),
                };
                assert_eq!(write(&mut facility, number, 5), expected, "{pmcc} {number}");
            }
        }
    }

    #[test]
    fn group_b_is_read_only_and_pmccext_closes_it() {
        for processor in Processor::ALL {
            let v31 = processor.isa() >= Isa::V31;
            for pmcc in 0..4 {
                for pmccext in [0, mmcr0::PMCCEXT] {
                    let mut facility = facility(processor, pmcc << 18 | pmccext);
                    let closed = pmcc == 1 || (pmcc == 0 && v31 && pmccext != 0);
                    for number in GROUP_B {
                        let read = facility.problem_mfspr(number - spr::PROBLEM);
                        assert_eq!(read, if closed { FU } else { Ok(0) });
                        assert_eq!(write(&mut facility, number, 0), HEA);
                    }
                    for number in GROUP_B_V31 {
                        let read = facility.problem_mfspr(number - spr::PROBLEM);
                        let open = if v31 { Ok(0) } else { HEA };
                        assert_eq!(read, if closed && v31 { FU } else { open });
                        assert_eq!(write(&mut facility, number, 0), HEA);
                    }
                }
            }
        }
    }

    #[test]
    fn privileged_numbers_are_not_problem_states() {
        for processor in Processor::ALL {
            let mut facility = facility(processor, 0b10 << 18);
            for number in spr::SIER..=spr::MMCR1 {
                let read = facility.problem_mfspr(number);
                assert_eq!(read, Err(Trap::Privileged), "{number}");
                let written = facility.problem_mtspr(number, 0);
                assert_eq!(written, Err(Trap::Privileged), "{number}");
            }
            assert_eq!(facility.problem_mfspr(spr::SIER3), Err(Trap::Privileged));
            // This number belongs to no register.
            let unused = spr::SIER + 9 - spr::PROBLEM;
            assert_eq!(facility.problem_mfspr(unused), HEA);
            assert_eq!(facility.problem_mtspr(unused, 0).map(|()| 0), HEA);
        }
    }

    #[test]
    fn only_its_own_bits_are_problem_states() {
        let kernel = mmcr0::EBE | mmcr0::FCECE | 0x0008_0000 | mmcr0::FC;
        let mut facility = facility(Processor::Power9, kernel);
        facility.mtspr(spr::MMCR2, !0);
        facility.mtspr(spr::MMCRA, 0x1234 | 5 << 19 | 3 << 27);
        facility.mtspr(spr::SIER, !0);
        assert_eq!(facility.problem_mfspr(spr::MMCR0 - 16), Ok(mmcr0::FC));
        assert_eq!(facility.problem_mfspr(spr::MMCR2 - 16), Ok(mmcr2::USER));
        assert_eq!(facility.problem_mfspr(spr::SIER - 16), Ok(sier::USER));

        assert_eq!(
            write(&mut facility, spr::MMCR0, mmcr0::PMAE | mmcr0::PMC1CE),
            Ok(0)
        );
        assert_eq!(
            facility.mfspr(spr::MMCR0),
            kernel & !mmcr0::FC | mmcr0::PMAE
        );
        assert_eq!(write(&mut facility, spr::MMCR2, 0), Ok(0));
        assert_eq!(facility.mfspr(spr::MMCR2), !mmcr2::USER);
        let threshold = facility.problem_mfspr(spr::MMCRA - 16);
        assert_eq!(threshold, Ok(5 << 19 | 3 << 27));
        assert_eq!(write(&mut facility, spr::MMCRA, !0), Ok(0));
        assert_eq!(facility.mfspr(spr::MMCRA), 0x1234 | 0x7f << 19 | 7 << 27);
    }

    #[test]
    fn the_mantissa_of_the_threshold_counter_has_another_bit_on_v31() {
        for processor in Processor::ALL {
            let mut facility = facility(processor, 0b10 << 18);
            assert_eq!(write(&mut facility, spr::MMCRA, !0), Ok(0));
            let mantissa = if processor.isa() >= Isa::V31 {
                0xff
            } else {
                0x7f
            };
            assert_eq!(
                facility.mfspr(spr::MMCRA) & !mmcra::BHRBRD,
                mantissa << 19 | 7 << 27
            );
        }
    }

    #[test]
    fn bhrba_opens_the_bhrb() {
        let mut closed = facility(Processor::Power10, 0x0008_0000);
        assert_eq!(closed.problem_mfbhrbe(0), FU);
        assert_eq!(closed.problem_clrbhrb(), Err(Trap::FacilityUnavailable));
        let mut open = facility(Processor::Power10, mmcr0::BHRBA);
        assert_eq!(open.problem_mfbhrbe(0), Ok(0));
        assert_eq!(open.problem_clrbhrb(), Ok(()));
    }

    #[test]
    fn the_ebb_registers_are_always_open() {
        let mut facility = facility(Processor::Power8, 1 << 18);
        facility.problem_mtspr(spr::EBBHR, 0x100).unwrap();
        assert_eq!(facility.problem_mfspr(spr::EBBHR), Ok(0x100));
    }
}
