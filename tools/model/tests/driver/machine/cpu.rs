// SPDX-License-Identifier: GPL-2.0

//! A CPU: its facility, and what the kernel keeps for it.

use super::{KERNEL_DATA, KERNEL_TEXT, Kind};
use crate::history::text::marked_at;
use pmu_model::{
    Executed, Facility, Instruction, Lppaca, Mark, Trace, mmcr0, mmcra, sier, spr, told_of,
};

/// An instruction that the PMU sampled.
#[derive(Clone, Copy, Debug)]
pub struct Sampled {
    pub address: u64,
    pub data: u64,
    /// The instruction that SIER describes. A trace interrupt changes SIAR and SDAR only.
    pub described: u64,
    /// Random sampling marked that one.
    pub is_marked: bool,
}

/// Whether random sampling is on.
fn is_marking(facility: &Facility) -> bool {
    facility.in_effect(spr::MMCRA) & mmcra::SAMPLE_ENABLE != 0
}

/// A CPU.
pub struct Cpu {
    pub facility: Facility,
    pub lppaca: Lppaca,
    /// The hypervisor gives the CPU to no other partition. The module has `dedicated_cpus=1`.
    pub is_dedicated: bool,
    /// The hypervisor keeps the PMU from the partition: its registers read 0, whatever is written.
    pub is_denied: bool,
    /// The bit of the paca.
    pub pmi_pending: bool,
    /// The mask in software.
    pub mask: u8,
    /// The PMU's registers were turned on since the CPU came up.
    pub pmcs_enabled: bool,
    /// Where the program goes on.
    pub nip: u64,
    /// Where the kernel does.
    pub(super) kernel_nip: u64,
    /// The instruction that the PMU sampled last, if SIAR still has it.
    pub(super) sampled: Option<Sampled>,
    /// That one if the kernel has written something else there since.
    hidden: Option<Sampled>,
    /// The address of the instruction that completed last, and how many alerts had occurred then.
    last: u64,
    alerts: u64,
    /// The counters that samples show.
    pub ext_regs: [usize; 6],
    /// Handlers of other interrupts let PM interrupts through.
    pub prompt: bool,
    /// The hypervisor takes the CPU away after as many instructions of the kernel.
    pub preempted_in: Option<u8>,
    /// It has, in the middle of something, and ran another partition.
    pub was_preempted: bool,
    /// The kernel steps over a probe after as many instructions.
    pub probed_in: Option<u8>,
    /// It is in the handler of PM interrupts.
    pub(super) handles_pmi: bool,
}

impl Cpu {
    /// One that starts, with a facility by this number.
    pub(super) fn new(kind: Kind, number: u64) -> Self {
        let mut facility = kind.facility(number);
        facility.context.hypervisor = kind.hypervisor;
        if kind.is_compatible {
            // The kernel sets up what POWER9 has (`__setup_cpu_power9()` in `cpu_setup_power.c`).
            facility.mtspr(spr::MMCR0, mmcr0::FC);
            facility.mtspr(spr::MMCRA, 0);
        }
        Self {
            facility,
            lppaca: Lppaca::default(),
            is_dedicated: kind.is_dedicated,
            is_denied: false,
            pmi_pending: false,
            mask: 0,
            pmcs_enabled: false,
            nip: 0,
            kernel_nip: KERNEL_TEXT,
            sampled: None,
            hidden: None,
            last: KERNEL_TEXT,
            alerts: 0,
            ext_regs: [0; 6],
            prompt: false,
            preempted_in: None,
            was_preempted: false,
            probed_in: None,
            handles_pmi: false,
        }
    }

    /// The hypervisor takes the CPU away and gives it back. In between it runs another partition,
    /// or itself only if the CPU is dedicated.
    pub fn preempt(&mut self) {
        if self.is_dedicated {
            self.facility.interrupt_by_hypervisor(&mut self.lppaca);
        } else {
            self.facility.preempt(&mut self.lppaca);
        }
    }

    /// An instruction of the kernel has completed, after which the CPU may be taken away.
    pub(super) fn pass_to_hypervisor(&mut self) {
        match &mut self.preempted_in {
            None => {}
            Some(0) => {
                self.preempted_in = None;
                self.was_preempted = !self.is_dedicated;
                self.preempt();
            }
            Some(left) => *left -= 1,
        }
    }
}

impl Cpu {
    /// Executes an instruction, and keeps in mind whether the PMU samples it.
    pub(super) fn execute(&mut self, instruction: &Instruction) -> Executed {
        let could = self.facility.in_effect(spr::MMCR0) & mmcr0::PMAE != 0;
        self.notice_alert();
        // Writes take effect after it.
        let is_marking = is_marking(&self.facility);
        let executed = self.facility.execute(instruction);
        self.last = instruction.address;
        if !is_marking && !self.facility.is_known(spr::SIER) {
            self.sampled = None;
        }
        let samples = match is_marking {
            true => could && instruction.marked.is_some(),
            false => self.facility.alerts() != self.alerts,
        };
        if samples {
            self.sampled = Some(Sampled {
                address: instruction.address,
                data: self.facility.mfspr(spr::SDAR),
                described: instruction.address,
                is_marked: is_marking,
            });
        }
        let may_change = self.facility.context.trace != Trace::Off;
        if let Some(sampled) = self.sampled.as_mut().filter(|_| may_change) {
            sampled.address = self.facility.mfspr(spr::SIAR);
            sampled.data = self.facility.mfspr(spr::SDAR);
        }
        self.alerts = self.facility.alerts();
        executed
    }

    /// An alert may have occurred between two instructions, when a write took effect: then the PMU
    /// has sampled the one that completed last.
    pub(super) fn notice_alert(&mut self) {
        let alerts = self.facility.alerts();
        if std::mem::replace(&mut self.alerts, alerts) != alerts && !is_marking(&self.facility) {
            self.sampled = Some(Sampled {
                address: self.last,
                data: self.facility.mfspr(spr::SDAR),
                described: self.last,
                is_marked: false,
            });
        }
    }

    /// Returns the description of an instruction of the kernel, if random sampling is on and marks
    /// it.
    pub(super) fn marks(&self, address: u64) -> Option<Mark> {
        let marked = marked_at(address).filter(|_| is_marking(&self.facility));
        marked.map(|marked| marked.mark)
    }

    /// No alert of the facility is one of this kernel's.
    pub(super) fn forget_alerts(&mut self) {
        self.alerts = self.facility.alerts();
    }

    /// The kernel wrote SIAR: it hides the instruction, or shows it again.
    pub fn siar_is_written(&mut self, value: u64) {
        let known = self.sampled.take().or(self.hidden);
        (self.sampled, self.hidden) = match known {
            Some(sampled) if sampled.address == value => (known, None),
            _ => (None, known),
        };
    }

    /// The PMU has sampled another instruction before the interrupt of an alert comes: only SDAR is
    /// that one's, or all is.
    pub fn sample_kernel(&mut self, all: bool) {
        let address = self.kernel_nip;
        self.facility.mtspr(spr::SDAR, KERNEL_DATA);
        if all {
            self.facility.mtspr(spr::SIAR, address);
            self.facility.mtspr(spr::SIER, sier::SIARV | sier::SDARV);
            for number in [spr::SIER2, spr::SIER3] {
                self.facility.mtspr(number, told_of(address));
            }
        }
        if let Some(sampled) = &mut self.sampled {
            sampled.data = KERNEL_DATA;
        }
        if all {
            self.sampled = Some(Sampled {
                address,
                data: KERNEL_DATA,
                described: address,
                is_marked: false,
            });
        }
    }
}
