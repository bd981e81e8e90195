// SPDX-License-Identifier: GPL-2.0

//! Starting a PMU that is programmed: for events that belong to no program, or for a program, which
//! gets its part of the registers back.

use super::{
    cpu_state::{
        local_pmu,
        ExclusiveCpu, //
    },
    ebb,
    Driver, //
};
use crate::power::{
    pmu::{
        self,
        LocalPmu, //
    },
    regs::{
        Mmcr0,
        Mmcra, //
    }, //
};

/// Whose events the PMU starts with.
#[derive(Clone, Copy)]
pub(super) enum Start {
    /// They belong to no program. `negative`: a counter is.
    Events { negative: bool },
    /// A program's. `stays`: they were on the PMU when it was disabled.
    Program { stays: bool },
}

impl Driver {
    /// Starts the PMU, whose counters and control registers are set, but for MMCRA and MMCR0, and
    /// those that belong to a program.
    #[inline(always)] // For `start`, which is known.
    pub(super) fn start(&self, this_cpu: &ExclusiveCpu, local: &LocalPmu<'_>, start: Start) {
        let ebb = matches!(start, Start::Program { .. });
        let state = this_cpu.state();
        let mmcra = || Mmcra::from(state.mmcr.get().mmcra);
        if state.mmcr.get().has_threshold() {
            // The threshold counter may tell of what others ran: nothing freezes it.
            state.left.forget_mmcra();
        }
        self.write_mmcra(this_cpu, mmcra().with_const_sample_enable::<0>());
        let mut mmcr0 = Mmcr0::from(state.start_mmcr0.get());
        match start {
            Start::Program { stays } => {
                mmcr0 = mmcr0.with_program(ebb::switch_in(self, this_cpu, stays));
            }
            Start::Events { negative } => {
                // Only now: hardware may have set SDAR to an address of whatever ran while the PMU
                // was frozen, and a trace interrupt SIAR too. A sample would show the address if
                // its instruction accesses no data.
                state.left.sampled.set(None);
                local.clear_siar_sdar();
                if negative {
                    // `pmu_disable` dropped the alert, and POWER8 raises no other for a counter
                    // that is negative already. Later processors do; then one PMI serves both.
                    local.set_pmi_pending();
                }
            }
        }
        state.left.start();
        this_cpu.disabled.set(false);
        let marks = mmcra().sample_enable() == 1;
        if marks && !ebb {
            // A PMI before SIAR is cleared below would take what it finds for a marked instruction.
            local.hold_pmis();
        }
        pmu::synchronize();
        mmcr0.write();
        if ebb && mmcr0.pmao() == 1 {
            // `restore_pmao` may have raised the program's alert already. EBE must have taken
            // effect when interrupts are on, or that becomes an interrupt.
            pmu::synchronize();
        }
        if marks {
            // Start marking instructions only when the counters run.
            pmu::synchronize();
            self.write_mmcra(this_cpu, mmcra());
            if !ebb {
                // Until now the PMU may have sampled any instruction, which a sample would show for
                // a marked one. A program finds what it left.
                pmu::synchronize();
                local.clear_sampled(self.register_set);
            }
        }
    }

    /// As [`Driver::start`], for events that belong to no program.
    #[inline(never)]
    pub(super) fn start_events(&self, this_cpu: &ExclusiveCpu, negative: bool) {
        let local = local_pmu(this_cpu.irqs_off());
        self.start(this_cpu, &local, Start::Events { negative });
    }

    /// As [`Driver::start`], for a program whose events have come to the PMU.
    #[inline]
    pub(super) fn start_program(&self, this_cpu: &ExclusiveCpu) {
        let start = || self.start_program_anew(this_cpu);
        self.emulator().switch_in(this_cpu, start);
    }

    /// As [`Driver::start_program`], once an emulator has done its part.
    #[inline(never)]
    fn start_program_anew(&self, this_cpu: &ExclusiveCpu) {
        if ebb::must_raise(this_cpu) {
            self.raise_and_start_program(this_cpu);
            return;
        }
        let local = local_pmu(this_cpu.irqs_off());
        self.start(this_cpu, &local, Start::Program { stays: false });
    }

    /// As [`Driver::start`], for a program whose events were on the PMU when it was disabled.
    #[inline(never)]
    pub(super) fn start_program_again(&self, this_cpu: &ExclusiveCpu) {
        if ebb::must_raise(this_cpu) {
            ebb::save_sampled(self, this_cpu);
            self.raise_and_start_program(this_cpu);
            return;
        }
        let local = local_pmu(this_cpu.irqs_off());
        self.start(this_cpu, &local, Start::Program { stays: true });
    }

    /// As [`Driver::start`], for a program whose state is saved and whose alert has to be raised.
    #[cold]
    #[inline(never)]
    fn raise_and_start_program(&self, this_cpu: &ExclusiveCpu) {
        let local = local_pmu(this_cpu.irqs_off());
        local.restore_pmao();
        // It has changed what the PMU held of them.
        this_cpu.state().left.sampled.set(None);
        self.start(this_cpu, &local, Start::Program { stays: false });
    }
}
