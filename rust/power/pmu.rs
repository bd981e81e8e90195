// SPDX-License-Identifier: GPL-2.0

//! This CPU's PMU: counters, freezing, and its settings in the kernel and the hypervisor.
//!
//! C header: [`arch/powerpc/include/asm/pmc.h`](srctree/arch/powerpc/include/asm/pmc.h)

use super::{
    bindings,
    machine,
    regs::{
        Mmcr0,
        Mmcr1,
        Mmcr2,
        Mmcra,
        Sdar,
        Siar,
        Sier,
        Sier2,
        Sier3, //
    },
    spr, //
};
use core::marker::PhantomData;
use kernel::bindings::ppc_md;

/// Number of counters.
pub(crate) const COUNTERS: usize = 6;

/// PMC5 and PMC6, which count instructions and cycles even without an event.
pub(crate) const FREE_COUNTERS: [usize; 2] = [PMC5, PMC6];

const PMC5: usize = 4;
const PMC6: usize = 5;

/// A counter with this value or more is negative. It raises an alert when it becomes negative.
pub(crate) const NEGATIVE: u32 = 0x8000_0000;

const PMC1: u32 = 787;

/// Reads a counter: 0 for PMC1 to 5 for PMC6.
#[inline]
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

/// Writes a counter: 0 for PMC1 to 5 for PMC6.
#[inline]
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

/// The set of registers of a CPU's PMU.
///
/// It depends on the processor, not on the ISA that the kernel uses. A partition in the
/// compatibility mode of an older processor has `CPU_FTR_ARCH_31` off, but its PMU is that of the
/// processor. The compatibility mode (PCR) removes registers and fields only from problem state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegisterSet {
    /// The registers of ISA v2.07 and v3.0.
    V207,
    /// The registers of ISA v3.1, which adds SIER2 and SIER3.
    V31,
}

/// Waits until earlier writes to the PMU's registers have taken effect.
pub(crate) fn synchronize() {
    spr::synchronize();
}

/// Proof that interrupts are off, so that the code stays on the same CPU's PMU.
///
/// # Invariants
///
/// Interrupts are off for the lifetime `'a`.
pub(crate) struct LocalPmu<'a>(PhantomData<(&'a (), *mut ())>);

