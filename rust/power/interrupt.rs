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
    pmu::LocalPmu, //
    regs::{
        Mmcra,
        Sier, //
    },
};
use core::ptr::NonNull;
use kernel::{
    bindings::pt_regs,
    error::to_result,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

/// MSR\[PR\] (IBM bit 49): problem state.
const MSR_PR: u64 = 1 << 14;

/// In `softe` of `struct pt_regs`: interrupts are off.
const IRQS_DISABLED: u64 = 1;

/// The state that a PMI interrupted.
///
/// # Invariants
///
/// The pointer is that of the interrupt under way, valid until its handler returns.
pub(crate) struct Interrupted(NonNull<pt_regs>);

impl Interrupted {
    fn regs(&self) -> &kernel::bindings::pt_regs__bindgen_ty_1__bindgen_ty_1 {
        // SAFETY: Valid by the type invariants; the union's second member is the same registers.
        unsafe { &self.0.as_ref().__bindgen_anon_1.__bindgen_anon_1 }
    }

    /// The registers as C wants them.
    pub(crate) fn as_raw(&self) -> NonNull<pt_regs> {
        self.0
    }

    /// The next instruction's address.
    pub(crate) fn nip(&self) -> u64 {
        // CAST: Words of 64 bits on this machine, as everywhere below.
        self.regs().nip as u64
    }

    /// Whether a program was interrupted rather than the kernel.
    pub(crate) fn is_user(&self) -> bool {
        self.regs().msr as u64 & MSR_PR != 0
    }

    /// Whether interrupts were off, in software's view, so that this PMI is an NMI.
    pub(crate) fn is_nmi(&self) -> bool {
        self.regs().softe as u64 & IRQS_DISABLED != 0
    }

    /// Tells the part of perf that is built into the kernel what was sampled: whether SIAR rather
    /// than [`Interrupted::nip`] says where, and with which SIER and MMCRA. To be called before
    /// perf core is told of an overflow, as replayed interrupts come with nothing there.
    pub(crate) fn set_sampled(&mut self, siar: bool, sier: Sier, mmcra: Mmcra) {
        let (sier, mmcra) = (u64::from(sier) as usize, u64::from(mmcra) as usize);
        // SAFETY: Valid by the type invariants.
        unsafe { bindings::ebb_pmu_set_sampled(self.0.as_ptr(), siar, sier, mmcra) };
    }

    /// Takes back what [`Interrupted::set_sampled`] told.
    pub(crate) fn clear_sampled(&mut self) {
        self.set_sampled(false, Sier::from(0), Mmcra::from(0));
    }
}

/// Where the current task's program goes on when the kernel, or its interrupt, is done; 0 for a task
/// without a program.
pub(crate) fn program_nip(_local: &LocalPmu) -> u64 {
    // SAFETY: Reads the current task's registers, which stay where they are with interrupts off.
    // CAST: A word of 64 bits on this machine.
    unsafe { bindings::ebb_pmu_program_nip() as u64 }
}

/// Whether the interrupt under way, other than a PMI, interrupted a program rather than the kernel.
pub(crate) fn interrupted_program() -> bool {
    // SAFETY: Reads a variable of this CPU and the registers that it points to, if any.
    unsafe { bindings::ebb_pmu_interrupted_user() }
}

/// Does something that no PMI of this CPU may come between, and nothing that takes long: one that is
/// due then waits until interrupts are on, and counters may stand still as long.
#[inline]
pub(crate) fn masked(short: impl FnOnce()) {
    // SAFETY: Works in any context, also in a PMI.
    let flags = unsafe { bindings::ebb_pmu_mask() };
    short();
    // SAFETY: The flags are those of the mask that is given back.
    unsafe { bindings::ebb_pmu_unmask(flags) };
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
            to_result(unsafe { bindings::ebb_pmu_reserve(Some(trampoline::<H>)) })?;
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
            unsafe { bindings::ebb_pmu_release() };
        }
    }
}

#[pinned_drop]
impl<H: Handler> PinnedDrop for PmcReservation<H> {
    fn drop(self: Pin<&mut Self>) {
        if *self.users.lock() > 0 {
            // SAFETY: Reserved by the type invariants.
            unsafe { bindings::ebb_pmu_release() };
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
        to_result(unsafe { bindings::ebb_pmu_reserve(Some(ignore)) })?;
        Ok(Self(()))
    }
}

#[cfg(EBB_KUNIT)]
impl Drop for OtherOwner {
    fn drop(&mut self) {
        // SAFETY: Reserved in `reserve`.
        unsafe { bindings::ebb_pmu_release() };
    }
}
