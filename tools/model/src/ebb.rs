// SPDX-License-Identifier: GPL-2.0

//! Which alerts are interrupts, which wait, and which are event-based branches.
//!
//! An exception of the performance monitor exists while PMAO is set. Without MMCR0\[EBE\] it is an
//! interrupt as soon as MSR\[EE\] allows it. With EBE it is an event-based exception, if BESCR\[PME\]
//! enables those, and that a branch, if the thread is in problem state with BESCR\[GE\] set. As
//! long as one of these is missing it waits, and whichever comes last lets it go on.

use crate::{
    Facility, Fault, Isa, Transaction, Trap,
    fields::{bescr, mmcr0, spr},
};

/// The bits of EBBHR and EBBRR that are an address.
const ADDRESS: u64 = !3;

impl Facility {
    /// Whether a performance monitor interrupt occurs before the next instruction.
    ///
    /// \[QEMU\] for the line that follows PMAO and MSR\[EE\]; \[microwatt\] `p_out.intr`; \[kernel\]
    /// `pmu-ebb.rst`, by which all interrupts go to the program under EBE.
    pub fn interrupt_is_due(&self) -> bool {
        self.exception && self.mmcr0 & mmcr0::EBE == 0 && self.context.ee
    }

    /// Whether an exception exists, which no register tells on POWER8E.
    pub fn has_exception(&self) -> bool {
        self.exception
    }

    /// An exception under EBE, with PME set, sets PMEO and clears PME, whatever the thread is
    /// doing.
    ///
    /// \[memory\] Book II, BESCR; \[kernel\] selftest `ebb.c`, `reset_ebb_with_clear_mask()`, which
    /// clears PMEO and sets PME after each EBB, and says that hardware couples neither with PMAO
    /// and PMAE, though the documents say so.
    pub(crate) fn raise_event_based_exception(&mut self) {
        if self.exception && self.mmcr0 & mmcr0::EBE != 0 && self.bescr & bescr::PME != 0 {
            if !Fault::Exception.is_on() {
                self.bescr &= !bescr::PME;
            }
            self.bescr |= bescr::PMEO;
        }
    }

    /// Has an event-based branch that waits occur without MMCR0\[EBE\] too: BESCR alone decides then, as
    /// \[QEMU\] has it with one that it has latched. Nobody may rely on either.
    pub fn have_ebbs_outlive_ebe(&mut self) {
        self.ebbs_outlive_ebe = true;
    }

    /// Takes an event-based branch if one is due where the thread would go on at `next`. Returns
    /// the address of the handler.
    ///
    /// \[ISA\] v3.1, Book II, chapter 6, as the commit messages of \[QEMU\] have it: bits 0 to 61 of
    /// EBBRR get the address, GE is cleared; \[kernel\] `pmu-ebb.rst`, selftests: in problem state
    /// only, and not with GE off. Without EBE none occurs, whatever BESCR holds: \[memory\] Book III,
    /// MMCR0\[EBE\]; but see [`Facility::have_ebbs_outlive_ebe`].
    ///
    /// Before v3.1 BESCR\[TS\] gets MSR\[TS\], and a transaction is suspended. \[KVM\]
    /// `kvmhv_p9_tm_emulation()`, which has TS 0b10 where `rfebb` goes from suspended to transactional
    /// state; \[memory\] Book II, BESCR.
    pub(crate) fn take_ebb(&mut self, next: u64) -> Option<u64> {
        let due = self.bescr & bescr::PMEO != 0 && self.bescr & bescr::GE != 0;
        let may = self.mmcr0 & mmcr0::EBE != 0 || self.ebbs_outlive_ebe;
        if !(due && may && self.context.problem) {
            return None;
        }
        if !Fault::Branch.is_on() {
            self.bescr &= !bescr::GE;
        }
        if self.processor.isa() < Isa::V31 {
            let state = self.context.transaction;
            self.bescr = self.bescr & !bescr::TS | (state as u64) << bescr::TS_SHIFT;
            if state == Transaction::Transactional {
                self.context.transaction = Transaction::Suspended;
            }
        }
        let skipped = if Fault::ReturnAddress.is_on() { 4 } else { 0 };
        self.ebbrr = (next & ADDRESS) + skipped;
        Some(self.ebbhr & ADDRESS)
    }

