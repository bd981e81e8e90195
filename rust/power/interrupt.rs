// SPDX-License-Identifier: GPL-2.0

//! The performance monitor interrupt (PMI): who gets it, and what it interrupted.
//!
//! A PMI comes while interrupts are "disabled" as Linux says it: on this architecture that is a
//! mask in software which leaves PMIs through. So a handler is to be written like one of an NMI. It
//! runs with interrupts off and does not nest.
//!
//! C header: [`arch/powerpc/include/asm/pmc.h`](srctree/arch/powerpc/include/asm/pmc.h)

use super::{
    bindings,
    handler::{
        HandlerSlot,
        Registered, //
    },
    pmu::LocalPmu,
    regs::{
        Mmcra,
        Sier, //
    }, //
};
use core::ptr::NonNull;
use kernel::{
    bindings::{
        get_current,
        pt_regs,
        pt_regs__bindgen_ty_1__bindgen_ty_1 as NamedRegs, //
    },
    error::to_result,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

/// MSR\[PR\] (IBM bit 49): problem state.
const MSR_PR: u64 = 1 << 14;

/// In `softe` of `struct pt_regs`: interrupts are off.
const IRQS_DISABLED: u64 = 1;

/// The registers by their names, rather than as the user's interface has them.
///
/// # Safety
///
/// `regs` must be valid.
unsafe fn named(regs: NonNull<pt_regs>) -> *mut NamedRegs {
    // SAFETY: The caller guarantees it; the members of the union are the same registers.
    unsafe { &raw mut (*regs.as_ptr()).__bindgen_anon_1.__bindgen_anon_1 }
}

/// The state that a PMI interrupted.
///
/// # Invariants
///
/// The pointer is that of the interrupt under way, valid until its handler returns.
pub(crate) struct Interrupted(NonNull<pt_regs>);

impl Interrupted {
    /// The registers as C wants them.
    pub(crate) fn as_raw(&self) -> NonNull<pt_regs> {
        self.0
    }

    /// The registers by their names.
    fn named(&self) -> *mut NamedRegs {
        // SAFETY: Valid by the type invariants.
        unsafe { named(self.0) }
    }

    /// The address of the next instruction.
    pub(crate) fn nip(&self) -> u64 {
        // SAFETY: Valid by the type invariants.
        // CAST: An `unsigned long` has 64 bits on this machine, as everywhere below.
        unsafe { (*self.named()).nip as u64 }
    }

    /// Whether the PMI interrupted a program rather than the kernel.
    pub(crate) fn is_user(&self) -> bool {
        // SAFETY: Valid by the type invariants.
        let msr = unsafe { (*self.named()).msr };
        msr as u64 & MSR_PR != 0
    }

    /// Whether interrupts were off, in software's view, so that this PMI is an NMI.
    pub(crate) fn is_nmi(&self) -> bool {
        // SAFETY: Valid by the type invariants.
        let softe = unsafe { (*self.named()).softe };
        softe as u64 & IRQS_DISABLED != 0
    }

    /// Tells the part of perf that is built into the kernel what was sampled: whether the instruction
    /// is the one that SIAR points at rather than the next one, and with which SIER and MMCRA.
    ///
    /// perf_arch_misc_flags() and the callchain go by these fields of a PMI's registers, which a
    /// replayed PMI comes without. So this is due before perf core learns of an overflow.
    pub(crate) fn set_perf_regs(&mut self, use_siar: bool, sier: Sier, mmcra: Mmcra) {
        let named = self.named();
        // SAFETY: Valid by the type invariants; nobody else uses these fields meanwhile.
        unsafe {
            (*named).result = use_siar.into();
            (*named).__bindgen_anon_1.dar = u64::from(sier) as usize;
            (*named).__bindgen_anon_2.dsisr = u64::from(mmcra) as usize;
        }
    }

    /// Takes back what [`Interrupted::set_perf_regs`] told.
    pub(crate) fn clear_perf_regs(&mut self) {
        self.set_perf_regs(false, Sier::from(0), Mmcra::from(0));
    }
}

/// Where the current task's program continues when the kernel returns to it; 0 for a task without a
/// program.
pub(crate) fn program_nip(_local: &LocalPmu) -> u64 {
    // SAFETY: The current task and what it saved at its entry to the kernel stay as they are while
    // interrupts are off.
    let regs = unsafe { (*get_current()).thread.regs };
    // SAFETY: As above. CAST: An `unsigned long` has 64 bits on this machine.
    NonNull::new(regs).map_or(0, |regs| unsafe { (*named(regs)).nip as u64 })
}

/// Whether the interrupt under way, other than a PMI, interrupted a program rather than the kernel.
pub(crate) fn interrupted_program() -> bool {
    // SAFETY: Reads a variable of this CPU.
    let regs = unsafe { bindings::ebb_pmu_get_irq_regs() };
    // SAFETY: The registers of the interrupt under way are valid.
    NonNull::new(regs).is_some_and(|regs| unsafe { (*named(regs)).msr as u64 & MSR_PR != 0 })
}

/// Calls `f` with PM interrupts masked. One that is due then comes once interrupts are on, and the
/// counters may stand still until then, so `f` has to be short.
#[inline]
pub(crate) fn masked(f: impl FnOnce()) {
    // SAFETY: Works in any context, also in a PMI.
    let flags = unsafe { bindings::ebb_pmu_powerpc_local_irq_pmu_save() };
    f();
    // SAFETY: The flags are those of the mask that is given back.
    unsafe { bindings::ebb_pmu_powerpc_local_irq_pmu_restore(flags) };
}

/// Who handles PMIs.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Handles a PMI on the current CPU. Interrupts are off, or masked and this is an NMI to them.
    fn handle(&self, interrupted: &mut Interrupted);
}

