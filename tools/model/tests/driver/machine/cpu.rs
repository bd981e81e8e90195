// SPDX-License-Identifier: GPL-2.0

//! A CPU: its facility, and the kernel's data for it.

use super::{KERNEL_DATA, KERNEL_TEXT, Kind};
use crate::history::program_code::marked_at;
use pmu_model::{
    Executed, Facility, Instruction, Lppaca, Mark, Trace, identifying_bits, mmcr0, mmcra, sier, spr,
};

/// An instruction that the PMU sampled.
#[derive(Clone, Copy, Debug)]
pub struct Sampled {
    pub address: u64,
    pub data: u64,
    /// The instruction that SIER describes. A trace interrupt changes only SIAR and SDAR.
    pub described: u64,
    /// Random sampling has marked the instruction that SIER describes.
    pub is_marked: bool,
}

/// Returns whether random sampling is on.
fn is_marking(facility: &Facility) -> bool {
    facility.in_effect(spr::MMCRA) & mmcra::SAMPLE_ENABLE != 0
}

/// A CPU.
pub struct Cpu {
    pub facility: Facility,
    pub lppaca: Lppaca,
    /// The hypervisor gives the CPU to no other partition. The module has `dedicated_cpus=1`.
    pub is_dedicated: bool,
    /// The hypervisor denies the partition the PMU: registers read as 0, and writes have no effect.
    pub is_denied: bool,
    /// The paca's flag for a pending PM interrupt.
    pub pmi_pending: bool,
    /// The interrupt mask in software.
    pub mask: u8,
    /// The kernel has turned on the PMU's registers since the CPU came online.
    pub pmcs_enabled: bool,
    /// The address of the program's next instruction.
    pub nip: u64,
    /// The address of the kernel's next instruction.
    pub(super) kernel_nip: u64,
    /// The last instruction that the PMU sampled, if SIAR still has it.
    pub(super) sampled: Option<Sampled>,
    /// The last instruction that the PMU sampled, if the kernel has since written another value to
    /// SIAR.
    hidden: Option<Sampled>,
    /// The address of the instruction that completed last, and the number of alerts at that time.
    last: u64,
    alerts: u64,
    /// The counters that samples show.
    pub ext_regs: [usize; 6],
    /// PM interrupts are allowed in handlers of other interrupts.
    pub prompt_pmis: bool,
    /// The number of kernel instructions after which the hypervisor takes the CPU away.
    pub preempted_in: Option<u8>,
    /// The hypervisor took the CPU away during other work, and ran another partition.
    pub was_preempted: bool,
    /// The number of kernel instructions after which the kernel steps over a probe.
    pub probed_in: Option<u8>,
    /// The CPU runs the handler of PM interrupts.
    pub(super) handles_pmi: bool,
}

impl Cpu {
    /// Creates a CPU that starts, with the facility of this number.
    pub(super) fn new(kind: Kind, number: u64) -> Self {
        let mut facility = kind.facility(number);
        facility.context.hypervisor = kind.hypervisor;
        if kind.is_compatible {
            // The kernel sets up the registers of POWER9 (`__setup_cpu_power9()` in
            // `cpu_setup_power.c`).
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
            prompt_pmis: false,
            preempted_in: None,
            was_preempted: false,
            probed_in: None,
            handles_pmi: false,
        }
    }

    /// Lets the hypervisor take the CPU away and give it back. In between it runs another
    /// partition, or only itself if the CPU is dedicated.
    pub fn preempt(&mut self) {
        if self.is_dedicated {
            self.facility.interrupt_by_hypervisor(&mut self.lppaca);
        } else {
            self.facility.preempt(&mut self.lppaca);
        }
    }

    /// Counts a completed kernel instruction, after which the hypervisor may take the CPU away.
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
    /// Executes an instruction, and records whether the PMU samples it.
    pub(super) fn execute(&mut self, instruction: &Instruction) -> Executed {
        let could = self.facility.in_effect(spr::MMCR0) & mmcr0::PMAE != 0;
        self.notice_alert();
        // Writes take effect after this.
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

    /// Looks for an alert that occurred between two instructions because a write took effect. For
    /// that the PMU has sampled the instruction that completed last.
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

    /// Returns the description of a kernel instruction, if random sampling is on and marks it.
    pub(super) fn marks(&self, address: u64) -> Option<Mark> {
        let marked = marked_at(address).filter(|_| is_marking(&self.facility));
        marked.map(|marked| marked.mark)
    }

    /// Ignores the alerts up to now, which belong to no event of this kernel.
    pub(super) fn forget_alerts(&mut self) {
        self.alerts = self.facility.alerts();
    }

    /// Records that the kernel wrote SIAR, which hides the sampled instruction or restores it.
    pub fn siar_is_written(&mut self, value: u64) {
        let known = self.sampled.take().or(self.hidden);
        (self.sampled, self.hidden) = match known {
            Some(sampled) if sampled.address == value => (known, None),
            _ => (None, known),
        };
    }

    /// Lets the PMU sample a kernel instruction before the interrupt of an alert comes: only in
    /// SDAR, or in all registers.
    pub fn sample_kernel(&mut self, all: bool) {
        let address = self.kernel_nip;
        self.facility.mtspr(spr::SDAR, KERNEL_DATA);
        if all {
            self.facility.mtspr(spr::SIAR, address);
            self.facility.mtspr(spr::SIER, sier::SIARV | sier::SDARV);
            for number in [spr::SIER2, spr::SIER3] {
                self.facility.mtspr(number, identifying_bits(address));
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