    /// The thread enters problem state at `address`, as by a return from an interrupt. Returns the
    /// address that it goes on at, which is the handler's if an event-based branch waited.
    ///
    /// \[QEMU\] `do_ebb()`, which holds it until then; \[memory\] Book II, chapter 6.
    pub fn enter_problem_state(&mut self, address: u64) -> u64 {
        self.synchronize();
        self.context.problem = true;
        self.context.ee = true;
        self.take_ebb(address).unwrap_or(address)
    }

    /// `rfebb` with its operand: GE gets it, and the thread goes on at EBBRR, or in the handler if
    /// another event-based branch is due.
    ///
    /// MSR\[TS\] gets BESCR\[TS\], which may resume a transaction and make no other change. On v3.1, where
    /// there are no transactions, the bits of TS make the instruction an invalid one.
    ///
    /// \[KVM\] `kvmhv_p9_tm_emulation()`; \[QEMU\] `helper_rfebb()`, which quotes the ISA v3.1 for the
    /// invalid form. That bits 62 and 63 of EBBRR are no part of the address: \[memory\] Book II,
    /// `rfebb`. Which changes are allowed: \[memory\] Book III, "Transaction State Transitions".
    pub fn rfebb(&mut self, ge: bool) -> Result<u64, Trap> {
        use Transaction::*;
        let from = self.context.transaction;
        self.context.transaction = match (self.bescr & bescr::TS) >> bescr::TS_SHIFT {
            0b00 if from == None => None,
            _ if self.processor.isa() >= Isa::V31 => return Err(Trap::EmulationAssistance),
            0b01 if from == Suspended => Suspended,
            0b10 if from != None => Transactional,
            _ => return Err(Trap::TmBadThing),
        };
        let ge = ge && !Fault::Return.is_on();
        self.bescr = self.bescr & !bescr::GE | if ge { bescr::GE } else { 0 };
        let address = self.ebbrr & ADDRESS;
        Ok(self.take_ebb(address).unwrap_or(address))
    }

    /// Writes a register of the event-based branch facility. BESCRS and BESCRR set and clear the
    /// bits that are written as 1. Their forms with U have 32 bits, and do so in the upper half.
    ///
    /// \[kernel\] selftest `reg.h`, `ebb.c`. For the forms with U: OpenJ9's profiler for POWER8,
    /// whose bits for BESCRSU and BESCRRU are 0x8000_0000 for GE and 1 for PME; \[QEMU\]
    /// `spr_write_prev_upper32()`.
    pub(crate) fn write_ebb(&mut self, number: u32, value: u64) {
        match number {
            spr::BESCRS => self.bescr |= value,
            spr::BESCRSU => self.bescr |= value << 32,
            spr::BESCRR => self.bescr &= !value,
            spr::BESCRRU => self.bescr &= !(value << 32),
            spr::EBBHR => self.ebbhr = value,
            spr::EBBRR => self.ebbrr = value,
            _ => self.bescr = value,
        }
    }

