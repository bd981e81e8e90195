// SPDX-License-Identifier: GPL-2.0

//! Event-based branches: which alerts become interrupts, which become EBBs, and which wait.
//!
//! An exception of the performance monitor exists while PMAO is set. If MMCR0\[EBE\] is 0 it causes
//! an interrupt as soon as MSR\[EE\] allows it. If EBE is 1 and BESCR\[PME\] is 1 it becomes an
//! event-based exception, which causes an event-based branch once the thread is in problem state
//! with BESCR\[GE\] set. An exception waits until all these conditions hold, in whatever order they
//! come true.

use crate::{
    Facility, Fault, Isa, Transaction, Trap,
    fields::{bescr, mmcr0, spr},
};

/// The bits of EBBHR and EBBRR that are an address.
const ADDRESS: u64 = !3;

impl Facility {
    /// Returns whether a performance monitor interrupt occurs before the next instruction.
    ///
    /// \[QEMU\] for the interrupt line that follows PMAO and MSR\[EE\]; \[microwatt\] `p_out.intr`;
    /// \[kernel\] `pmu-ebb.rst`: under EBE all interrupts go to the program.
    pub fn interrupt_is_due(&self) -> bool {
        self.exception && self.mmcr0 & mmcr0::EBE == 0 && self.context.ee
    }

    /// Returns whether an exception exists. On POWER8E no register shows that.
    pub fn has_exception(&self) -> bool {
        self.exception
    }

    /// Sets PMEO and clears PME if an exception exists with EBE and PME set, in whatever state the
    /// thread is.
    ///
    /// \[memory\] Book II, BESCR; \[kernel\] selftest `ebb.c`, `reset_ebb_with_clear_mask()`, which
    /// clears PMEO and sets PME after each EBB. Its comment says that hardware, unlike the
    /// documents, does not couple them with PMAO and PMAE.
    pub(crate) fn raise_event_based_exception(&mut self) {
        if self.exception && self.mmcr0 & mmcr0::EBE != 0 && self.bescr & bescr::PME != 0 {
            if !Fault::Exception.is_on() {
                self.bescr &= !bescr::PME;
            }
            self.bescr |= bescr::PMEO;
        }
    }

    /// Lets a waiting event-based branch occur without MMCR0\[EBE\]: BESCR alone decides then, as
    /// in \[QEMU\] for a branch that it has latched. No code may rely on either behaviour.
    pub fn let_ebbs_outlive_ebe(&mut self) {
        self.ebbs_outlive_ebe = true;
    }

    /// Takes an event-based branch if one is due before the instruction at `next`. Returns the
    /// address of the handler.
    ///
    /// \[ISA\] v3.1, Book II, chapter 6, as the commit messages of \[QEMU\] quote it: bits 0 to 61
    /// of EBBRR get the address, GE is cleared; \[kernel\] `pmu-ebb.rst`, selftests: only in
    /// problem state with GE set. Without EBE none occurs, whatever BESCR holds: \[memory\] Book
    /// III, MMCR0\[EBE\]; but see [`Facility::let_ebbs_outlive_ebe`].
    ///
    /// Before v3.1, BESCR\[TS\] gets the value of MSR\[TS\], and a transaction is suspended.
    /// \[KVM\] `kvmhv_p9_tm_emulation()`, where TS is 0b10 when `rfebb` returns from suspended to
    /// transactional state; \[memory\] Book II, BESCR.
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

    /// Enters problem state at `address`, as a return from an interrupt does. Returns the address
    /// where the thread continues: that of the handler if an event-based branch was waiting.
    ///
    /// \[QEMU\] `do_ebb()`, which keeps the branch until then; \[memory\] Book II, chapter 6.
    pub fn enter_problem_state(&mut self, address: u64) -> u64 {
        self.synchronize();
        self.context.problem = true;
        self.context.ee = true;
        self.take_ebb(address).unwrap_or(address)
    }

    /// Executes `rfebb`. GE gets the value of the operand. The thread continues at EBBRR, or in the
    /// handler if another event-based branch is due.
    ///
    /// MSR\[TS\] gets the value of BESCR\[TS\], which may only resume a transaction. On v3.1, which
    /// has no transactions, a TS other than 0 makes the instruction invalid.
    ///
    /// \[KVM\] `kvmhv_p9_tm_emulation()`; \[QEMU\] `helper_rfebb()`, which quotes the ISA v3.1 for
    /// the invalid form. Bits 62 and 63 of EBBRR are no part of the address: \[memory\] Book II,
    /// `rfebb`. For the allowed changes: \[memory\] Book III, "Transaction State Transitions".
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

    /// Writes a register of the event-based branch facility. BESCRS sets and BESCRR clears the
    /// BESCR bits that are 1 in the value. BESCRSU and BESCRRU take 32 bits and apply them to the
    /// upper half of BESCR.
    ///
    /// \[kernel\] selftest `reg.h`, `ebb.c`. For BESCRSU and BESCRRU: OpenJ9's profiler for POWER8,
    /// which writes 0x8000_0000 for GE and 1 for PME; \[QEMU\] `spr_write_prev_upper32()`.
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

    /// Reads a register of the event-based branch facility. BESCRS and BESCRR return BESCR
    /// (\[memory\] Book II), BESCRSU and BESCRRU its upper half (\[QEMU\]
    /// `spr_read_prev_upper32()`).
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

    /// Creates a facility with EBBs set up, where the next instruction causes an alert.
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
                facility.let_ebbs_outlive_ebe();
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
