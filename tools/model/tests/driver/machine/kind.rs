// SPDX-License-Identifier: GPL-2.0

//! The kinds of machines that the driver runs on.

use super::Cpu;
use pmu_model::{Facility, Guest, Isa, Processor};

/// Properties of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub processor: Processor,
    /// The machine is bare metal, not a partition.
    pub hypervisor: bool,
    /// A partition of a processor of ISA v3.1 runs in the compatibility mode of POWER9: its kernel
    /// uses ISA v3.0, but the facility is that of the processor.
    pub is_compatible: bool,
    /// The hypervisor gives the partition's CPUs to no other. The module has `dedicated_cpus=1`.
    pub is_dedicated: bool,
    /// SDAR may change at any time: see [`Facility::let_sdar_change`].
    pub sdar_changes: bool,
    /// EBBs do not require EBE: see [`Facility::let_ebbs_outlive_ebe`].
    pub ebbs_outlive_ebe: bool,
    /// Alerts may occur some instructions late: [`Facility::allow_delayed_alerts`].
    pub may_delay_alerts: bool,
    /// The driver is interposed, beside the driver that is built into the kernel.
    pub is_interposed: bool,
    /// The kernel needs so much time for a sample that PM interrupts overload it.
    pub is_slow: bool,
    /// The seed for choices of the hardware: see [`Facility::randomize`].
    pub seed: u64,
}

impl Kind {
    pub fn partition(processor: Processor) -> Self {
        Self {
            processor,
            hypervisor: false,
            is_compatible: false,
            is_dedicated: false,
            sdar_changes: false,
            ebbs_outlive_ebe: false,
            may_delay_alerts: false,
            is_interposed: false,
            is_slow: false,
            seed: 1,
        }
    }

    pub fn dedicated_partition(processor: Processor) -> Self {
        Self {
            is_dedicated: true,
            ..Self::partition(processor)
        }
    }

    pub fn bare_metal(processor: Processor) -> Self {
        Self {
            hypervisor: true,
            ..Self::partition(processor)
        }
    }

    /// Returns several machines for each processor, which differ in undefined behaviour. Some are
    /// partitions in the compatibility mode of POWER9.
    pub fn of_each(kind: fn(Processor) -> Self) -> impl Iterator<Item = Self> {
        let kinds = Processor::ALL.into_iter().map(kind);
        kinds.flat_map(|kind| {
            (1..=8).map(move |seed| {
                Self {
                    ebbs_outlive_ebe: seed & 1 != 0,
                    seed,
                    ..kind
                }
                .compatible(seed & 2 != 0)
            })
        })
    }

    /// Returns this machine in the compatibility mode of POWER9, if `is_wanted` and it has that
    /// mode.
    pub fn compatible(self, is_wanted: bool) -> Self {
        let is_possible = self.processor.isa() >= Isa::V31 && !self.hypervisor;
        Self {
            is_compatible: is_wanted && is_possible,
            ..self
        }
    }

    /// Returns the version of the ISA that the kernel uses.
    pub fn kernels_isa(&self) -> Isa {
        if self.is_compatible {
            Isa::V300
        } else {
            self.processor.isa()
        }
    }

    /// Returns the time that the kernel needs for a sample, in ticks of the time base: 1 us, or
    /// almost 35 ms. With the latter the second of two samples in a row is one too many if each
    /// takes a microsecond more.
    pub fn ticks_of_sample(&self) -> u64 {
        if self.is_slow { 69_397 << 8 } else { 512 }
    }

    /// Lets others run on a CPU while its PMU is unused, depending on its number: another
    /// partition, which may soon run again, or on bare metal a guest of the kernel.
    pub fn let_others_run(&self, cpu: &mut Cpu, number: u64) {
        const GUESTS: [Guest; 3] = [Guest::WITH_EBBS, Guest::WITH_ALERT, Guest::COUNTING];
        let random = self.seed.rotate_right(number as u32);
        match GUESTS.get(random as usize % 4) {
            Some(guest) if self.hypervisor => cpu.facility.run_guest(&cpu.lppaca, *guest),
            Some(_) => {
                cpu.preempt();
                cpu.preempted_in = Some((random >> 2) as u8 % 8);
            }
            None => {}
        }
    }

    /// Returns the facility of a CPU or of a program with this number.
    pub fn facility(&self, number: u64) -> Facility {
        let mut facility = Facility::new(self.processor);
        facility.randomize(self.seed.rotate_left(16) ^ number);
        if self.sdar_changes {
            facility.let_sdar_change();
        }
        if self.ebbs_outlive_ebe {
            facility.let_ebbs_outlive_ebe();
        }
        if self.may_delay_alerts {
            facility.allow_delayed_alerts();
        }
        facility
    }
}