    /// Reads such a register. BESCRS and BESCRR are BESCR (\[memory\] Book II), their forms with U
    /// its upper half (\[QEMU\] `spr_read_prev_upper32()`).
    pub(crate) fn read_ebb(&self, number: u32) -> u64 {
        match number {
            spr::BESCRSU | spr::BESCRRU => self.bescr >> 32,
            spr::EBBHR => self.ebbhr,
            spr::EBBRR => self.ebbrr,
            _ => self.bescr,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Context, Facility, Instruction, Processor,
        Transaction::*,
        Trap,
        bescr::{GE, PME, PMEO, TS_SHIFT},
        mmcr0::*,
        spr,
    };

    const HANDLER: u64 = 0x5000;

    /// A program with EBBs whose next instruction causes an alert.
    fn program(processor: Processor, bescr: u64) -> Facility {
        let mut facility = Facility::new(processor);
        facility.mtspr(spr::BESCR, bescr);
        facility.mtspr(spr::EBBHR, HANDLER);
        facility.mtspr(spr::PMC6, 0x7fff_ffff);
        facility.mtspr(
            spr::MMCR0,
            PMAE | FCECE | PMCJCE | EBE | BHRBA | 0x0008_0000,
        );
        facility.context = Context::PROGRAM;
        facility
    }

    #[test]
    fn the_upper_half_of_bescr_is_a_low_word() {
        let mut facility = program(Processor::Power9, PMEO);
        for (number, value, expected) in [
            (spr::BESCRSU, 0xffff_ffff_8000_0001, GE | PME | PMEO),
            (spr::BESCRRU, 1, GE | PMEO),
            (spr::BESCRS, PME, GE | PME | PMEO),
            (spr::BESCRR, PMEO, GE | PME),
        ] {
            facility.problem_mtspr(number, value).unwrap();
            assert_eq!(facility.problem_mfspr(spr::BESCR), Ok(expected));
            assert_eq!(facility.problem_mfspr(spr::BESCRS), Ok(expected));
            assert_eq!(facility.problem_mfspr(spr::BESCRSU), Ok(expected >> 32));
        }
    }

    #[test]
    fn an_ebb_suspends_a_transaction_and_rfebb_resumes_it() {
        for state in [None, Suspended, Transactional] {
            let mut facility = program(Processor::Power9, GE | PME);
            facility.context.transaction = state;
            assert!(facility.execute(&Instruction::at(0x1000)).ebb);
            let saved = (state as u64) << TS_SHIFT;
            assert_eq!(facility.mfspr(spr::BESCR), PMEO | saved);
            let expected = if state == None { None } else { Suspended };
            assert_eq!(facility.context.transaction, expected);
            assert_eq!(facility.rfebb(false), Ok(0x1004));
            assert_eq!(facility.context.transaction, state);
        }
    }

    #[test]
    fn rfebb_makes_no_other_change_of_a_transaction() {
        for (from, to) in [
            (None, 1),
            (None, 2),
            (None, 3),
            (Suspended, 0),
            (Transactional, 1),
        ] {
            let mut facility = program(Processor::Power9, to << TS_SHIFT);
            facility.context.transaction = from;
            assert_eq!(facility.rfebb(true), Err(Trap::TmBadThing), "{from:?} {to}");
            assert_eq!(facility.mfspr(spr::BESCR), to << TS_SHIFT);
        }
        let mut power10 = program(Processor::Power10, 1 << TS_SHIFT);
        assert_eq!(power10.rfebb(true), Err(Trap::EmulationAssistance));
    }

    #[test]
    fn addresses_are_those_of_instructions() {
        let mut facility = program(Processor::Power9, GE | PME);
        facility.mtspr(spr::EBBHR, HANDLER + 3);
        assert_eq!(facility.execute(&Instruction::at(0x1000)).next, HANDLER);
        facility.mtspr(spr::EBBRR, 0x2003);
        assert_eq!(facility.rfebb(false), Ok(0x2000));
    }

    #[test]
    fn an_ebb_waits_for_ebe_or_does_not() {
        for outlives in [false, true] {
            let mut facility = program(Processor::Power9, PME);
            if outlives {
                facility.have_ebbs_outlive_ebe();
            }
            facility.execute(&Instruction::at(0x1000));
            let mmcr0 = facility.mfspr(spr::MMCR0);
            facility.mtspr(spr::MMCR0, mmcr0 & !EBE);
            facility.problem_mtspr(spr::BESCRS, GE).unwrap();
            assert_eq!(facility.execute(&Instruction::at(0x1004)).ebb, outlives);
            facility.mtspr(spr::MMCR0, mmcr0);
            assert_eq!(facility.execute(&Instruction::at(0x1008)).ebb, !outlives);
        }
    }

    #[test]
    fn an_alert_waits_for_ebe() {
        let mut facility = program(Processor::Power9, GE | PME);
        facility.mmcr0 &= !EBE;
        assert!(!facility.execute(&Instruction::at(0x1000)).ebb);
        assert!(facility.interrupt_is_due());
        let mmcr0 = facility.mfspr(spr::MMCR0);
        facility.mtspr(spr::MMCR0, mmcr0 | EBE);
        assert!(!facility.interrupt_is_due());
        assert_eq!(facility.mfspr(spr::BESCR), GE | PMEO);
    }
}
