// SPDX-License-Identifier: GPL-2.0

//! What the driver does to this CPU's PMU as a whole: counters, freezing, the BHRB, the kernel's
//! and the hypervisor's view of it.

use super::{
    bindings,
    machine,
    regs::{
        Mmcr0,
        Mmcr2,
        Sdar,
        Siar, //
    },
    spr, //
};
use core::marker::PhantomData;
use kernel::bindings::ppc_md;

/// Number of counters.
pub(crate) const COUNTERS: usize = 6;

/// A counter that reaches this value (bit 32 becomes 1) raises an alert.
pub(crate) const NEGATIVE: u32 = 0x8000_0000;

const PMC1: u32 = 787;

/// Reads a counter, 0 for PMC1 to 5 for PMC6.
#[inline(always)]
pub(crate) fn read_pmc(index: usize) -> u32 {
    // CAST: Counters have 32 bits.
    (match index {
        0 => spr::read::<PMC1>(),
        1 => spr::read::<{ PMC1 + 1 }>(),
        2 => spr::read::<{ PMC1 + 2 }>(),
        3 => spr::read::<{ PMC1 + 3 }>(),
        4 => spr::read::<{ PMC1 + 4 }>(),
        5 => spr::read::<{ PMC1 + 5 }>(),
        _ => 0,
    }) as u32
}

/// Writes a counter, 0 for PMC1 to 5 for PMC6.
#[inline(always)]
pub(crate) fn write_pmc(index: usize, value: u32) {
    let value = value.into();
    match index {
        0 => spr::write::<PMC1>(value),
        1 => spr::write::<{ PMC1 + 1 }>(value),
        2 => spr::write::<{ PMC1 + 2 }>(value),
        3 => spr::write::<{ PMC1 + 3 }>(value),
        4 => spr::write::<{ PMC1 + 4 }>(value),
        5 => spr::write::<{ PMC1 + 5 }>(value),
        _ => {}
    }
}

/// Waits until earlier writes to the PMU's registers took effect.
pub(crate) fn synchronize() {
    spr::synchronize();
}

/// This CPU's PMU, in the hands of code that cannot migrate.
///
/// # Invariants
///
/// Interrupts are off while the value lives.
pub(crate) struct LocalPmu(PhantomData<*mut ()>);

impl LocalPmu {
    /// Takes this CPU's PMU.
    ///
    /// # Safety
    ///
    /// Interrupts must be off while the value lives (PM interrupts may come).
    pub(crate) unsafe fn new() -> Self {
        // INVARIANT: The caller guarantees it.
        Self(PhantomData)
    }

    /// Freezes the counters and takes the PMU from problem state, forgets an alert that waits for
    /// interrupts to be on, and returns MMCR0 as it was before.
    pub(crate) fn freeze(&self, pmcc_extended: bool) -> Mmcr0 {
        let before = Mmcr0::read();
        before.stopped().with_pmccext(pmcc_extended).write();
        spr::synchronize();
        self.clear_pending_interrupt();
        before
    }

    /// What MMCR0, read as `before` by [`LocalPmu::freeze`], was in truth when the counters stopped:
    /// an alert may have come between reading and writing.
    pub(crate) fn when_frozen(&self, before: Mmcr0) -> Mmcr0 {
        let missed =
            (0..COUNTERS).any(|index| before.alerts_by(index) && read_pmc(index) >= NEGATIVE);
        if missed {
            before.alerted()
        } else {
            before
        }
    }

    /// Raises anew an alert that a program had when its PMU was stopped, on CPUs that do not when
    /// they find MMCR0\[PMAO\] set ([`machine::forgets_alerts`]). The PMU must be frozen, and is after
    /// that; MMCR0 must be written before interrupts are on.
    pub(crate) fn raise_again(&self) {
        const PMC5: usize = 4;
        const PMC6: usize = 5;

        // SAFETY: Interrupts are off by the type invariants. This leaves them hard disabled until
        // they are on again, so the alert waits, without EBE too.
        unsafe { bindings::ebb_pmu_hard_irq_disable() };
        let mmcr2 = Mmcr2::read();
        Mmcr2::write(0);
        let [instructions, cycles] = [PMC5, PMC6].map(read_pmc);
        write_pmc(PMC6, NEGATIVE - 2);
        let quiet = Mmcr0::from(0).with_const_fc14::<1>().with_const_pmao::<1>();
        quiet
            .with_const_pmae::<1>()
            .with_const_pmcjce::<1>()
            .write();
        quiet.with_const_fc::<1>().write();
        write_pmc(PMC5, instructions);
        write_pmc(PMC6, cycles);
        Mmcr2::write(mmcr2);
    }

    /// Forgets which instruction was sampled last, and its data: programs may read SIAR and SDAR, and
    /// they may hold an address of the kernel or of another program.
    pub(crate) fn clear_sampled(&self) {
        Sdar::write(0);
        Siar::write(0);
    }

    /// Discards the branches recorded on this CPU.
    pub(crate) fn clear_bhrb(&self) {
        if machine::has_bhrb() {
            spr::clear_bhrb();
        }
    }

    /// Has a PMI as soon as interrupts are on: for a counter that became negative while no PMI
    /// could come, as hardware raises an alert only when a counter becomes negative.
    pub(crate) fn pend_interrupt(&self) {
        // SAFETY: Interrupts are off by the type invariants. This leaves them hard disabled until
        // they are on again.
        unsafe {
            bindings::ebb_pmu_hard_irq_disable();
            bindings::ebb_pmu_set_pmi_irq_pending();
        }
    }

    /// Forgets a PMI that is due. Returns whether there was one.
    pub(crate) fn clear_pending_interrupt(&self) -> bool {
        // SAFETY: Interrupts are off by the type invariants. A pending PMI implies that MSR[EE] is off
        // (the masked handler cleared it), so nothing changes the pending interrupts in between.
        unsafe {
            let pending = bindings::ebb_pmu_pmi_irq_pending();
            if pending {
                bindings::ebb_pmu_clear_pmi_irq_pending();
            }
            pending
        }
    }

    /// Turns the PMU's registers on after this CPU came up (a hypervisor call in a partition).
    ///
    /// `ppc_enable_pmcs()` does so once for a CPU's number, but not again after the CPU was offline.
    pub(crate) fn turn_on(&self) {
        self.set_in_use(true);
        // SAFETY: Set once while the kernel boots.
        if let Some(enable_pmcs) = unsafe { ppc_md.enable_pmcs } {
            // SAFETY: Interrupts are off by the type invariants, so it is this CPU's PMU.
            unsafe { enable_pmcs() };
        }
    }

    /// Tells the kernel whether handlers of other interrupts are to let this CPU's PMIs through.
    /// Where they do not, counters that alert meanwhile stand still until such a handler is done.
    pub(crate) fn set_prompt(&self, wanted: bool) {
        // SAFETY: Writes a variable of this CPU; interrupts are off by the type invariants.
        unsafe { bindings::set_prompt_pmi_wanted(wanted) };
    }

    /// Tells the hypervisor (in the lppaca) and KVM (in the paca) whether they have to keep the PMU's
    /// registers of this CPU.
    pub(crate) fn set_in_use(&self, in_use: bool) {
        // SAFETY: Writes this CPU's areas; interrupts are off by the type invariants.
        unsafe { bindings::ebb_pmu_ppc_set_pmu_inuse(in_use) };
    }
}
