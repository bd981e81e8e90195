// SPDX-License-Identifier: GPL-2.0

//! The facility of a thread: its registers, and the effects of each instruction and each privileged
//! `mtspr`.

use crate::{
    Context, Instruction, Isa, Processor,
    bhrb::Bhrb,
    delays::DelayedWrites,
    fields::{mmcr0, mmcra, spr},
    random::Random,
    sampling::Known,
};

/// A counter of this value or more is negative.
pub(crate) const NEGATIVE: u32 = 0x8000_0000;

/// The facility of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facility {
    pub(crate) processor: Processor,
    /// The state that the thread runs in.
    pub context: Context,
    pub(crate) pmc: [u32; 6],
    pub(crate) mmcr0: u64,
    pub(crate) mmcr1: u64,
    pub(crate) mmcr2: u64,
    pub(crate) mmcr3: u64,
    pub(crate) mmcra: u64,
    pub(crate) siar: u64,
    pub(crate) sdar: u64,
    pub(crate) sier: u64,
    pub(crate) sier2: u64,
    pub(crate) sier3: u64,
    pub(crate) bescr: u64,
    pub(crate) ebbhr: u64,
    pub(crate) ebbrr: u64,
    /// An exception of the performance monitor exists. PMAO shows it, except on POWER8E.
    pub(crate) exception: bool,
    /// Number of alerts that have occurred.
    pub(crate) alerts: u64,
    /// The instruction that completed last, and the state in which it ran.
    pub(crate) last: (Instruction, Context),
    pub(crate) bhrb: Bhrb,
    /// The sampling registers that still hold the value of an alert or of software.
    pub(crate) known: Known,
    /// Continuous sampling updates SDAR even if MMCR0 forbids it, see [`Facility::let_sdar_change`].
    pub(crate) sdar_changes: bool,
    /// Event-based branches do not require EBE, see [`Facility::let_ebbs_outlive_ebe`].
    pub(crate) ebbs_outlive_ebe: bool,
    pub(crate) delayed_writes: DelayedWrites,
    /// Alerts may occur some instructions late, see [`Facility::allow_delayed_alerts`].
    pub(crate) may_delay_alerts: bool,
    /// The number of instructions until the alert occurs for a condition that exists.
    pub(crate) delayed_alert: Option<u32>,
    pub(crate) random: Random,
}

/// The result of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Executed {
    /// The address of the next instruction of the thread.
    pub next: u64,
    /// An event-based branch occurred, so `next` is the address of the handler.
    pub ebb: bool,
    /// A trace interrupt occurs before `next`. An event-based branch waits until the thread
    /// returns.
    pub traced: bool,
}

impl Facility {
    /// Creates a facility as the kernel leaves it at boot: frozen, in the kernel of a partition.
    ///
    /// \[kernel\] `init_PMU()` and `init_PMU_ISA31()` in `cpu_setup_power.c`.
    pub fn new(processor: Processor) -> Self {
        let v31 = processor.isa() >= Isa::V31;
        Self {
            processor,
            context: Context::KERNEL,
            pmc: [0; 6],
            mmcr0: mmcr0::FC | if v31 { mmcr0::PMCCEXT } else { 0 },
            mmcr1: 0,
            mmcr2: 0,
            mmcr3: 0,
            mmcra: if v31 { mmcra::BHRBRD } else { 0 },
            siar: 0,
            sdar: 0,
            sier: 0,
            sier2: 0,
            sier3: 0,
            bescr: 0,
            ebbhr: 0,
            ebbrr: 0,
            exception: false,
            alerts: 0,
            last: (Instruction::at(0), Context::KERNEL),
            bhrb: Bhrb::default(),
            known: Known::ALL,
            sdar_changes: false,
            ebbs_outlive_ebe: false,
            delayed_writes: DelayedWrites::default(),
            may_delay_alerts: false,
            delayed_alert: None,
            random: Random::new(1),
        }
    }

    /// Seeds the choices that hardware may make in different ways.
    pub fn randomize(&mut self, seed: u64) {
        self.random = Random::new(seed);
    }

    /// Returns the processor.
    pub fn processor(&self) -> Processor {
        self.processor
    }

    /// Returns whether privileged state has a register with this number.
    pub fn has_spr(&self, number: u32) -> bool {
        match number {
            spr::MMCR3 | spr::SIER2 | spr::SIER3 => self.processor.isa() >= Isa::V31,
            spr::SIER..=spr::PMC6 | spr::MMCR0..=spr::MMCR1 => true,
            spr::BESCRS..=spr::BESCR => true,
            _ => false,
        }
    }

