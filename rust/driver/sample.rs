// SPDX-License-Identifier: GPL-2.0

//! Samples: the contents of the PMU's registers when a counter overflows, and the part of them that
//! the sample shows.
//!
//! The owner of an event that excludes the kernel must not see addresses of the kernel, nor
//! counters of events of other owners:
//!
//!
//! - `sample_location.rs` and `branch_stack.rs` leave out kernel addresses;
//! - perf core reads the extended registers from the PMU while it writes the sample, so
//!   [`PmuSnapshot::report`] hides the values that the owner must not see for that time;
//! - perf core itself leaves out the interrupted registers if they are the kernel's, and the
//!   kernel's part of a callchain unless the event asks for it and its owner may see it.

use super::event::Event;
use super::{
    branch_stack,
    cpu_state::{
        local_pmu,
        ThisCpu, //
    },
    event::counter,
    memory,
    sample_location::{
        data_address,
        SampleDisposition,
        SampleLocation, //
    }, //
};
use crate::{
    isa207::{
        CpuModel,
        Isa,
        SampleRegisters, //
    },
    perf::{
        Attr,
        BranchStack,
        Sample,
        SampleFormat,
        SampleType, //
    },
    power::{
        extended_regs::{
            self,
            HiddenInstruction,
            SampleCounters, //
        },
        interrupt::{
            Interrupted,
            ProgramRegs, //
        },
        pmu,
        regs::{
            Mmcra,
            Sdar,
            Siar,
            Sier,
            Sier2,
            Sier3, //
        }, //
    }, //
};
use core::ptr::NonNull;
use kernel::bindings::pt_regs;

/// The registers of the frozen PMU, read once for all overflowed counters.
pub(super) struct PmuSnapshot<'a> {
    model: &'static CpuModel,
    /// The values of the counters, if an event samples them.
    counters: Option<&'a [u32; pmu::COUNTERS]>,
    siar: u64,
    sier: Sier,
    mmcra: Mmcra,
}

impl<'a> PmuSnapshot<'a> {
    /// Returns whether a snapshot needs the counters, because an event samples them.
    pub(super) fn needs_counters(this_cpu: &ThisCpu) -> bool {
        let samples_them = |event: &Event| {
            let attr = event.attr();
            attr.sample_type().contains_any(SampleType::REGISTERS)
                && extended_regs::has_counters(attr.sample_regs())
        };
        this_cpu.slots().iter().any(samples_them)
    }

    /// Reads the registers. Without an alert SIAR and SIER are undefined and left out, except for a
    /// marked instruction.
    pub(super) fn read(
        model: &'static CpuModel,
        counters: Option<&'a [u32; pmu::COUNTERS]>,
        is_alert: bool,
    ) -> Self {
        let mmcra = Mmcra::read();
        let is_known = is_alert || mmcra.sample_enable() == 1;
        let siar = if is_known { Siar::read() } else { 0 };
        if !is_alert && siar == 0 && model.isa() >= Isa::V31 {
            // perf core reads SIER2 and SIER3 itself, and they may describe another program's
            // execution.
            Sier2::write(0);
            Sier3::write(0);
        }
        Self {
            model,
            counters,
            siar,
            sier: if is_known {
                Sier::read()
            } else {
                Sier::from(0)
            },
            mmcra,
        }
    }

    /// Returns whether the PMU samples marked instructions instead of the instruction at the
    /// overflow.
    fn is_marked(&self) -> bool {
        self.mmcra.sample_enable() == 1
    }

    /// Returns whether SIER gives the marked instruction a type that the architecture reserves, so
    /// that the other fields have no meaning.
    fn has_reserved_type(&self) -> bool {
        self.is_marked() && self.model.instruction_type(&self.registers(0)).is_none()
    }

    /// Returns the registers in the form that `isa207` takes. `sier2` is read separately, because
    /// few events ask for it.
    fn registers(&self, sier2: u64) -> SampleRegisters {
        SampleRegisters {
            sier: self.sier.into(),
            sier2,
            mmcra: self.mmcra.into(),
        }
    }

    /// Returns the location of the overflow.
    fn location(&self, interrupted: &Interrupted) -> SampleLocation {
        SampleLocation {
            marked: self.is_marked(),
            siar: self.siar,
            sier: self.sier,
            has_sipr: self.model.isa() < Isa::V31,
            has_siar_valid: self.model.has_siar_valid(),
            nip: interrupted.nip(),
            in_program: interrupted.is_user(),
        }
    }

    /// Reports an overflow of `event`, with a sample that stands for `period` events.
    pub(super) fn report(
        &self,
        this_cpu: &ThisCpu,
        event: &Event,
        period: u64,
        interrupted: &mut Interrupted,
    ) {
        let attr = event.attr();
        let disposition = if attr.samples(SampleFormat::DataSrc) && self.has_reserved_type() {
            SampleDisposition::Unknown
        } else {
            self.location(interrupted)
                .disposition(attr.samples(SampleFormat::Ip), attr.exclude_kernel())
        };
        let SampleDisposition::Instruction { ip, by_siar } = disposition else {
            let known = disposition != SampleDisposition::Unknown;
            return self.report_without_instruction(this_cpu, event, period, known, interrupted);
        };
        // The kernel derives the sample's privilege level and its callchain from these registers.
        interrupted.set_perf_regs(by_siar, self.sier, self.mmcra);
        let regs = interrupted.as_raw();
        if attr.sample_type().contains_any(SampleType::BEYOND_IP) {
            self.report_beyond_ip(this_cpu, event, period, ip, true, regs);
        } else {
            // SAFETY: The handler of a PMI calls this for an event on this CPU, with the registers
            // that the PMI interrupted.
            unsafe { Sample::new(event, period, ip).overflow(regs) };
        }
    }