impl LocalPmu<'_> {
    /// Makes the proof.
    ///
    /// # Safety
    ///
    /// Interrupts must be off for the lifetime of the value. PMIs may occur.
    pub(crate) unsafe fn new() -> Self {
        // INVARIANT: The caller guarantees that interrupts are off.
        Self(PhantomData)
    }

    /// Freezes the counters, closes the PMU to problem state and clears a pending PMI. Returns the
    /// old value of MMCR0.
    #[inline]
    pub(crate) fn freeze(&self, pmccext: bool) -> Mmcr0 {
        let before = Mmcr0::read();
        before.frozen().with_pmccext(pmccext).write();
        spr::synchronize();
        self.clear_pmi_pending();
        before
    }

    /// Raises an alert on a CPU with the PMAO erratum ([`machine::has_pmao_bug`]). It is for a
    /// program whose alert was saved in MMCR0\[PMAO\] when its events were removed from the PMU:
    /// writing PMAO back raises no alert there.
    ///
    /// PMC6 overflows after two cycles with EBE off. MSR\[EE\] is off, too, so the alert waits
    /// until the program has its MMCR0 and interrupts are on. The PMU must be frozen, and is frozen
    /// afterwards. The caller must write MMCR0 before interrupts are on.
    pub(crate) fn restore_pmao(&self) {
        self.delay_pmis();
        let mmcr2 = Mmcr2::read();
        // Freeze bits in MMCR2 would stop PMC6.
        Mmcr2::write(0);
        let [pmc5, pmc6] = [PMC5, PMC6].map(read_pmc);
        write_pmc(PMC6, NEGATIVE - 2);
        let mmcr0 = Mmcr0::from(0).with_const_fc14::<1>().with_const_pmao::<1>();
        mmcr0
            .with_const_pmae::<1>()
            .with_const_pmcjce::<1>()
            .write();
        spr::synchronize();
        mmcr0.with_const_fc::<1>().write();
        spr::synchronize();
        write_pmc(PMC5, pmc5);
        write_pmc(PMC6, pmc6);
        Mmcr2::write(mmcr2);
    }

    /// Clears SIAR and SDAR. They may hold anything from a program, a sample or an idle state, and
    /// a sample would show it until the next alert or the first marked instruction.
    pub(crate) fn clear_siar_sdar(&self) {
        Sdar::write(0);
        Siar::write(0);
    }

    /// Clears all registers that describe a sampled instruction. SIER must be last: while
    /// instructions are marked, one of these writes may be marked, and only a clear SIER\[SIARV\]
    /// shows that the registers are not valid.
    pub(crate) fn clear_sampled_registers(&self, set: RegisterSet) {
        self.clear_siar_sdar();
        if set == RegisterSet::V31 {
            Sier2::write(0);
            Sier3::write(0);
        }
        Sier::from(0).write();
    }

    /// Gives the frozen PMU back: clears its registers and, before ISA v3.1, lets programs read
    /// them again.
    pub(crate) fn give_back(&self, set: RegisterSet) {
        self.clear(set);
        Mmcr0::read().with_default_access().write();
    }

    /// Clears the counters, the sampled registers and the control registers except for MMCR0.
    fn clear(&self, set: RegisterSet) {
        // With MMCRA's SDAR mode hardware may set SDAR although the PMU is frozen. So stop that
        // before SDAR is cleared.
        let idle = Mmcra::from(0);
        idle.with_bhrbrd(set == RegisterSet::V31).write();
        spr::synchronize();
        for index in 0..COUNTERS {
            write_pmc(index, 0);
        }
        self.clear_sampled_registers(set);
        // A program may have written its own bits of MMCR2.
        Mmcr1::write(0);
        Mmcr2::write(0);
    }

    /// Clears the BHRB of this CPU. Returns the count of dispatches for [`Bhrb::read`], which uses
    /// it to check that only this kernel and its programs recorded branches since then.
    ///
    /// [`Bhrb::read`]: super::bhrb::Bhrb::read
    pub(crate) fn clear_bhrb(&self) -> u32 {
        // Read this first: if the hypervisor takes the CPU away before the clear, `read` must
        // notice.
        let dispatches = machine::dispatches();
        if machine::has_bhrb() {
            spr::clear_bhrb();
        }
        dispatches
    }

    /// Delays PMIs until interrupts are on.
    pub(crate) fn delay_pmis(&self) {
        // SAFETY: Interrupts are off by the type invariants. They stay hard disabled until the
        // kernel turns them on.
        unsafe { bindings::ebb_pmu_hard_irq_disable() };
    }

    /// Makes a PMI occur as soon as interrupts are on. It is needed for a counter that is already
    /// negative when it starts: POWER8 raises an alert only when a counter becomes negative.
    pub(crate) fn set_pmi_pending(&self) {
        self.delay_pmis();
        // SAFETY: Interrupts are off by the type invariants.
        unsafe { bindings::ebb_pmu_set_pmi_irq_pending() };
    }

    /// Clears a pending PMI: one that occurred while PMIs were masked, or one from
    /// [`LocalPmu::set_pmi_pending`]. Returns whether there was one.
    pub(crate) fn clear_pmi_pending(&self) -> bool {
        let pending = spr::pmi_irq_pending();
        if pending {
            // SAFETY: Interrupts are off by the type invariants. While a PMI is pending, MSR[EE] is
            // off (the handler of masked interrupts clears it), so no other PMI occurs now.
            unsafe { spr::clear_pmi_irq_pending() };
        }
        pending
    }

    /// Turns the PMU's registers on after this CPU came up. Then the counters are frozen and closed
    /// to programs, regardless of their previous contents.
    pub(crate) fn turn_on(&self, pmccext: bool) {
        self.make_usable();
        Mmcr0::from(0).frozen().with_pmccext(pmccext).write();
        spr::synchronize();
    }

    /// Asks the hypervisor to make the PMU's registers of this CPU usable (a hypervisor call in a
    /// partition), and to preserve them. Must precede the first access to a register after the CPU
    /// came up.
    ///
    /// `ppc_enable_pmcs()` is not sufficient: it does not repeat the call after a CPU was offline.
    pub(super) fn make_usable(&self) {
        // Must precede all writes: a hypervisor preserves only values that are written afterwards.
        self.set_in_use();
        // SAFETY: The kernel sets `ppc_md` when it boots, and does not change it later.
        if let Some(enable_pmcs) = unsafe { ppc_md.enable_pmcs } {
            // SAFETY: Interrupts are off by the type invariants, so this turns on this CPU's PMU.
            unsafe { enable_pmcs() };
        }
    }

    /// Sets whether this CPU takes prompt PMIs: PMIs that interrupt the kernel's handlers of other
    /// interrupts. If not, a counter that raises an alert in such a handler freezes all counters
    /// until the handler returns.
    pub(crate) fn set_prompt_pmis(&self, wanted: bool) {
        // SAFETY: The function writes a variable of this CPU; interrupts are off by the type
        // invariants.
        unsafe { bindings::set_prompt_pmi_wanted(wanted) };
    }

    /// Requests that the PMU's registers of this CPU are preserved even without events: by the
    /// hypervisor of this kernel (lppaca), and by KVM if this kernel is its host (paca).
    ///
    /// Otherwise programs may read what others left in the registers. KVM loads the values that it
    /// last saved for a guest, with MMCR0\[PMCC\] 0b00 on POWER8, and on any processor before
    /// Linux 5.17. On its host it leaves the registers of the guest.
    ///
    /// Source: `kvmhv_save_guest_pmu`, `kvmhv_load_guest_pmu` and `kvmhv_load_host_pmu` in the
    /// kernel's `arch/powerpc/kvm/book3s_hv_rmhandlers.S`, `switch_pmu_to_host()` in
    /// `book3s_hv_p9_perf.c`.
    pub(crate) fn set_in_use(&self) {
        // SAFETY: The function writes areas of this CPU; interrupts are off by the type invariants.
        unsafe { bindings::ebb_pmu_ppc_set_pmu_inuse(true) };
    }
}