    /// Reads a register in privileged state. A number without a register reads as 0, because the
    /// instruction does nothing then (\[memory\] Book III, `mfspr`).
    pub fn mfspr(&self, number: u32) -> u64 {
        if !self.has_spr(number) {
            return 0;
        }
        let delayed = self.delayed_writes.value(number);
        delayed.unwrap_or_else(|| self.in_effect(number))
    }

    /// Returns the value of a register that is in effect, without the writes that are not. The
    /// processor must have the register.
    pub fn in_effect(&self, number: u32) -> u64 {
        match number {
            spr::MMCR0 => self.mmcr0,
            spr::MMCR1 => self.mmcr1,
            spr::MMCR2 => self.mmcr2,
            spr::MMCR3 => self.mmcr3,
            spr::MMCRA => self.mmcra,
            spr::SIAR => self.siar,
            spr::SDAR => self.sdar,
            spr::SIER => self.sier,
            spr::SIER2 => self.sier2,
            spr::SIER3 => self.sier3,
            spr::PMC1..=spr::PMC6 => self.pmc[(number - spr::PMC1) as usize].into(),
            _ => self.read_ebb(number),
        }
    }

    /// Writes a register in privileged state. This write and all earlier ones take effect at once.
    pub fn mtspr(&mut self, number: u32, value: u64) {
        self.synchronize();
        self.write_register(number, value);
    }

    /// Stores a value in a register. Does nothing if no register has the number.
    ///
    /// Counters have 32 bits, and MMCR0 uses 32 (\[microwatt\]).
    pub(crate) fn write_register(&mut self, number: u32, value: u64) {
        if !self.has_spr(number) {
            return;
        }
        let before = self.pmc;
        if self.mmcr0 & mmcr0::PMAE == 0 {
            self.known.add(number);
        }
        match number {
            spr::MMCR0 => self.write_mmcr0(value & 0xffff_ffff),
            spr::MMCR1 => self.mmcr1 = value,
            spr::MMCR2 => self.mmcr2 = value,
            spr::MMCR3 => self.mmcr3 = value,
            spr::MMCRA => self.mmcra = value,
            spr::SIAR => self.siar = value,
            spr::SDAR => self.sdar = value,
            spr::SIER => self.sier = value,
            spr::SIER2 => self.sier2 = value,
            spr::SIER3 => self.sier3 = value,
            spr::PMC1..=spr::PMC6 => self.pmc[(number - spr::PMC1) as usize] = value as u32,
            _ => self.write_ebb(number, value),
        }
        self.react(before);
    }

    /// Completes an instruction in the thread's present state, and takes an event-based branch that
    /// is due after it. The caller takes interrupts ([`Facility::interrupt_is_due`],
    /// [`Executed::traced`]).
    pub fn execute(&mut self, instruction: &Instruction) -> Executed {
        let before = self.pmc;
        self.last = (*instruction, self.context);
        self.record_branch(instruction);
        self.sample_continuously(instruction);
        self.sample_marked(instruction);
        self.count_threshold(instruction);
        let counting: [bool; 6] = core::array::from_fn(|pmc| self.counts(pmc));
        for (pmc, _) in counting.iter().enumerate().filter(|(_, counts)| **counts) {
            let occurrences = self.occurrences(pmc, instruction);
            self.pmc[pmc] = self.pmc[pmc].wrapping_add(occurrences);
        }
        self.count_down_alert();
        self.react(before);
        self.count_down_writes();
        let next = instruction.next();
        let traced = self.trace(instruction);
        let handler = if traced { None } else { self.take_ebb(next) };
        Executed {
            next: handler.unwrap_or(next),
            ebb: handler.is_some(),
            traced,
        }
    }

    /// Handles the consequences of a change: conditions, alerts, event-based exceptions. `before`
    /// has the counters' previous values.
    pub(crate) fn react(&mut self, before: [u32; 6]) {
        self.raise_alerts(before);
        self.raise_event_based_exception();
    }
}

#[cfg(test)]
mod tests {
    use crate::{Facility, Processor, mmcr0, mmcra, spr};

    #[test]
    fn the_kernel_leaves_it_frozen() {
        let power9 = Facility::new(Processor::Power9);
        assert_eq!(power9.mfspr(spr::MMCR0), mmcr0::FC);
        let power10 = Facility::new(Processor::Power10);
        assert_eq!(power10.mfspr(spr::MMCR0), mmcr0::FC | mmcr0::PMCCEXT);
        assert_eq!(power10.mfspr(spr::MMCRA), mmcra::BHRBRD);
    }
}
