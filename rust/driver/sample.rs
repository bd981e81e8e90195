// SPDX-License-Identifier: GPL-2.0

//! Samples: what the PMU sampled when a counter overflowed, and how much of it an event's owner gets.
//!
//! # What an event's owner may see
//!
//! An event that excludes the kernel, as those of unprivileged users do, gets no address of the
//! kernel. A sample whose instruction is the kernel's is dropped, as the overflow came too late; a
//! data address of the kernel is left out, and the registers that hold either are hidden while perf
//! core writes extended registers, as are the counters of others. perf core itself leaves out the
//! interrupted registers where those are the kernel's, and has callers in the kernel only for who
//! asks for them and may see them.

use super::{
    branch,
    count,
    local_pmu,
    memory,
    Here, //
};
use crate::{
    isa207::{
        CpuModel,
        Isa,
        SampleRegisters, //
    },
    perf::{
        self,
        BranchStack,
        Event,
        Sample, //
    },
    power::{
        interrupt::Interrupted,
        machine,
        pmu, //
        regs::{
            Mmcra,
            Sdar,
            Siar,
            Sier,
            Sier2, //
        },
        sampled::{
            self,
            HiddenAddresses,
            SampledCounters, //
        },
    },
};

/// What is known of where a counter overflowed.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Instructions are sampled for marked events rather than at the overflow.
    pub(super) marked: bool,
    pub(super) siar: u64,
    pub(super) sier: Sier,
    /// Where the interrupt came.
    pub(super) nip: u64,
    /// It came in a program rather than in the kernel.
    pub(super) in_program: bool,
}

/// What becomes of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is reported, with this address unless that is not for the event's owner.
    Kept { ip: Option<u64>, by_siar: bool },
    /// It is dropped: it is the kernel's.
    Hidden,
    /// It is dropped, and counted as lost: nobody knows where it was.
    Lost,
}

impl Place {
    /// Whether SIAR says where the event happened rather than where it interrupted.
    ///
    /// In problem state the interrupt is prompt, so where it came is at least as good as SIAR. In
    /// the kernel it may have been held back; SIAR says where the overflow was.
    fn uses_siar(&self) -> bool {
        let prompt = self.in_program && self.sier.sipr() == 1;
        self.siar != 0 && (self.marked || !prompt)
    }

    /// What becomes of a sample here that `wants_ip`, of an event that may exclude the kernel.
    pub(super) fn fate(&self, wants_ip: bool, exclude_kernel: bool) -> Fate {
        if wants_ip && self.marked && self.sier.siar_valid() == 0 {
            return Fate::Lost;
        }
        let by_siar = self.uses_siar();
        let ip = if by_siar { self.siar } else { self.nip };
        if !(exclude_kernel && machine::is_kernel_address(ip)) {
            return Fate::Kept {
                ip: Some(ip),
                by_siar,
            };
        }
        if wants_ip {
            Fate::Hidden
        } else {
            Fate::Kept {
                ip: None,
                by_siar: false,
            }
        }
    }

    /// The address of the sampled instruction's data, which is `sdar` if that is known and if the
    /// event's owner may see it.
    pub(super) fn data_address(&self, sdar: u64, exclude_kernel: bool) -> Option<u64> {
        let known = !self.marked || self.sier.sdar_valid() == 1;
        let shown = !(exclude_kernel && machine::is_kernel_address(sdar));
        (known && shown).then_some(sdar)
    }
}

/// The state of the frozen PMU, read once for all counters of an interrupt.
pub(super) struct Sampled {
    model: &'static CpuModel,
    counters: [u32; pmu::COUNTERS],
    siar: u64,
    sier: Sier,
    mmcra: Mmcra,
}

impl Sampled {
    /// Reads the state.
    pub(super) fn read(model: &'static CpuModel) -> Self {
        Self {
            model,
            counters: core::array::from_fn(pmu::read_pmc),
            siar: Siar::read(),
            sier: Sier::read(),
            mmcra: Mmcra::read(),
        }
    }

    /// The counters, PMC1 first.
    pub(super) fn counters(&self) -> &[u32; pmu::COUNTERS] {
        &self.counters
    }

    /// Instructions are sampled for marked events rather than at the overflow.
    fn is_marked(&self) -> bool {
        self.mmcra.sample_enable() == 1
    }