/// The handler of [`trampoline`].
static HANDLER: HandlerSlot = HandlerSlot::new();

/// # Safety
///
/// To be called by the PMI only, as [`PmcReservation`] has it: with valid `regs` and interrupts off
/// until this returns.
unsafe extern "C" fn trampoline<H: Handler>(regs: *mut pt_regs) {
    // SAFETY: `PmcReservation` hands this function to the PMI while an `H` is registered.
    let handler = unsafe { HANDLER.get::<H>() };
    let (Some(handler), Some(regs)) = (handler, NonNull::new(regs)) else {
        return;
    };
    // INVARIANT: The interrupt under way lasts until this returns.
    handler.handle(&mut Interrupted(regs));
}

/// The reservation of the PMU and its interrupt, made for the first user and given up with the last.
///
/// # Invariants
///
/// The PMU is reserved, with `trampoline::<H>` for its interrupt, while there are users.
#[pin_data(PinnedDrop)]
pub(crate) struct PmcReservation<H: Handler> {
    #[pin]
    users: Mutex<usize>,
    _handler: Registered<H>,
}

impl<H: Handler> PmcReservation<H> {
    /// Makes `handler` the one that is called once there are users. Fails with `EBUSY` when there
    /// is one already.
    pub(crate) fn new(handler: Arc<H>) -> impl PinInit<Self, Error> {
        // INVARIANT: There are no users.
        try_pin_init!(Self {
            users <- new_mutex!(0),
            // SAFETY: PMIs are for `H`, as only this value reserves the PMU while it lives, and come
            // no more when `_handler` is dropped, as `drop` has released the PMU by then.
            _handler: unsafe { HANDLER.register(handler) }?,
        }? Error)
    }

    /// Adds a user. The first one reserves the PMU, which fails with `EBUSY` when somebody else has
    /// it; there is no further user then.
    pub(crate) fn get(&self) -> Result {
        let mut users = self.users.lock();
        if *users == 0 {
            // SAFETY: An `H` is registered until the PMU is released.
            to_result(unsafe { bindings::reserve_pmc_hardware(Some(trampoline::<H>)) })?;
        }
        // INVARIANT: Reserved just now, or for the users before.
        *users += 1;
        Ok(())
    }

    /// Takes a user off, who must have been added.
    pub(crate) fn put(&self) {
        let mut users = self.users.lock();
        // INVARIANT: With the last user the PMU is released below.
        *users = users.saturating_sub(1);
        if *users == 0 {
            // SAFETY: Reserved by the type invariants, as there was a user.
            unsafe { bindings::release_pmc_hardware() };
        }
    }
}

#[pinned_drop]
impl<H: Handler> PinnedDrop for PmcReservation<H> {
    fn drop(self: Pin<&mut Self>) {
        if *self.users.lock() > 0 {
            // SAFETY: Reserved by the type invariants.
            unsafe { bindings::release_pmc_hardware() };
        }
    }
}

/// Somebody else who has the PMU, for tests.
#[cfg(EBB_KUNIT)]
pub(crate) struct OtherOwner(());

#[cfg(EBB_KUNIT)]
impl OtherOwner {
    /// Reserves the PMU as another driver would. Fails with `EBUSY` when it is taken.
    pub(crate) fn reserve() -> Result<Self> {
        unsafe extern "C" fn ignore(_regs: *mut pt_regs) {}
        // SAFETY: The handler is there as long as the module, and the PMU is given back in `drop`.
        to_result(unsafe { bindings::reserve_pmc_hardware(Some(ignore)) })?;
        Ok(Self(()))
    }
}

#[cfg(EBB_KUNIT)]
impl Drop for OtherOwner {
    fn drop(&mut self) {
        // SAFETY: Reserved in `reserve`.
        unsafe { bindings::release_pmc_hardware() };
    }
}