    /// Reports an overflow whose sample shows no instruction. If the event is `known` to be near
    /// the address where the program entered the kernel, the sample has that address. Otherwise it
    /// has the address 0 and counts as lost.
    fn report_without_instruction(
        &self,
        this_cpu: &ThisCpu,
        event: &Event,
        period: u64,
        known: bool,
        interrupted: &mut Interrupted,
    ) {
        if !known {
            event.count_lost_samples(1);
        }
        interrupted.set_perf_regs(false, Sier::from(0), self.mmcra);
        let mut program = ProgramRegs::copy(&local_pmu(this_cpu.irqs_off()));
        let ip = if known { program.nip() } else { 0 };
        let attr = event.attr();
        // perf core takes privilege level and callchain from these registers: the program's. An
        // event that raises SIGTRAP keeps the interrupted registers. perf core warns if two
        // overflows before the signal are at different addresses of the program, which
        // `rt_sigreturn` can cause, but it does not check registers of the kernel.
        let regs = if attr.exclude_kernel() && !attr.sigtrap() && program.nip() != 0 {
            program.as_raw()
        } else {
            interrupted.as_raw()
        };
        self.report_beyond_ip(this_cpu, event, period, ip, false, regs);
    }

    /// Reports a sample with fields other than its address and time. Leaves out the fields about
    /// the instruction unless the sample `shows_instruction`. `regs` are those of
    /// [`Sample::overflow`].
    #[inline(never)] // Saves 10 of 413 instructions of a sample (`make bench`).
    fn report_beyond_ip(
        &self,
        this_cpu: &ThisCpu,
        event: &Event,
        period: u64,
        ip: u64,
        shows_instruction: bool,
        regs: NonNull<pt_regs>,
    ) {
        let attr = event.attr();
        let mut stack = BranchStack::new();
        let mut sample = Sample::new(event, period, ip);
        if shows_instruction {
            self.describe_instruction(attr, &mut sample);
        }
        let local = local_pmu(this_cpu.irqs_off());
        let registers = attr.sample_regs();
        // Both guards live until this function returns. By then perf core has written the sample.
        let _shown = extended_regs::has_counters(registers)
            .then(|| SampleCounters::show(&local, &self.counters_for(this_cpu, event)));
        let _hidden =
            (attr.exclude_kernel() && extended_regs::has_instruction(registers)).then(|| {
                if shows_instruction {
                    HiddenInstruction::hide_addresses(&local, self.mmcra)
                } else {
                    HiddenInstruction::hide_all(&local, self.mmcra, self.model.isa() >= Isa::V31)
                }
            });
        if attr.samples(SampleFormat::BranchStack) {
            branch_stack::fill(this_cpu, event, &mut stack);
            sample.set_branch_stack(&mut stack);
        }
        // SAFETY: The handler of a PMI calls `report`, which calls this, for an event on this CPU,
        // with the registers that the PMI interrupted or those of the task's program.
        unsafe { sample.overflow(regs) };
    }

    /// Adds the instruction's data address, data source and weight, if `attr` asks for them.
    fn describe_instruction(&self, attr: &Attr, sample: &mut Sample<'_>) {
        if attr.sample_type().contains_any(SampleType::DATA_ADDRESS) {
            let sdar = Sdar::read();
            let exclude_kernel = attr.exclude_kernel();
            if let Some(address) = data_address(self.is_marked(), self.sier, sdar, exclude_kernel) {
                sample.set_addr(address);
            }
        }
        if attr.samples(SampleFormat::DataSrc) {
            if let Some(access) = self.model.memory_access(&self.registers(0)) {
                sample.set_data_src(memory::data_source(&access));
            }
        }
        if let Some(form) = attr.weight_type() {
            let sier2 = if self.model.isa() >= Isa::V31 {
                Sier2::read()
            } else {
                0
            };
            let weight = self.model.weight(&self.registers(sier2));
            sample.set_weight(memory::weight(weight, form));
        }
    }

    /// Returns the counters that the owner of `event` may see; the other counters are 0. If the
    /// event counts the kernel of a CPU, the owner may see all counters. Otherwise these are the
    /// counters of events that follow the same task or CPU and, if `event` excludes the kernel,
    /// exclude the kernel, too.
    fn counters_for(&self, this_cpu: &ThisCpu, event: &Event) -> [u32; pmu::COUNTERS] {
        let of_user = event.attr().exclude_kernel();
        let counters = self.counters.copied().unwrap_or_default();
        if !of_user && !event.follows_task() {
            return counters;
        }
        let mut visible = [0; pmu::COUNTERS];
        let may_see = |other: &Event| !of_user || other.attr().exclude_kernel();
        let shares = |other: &&Event| other.shares_context(event) && may_see(other);
        for other in this_cpu.slots().iter().filter(shares) {
            let Some(index) = counter(other) else {
                continue;
            };
            if let (Some(to), Some(&from)) = (visible.get_mut(index), counters.get(index)) {
                *to = from;
            }
        }
        visible
    }
}