    /// Whether nothing can be said about the instruction of a marked event.
    fn is_void(&self) -> bool {
        self.is_marked() && self.model.instruction_type(&self.registers(0)).is_none()
    }

    /// The registers as `isa207` wants them, with `sier2`, which few ask for.
    fn registers(&self, sier2: u64) -> SampleRegisters {
        SampleRegisters {
            sier: self.sier.into(),
            sier2,
            mmcra: self.mmcra.into(),
        }
    }

    /// Where the overflow was, as far as it is known.
    fn place(&self, interrupted: &Interrupted) -> Place {
        Place {
            marked: self.is_marked(),
            siar: self.siar,
            sier: self.sier,
            nip: interrupted.nip(),
            in_program: interrupted.is_user(),
        }
    }

    /// Reports a sample of `event`, which stands for `period` events, unless it is worthless or not
    /// for the event's owner.
    pub(super) fn report(
        &self,
        here: &Here<'_>,
        event: &Event,
        period: u64,
        interrupted: &mut Interrupted,
    ) {
        let attr = event.attr();
        let place = self.place(interrupted);
        let void = attr.samples_data_source() && self.is_void();
        let fate = place.fate(attr.samples_ip(), attr.exclude_kernel());
        let (ip, by_siar) = match fate {
            Fate::Kept { ip, by_siar } if !void => (ip, by_siar),
            _ => {
                if void || fate == Fate::Lost {
                    event.count_lost_sample();
                }
                // SAFETY: This is called by the PMI's handler, for an event on this CPU.
                unsafe { perf::account_interrupt(event) };
                return;
            }
        };
        // Privilege level and callchain of the sample are made of these by the kernel.
        interrupted.set_sampled(by_siar, self.sier, self.mmcra);
        if attr.samples_more() {
            self.report_more(here, event, period, ip, interrupted);
        } else {
            let sample = Sample::new(period, ip);
            // SAFETY: As above; the registers are those that the PMI interrupted.
            unsafe { sample.overflow(event, interrupted.as_raw()) };
        }
    }

    /// Reports a sample with more than where it is and when.
    #[inline(never)]
    fn report_more(
        &self,
        here: &Here<'_>,
        event: &Event,
        period: u64,
        ip: Option<u64>,
        interrupted: &Interrupted,
    ) {
        let attr = event.attr();
        let mut stack = BranchStack::new();
        let mut sample = Sample::new(period, ip);
        if attr.samples_address() {
            let place = self.place(interrupted);
            if let Some(address) = place.data_address(Sdar::read(), attr.exclude_kernel()) {
                sample.set_address(address);
            }
        }
        if attr.samples_data_source() {
            if let Some(access) = self.model.memory_access(&self.registers(0)) {
                sample.set_data_source(memory::source(&access));
            }
        }
        if let Some(form) = attr.sampled_weight() {
            let sier2 = if self.model.isa() >= Isa::V31 {
                Sier2::read()
            } else {
                0
            };
            let weight = self.model.weight(&self.registers(sier2));
            sample.set_weight(memory::weight(weight, form));
        }
        let local = local_pmu(here);
        let registers = attr.sampled_registers();
        let _shown = sampled::has_counters(registers)
            .then(|| SampledCounters::show(&local, &self.counters_for(here, event)));
        let _hidden = (attr.exclude_kernel() && sampled::has_addresses(registers))
            .then(|| HiddenAddresses::hide(&local));
        if attr.samples_branches() {
            branch::read(here, event, &mut stack);
            sample.set_branches(attr, &mut stack);
        }
        // SAFETY: As above; the registers are those that the PMI interrupted.
        unsafe { sample.overflow(event, interrupted.as_raw()) };
    }

    /// The counters as far as the owner of `event` may see them: those of events that follow the same
    /// task and exclude the kernel too, and all where the kernel is not excluded.
    fn counters_for(&self, here: &Here<'_>, event: &Event) -> [u32; pmu::COUNTERS] {
        if !event.attr().exclude_kernel() {
            return self.counters;
        }
        let mut shown = [0; pmu::COUNTERS];
        let own = |other: &&Event| other.shares_context(event) && other.attr().exclude_kernel();
        for own in here.slots().iter().filter(own) {
            let Some(index) = count::counter(own) else {
                continue;
            };
            if let (Some(to), Some(&counter)) = (shown.get_mut(index), self.counters.get(index)) {
                *to = counter;
            }
        }
        shown
    }
}
