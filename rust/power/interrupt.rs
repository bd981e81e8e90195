// SPDX-License-Identifier: GPL-2.0

//! The performance monitor interrupt (PMI): its handler, and the state that it interrupted.
//!
//! Code that turned interrupts off can be interrupted by a PMI: on this architecture "off" is a
//! mask in software, which holds PMIs back only if asked to (`masked_pmis.rs`). So a PMI's handler
//! follows the rules for NMIs. It runs with interrupts off, and does not nest.
//!
//! C header: [`arch/powerpc/include/asm/pmc.h`](srctree/arch/powerpc/include/asm/pmc.h)

use super::{
    bindings,
    callback::CallbackPermit,
    pmu::LocalPmu,
    regs::{
        Mmcra,
        Sier, //
    }, //
};
use core::{
    marker::PhantomData,
    ptr::{
        null_mut,
        NonNull, //
    },
    sync::atomic::{
        AtomicPtr,
        AtomicUsize,
        Ordering::{
            AcqRel,
            Acquire,
            Relaxed,
            Release,
            SeqCst, //
        }, //
    }, //
};
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
        rcu,
        Arc,
        ArcBorrow,
        Mutex, //
    },
    types::{
        ForeignOwnable,
        Opaque, //
    }, //
};

/// MSR\[PR\] (IBM bit 49): problem state.
const MSR_PR: u64 = 1 << 14;

/// In the mask of interrupts, and `softe` of `struct pt_regs`: interrupts are off.
pub(super) const IRQS_DISABLED: u64 = 1;

/// The registers by their kernel names. (The other member of the union has the names that user
/// space knows them by.)
///
/// # Safety
///
/// `regs` must be valid.
unsafe fn named(regs: NonNull<pt_regs>) -> *mut NamedRegs {
    // SAFETY: The caller guarantees it; both members are valid, and the same registers.
    unsafe { &raw mut (*regs.as_ptr()).__bindgen_anon_1.__bindgen_anon_1 }
}

/// The state that a PMI interrupted.
///
/// # Invariants
///
/// The registers are those of the PMI under way, and valid until its handler returns.
#[repr(transparent)]
pub(crate) struct Interrupted(Opaque<pt_regs>);

impl Interrupted {
    /// Makes a reference of the kernel's pointer.
    ///
    /// # Safety
    ///
    /// `regs` must be valid for the lifetime `'a`. Others may read them meanwhile, as they are the
    /// program's too, and use them by [`as_raw`], but not as a value of this type.
    ///
    /// [`as_raw`]: Interrupted::as_raw
    unsafe fn from_raw<'a>(regs: NonNull<pt_regs>) -> &'a mut Self {
        // SAFETY: The caller guarantees it; the type is transparent over the registers.
        unsafe { regs.cast().as_mut() }
    }

    /// The registers as C takes them.
    pub(crate) fn as_raw(&self) -> NonNull<pt_regs> {
        // SAFETY: The address of a value is not null.
        unsafe { NonNull::new_unchecked(self.0.get()) }
    }

    /// The registers by their names.
    fn named(&self) -> *mut NamedRegs {
        // SAFETY: Valid by the type invariants.
        unsafe { named(self.as_raw()) }
    }

    /// NIP: the address of the instruction that would have run next.
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

    /// Whether the PMI interrupted code that had turned interrupts off, so that it is an NMI.
    pub(crate) fn is_nmi(&self) -> bool {
        // SAFETY: Valid by the type invariants.
        let softe = unsafe { (*self.named()).softe };
        softe as u64 & IRQS_DISABLED != 0
    }

    /// Tells the kernel's perf code what was sampled: whether the instruction is that of SIAR
    /// rather than of NIP, and the values of SIER and MMCRA.
    ///
    /// `perf_arch_misc_flags()` and the callchain code read them from these fields, which the
    /// kernel does not set when it replays a PMI. So set them before perf core learns of an
    /// overflow.
    pub(crate) fn set_perf_regs(&mut self, use_siar: bool, sier: Sier, mmcra: Mmcra) {
        let named = self.named();
        // SAFETY: Valid by the type invariants; only this handler uses them.
        unsafe {
            (*named).result = use_siar.into();
            (*named).__bindgen_anon_1.dar = u64::from(sier) as c_ulong;
            (*named).__bindgen_anon_2.dsisr = u64::from(mmcra) as c_ulong;
        }
    }

    /// Clears what [`Interrupted::set_perf_regs`] set.
    pub(crate) fn clear_perf_regs(&mut self) {
        self.set_perf_regs(false, Sier::from(0), Mmcra::from(0));
    }
}

/// The registers with which the current task's program entered the kernel; `None` for a task
/// without a program.
fn program_regs(_local: &LocalPmu<'_>) -> Option<NonNull<pt_regs>> {
    // SAFETY: Interrupts are off, so the task stays current.
    let (mm, regs) = unsafe { ((*get_current()).mm, (*get_current()).thread.regs) };
    // A task that exits keeps its registers when its memory is gone. perf core would take their
    // stack pointer for one in whichever address space the CPU still uses.
    if mm.is_null() {
        return None;
    }
    let regs = NonNull::new(regs)?;
    // SAFETY: What the task saved when it entered the kernel stays until it returns.
    let msr = unsafe { (*named(regs)).msr };
    // CAST: As above. A task that is about to get its first program has no MSR yet.
    (msr as u64 & MSR_PR != 0).then_some(regs)
}

/// NIP of the current task's program, where the kernel returns to; 0 for a task without a program.
pub(crate) fn program_nip(local: &LocalPmu<'_>) -> u64 {
    // SAFETY: As in `program_regs`. CAST: As above.
    program_regs(local).map_or(0, |regs| unsafe { (*named(regs)).nip as u64 })
}

/// A copy of the registers with which the current task's program entered the kernel, without what
/// [`Interrupted::set_perf_regs`] sets. All are 0 for a task without a program, but for MSR\[PR\].
pub(crate) struct ProgramRegs(pt_regs);

impl ProgramRegs {
    /// Copies the registers.
    pub(crate) fn copy(local: &LocalPmu<'_>) -> Self {
        // SAFETY: As in `program_regs`.
        let mut regs =
            program_regs(local).map_or_else(pt_regs::default, |regs| unsafe { regs.read() });
        // SAFETY: The registers are a local variable.
        let named = unsafe { named(NonNull::from(&mut regs)) };
        // SAFETY: As above. CAST: As above.
        unsafe { (*named).msr |= MSR_PR as c_ulong };
        // SAFETY: As above, and nobody else knows the registers.
        unsafe { Interrupted::from_raw(NonNull::from(&mut regs)) }.clear_perf_regs();
        Self(regs)
    }

    /// NIP: the address of the instruction with which the program goes on, 0 without a program.
    pub(crate) fn nip(&mut self) -> u64 {
        // SAFETY: The registers are our own. CAST: As above.
        unsafe { (*named(self.as_raw())).nip as u64 }
    }

    /// The registers as C takes them, which stay where they are as long as `self` does.
    pub(crate) fn as_raw(&mut self) -> NonNull<pt_regs> {
        NonNull::from(&mut self.0)
    }
}

/// Whether the interrupt under way, which is no PMI, interrupted a program rather than the kernel.
pub(crate) fn interrupted_program(_local: &LocalPmu<'_>) -> bool {
    // SAFETY: Reads a variable of this CPU, which this does not leave as interrupts are off.
    let regs = unsafe { bindings::ebb_pmu_get_irq_regs() };
    // SAFETY: Null or valid while the interrupt is under way.
    NonNull::new(regs).is_some_and(|regs| unsafe { (*named(regs)).msr as u64 & MSR_PR != 0 })
}

/// What handles PMIs.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Handles a PMI on the current CPU. Interrupts are off.
    fn handle(&self, interrupted: &mut Interrupted);

    /// Whether the PMU of the current CPU is this handler's, if it shares the PMUs with another
    /// driver ([`SharedInterrupt`]). Interrupts are off.
    fn has_pmu(&self) -> bool;
}

/// The handler that [`trampoline`] calls: null, or an `Arc` of the type that the trampoline is for.
/// The kernel crate's atomics are function calls.
static HANDLER: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Called by the kernel at each PMI.
///
/// # Safety
///
/// `regs` must be those of the PMI under way, and `HANDLER` an `Arc<H>`.
unsafe extern "C" fn trampoline<H: Handler>(regs: *mut pt_regs) {
    let handler = HANDLER.load(Acquire);
    // SAFETY: The caller guarantees that it is an `Arc<H>`. `PmcReservation` drops it only when no
    // PMI is under way any more.
    let handler: ArcBorrow<'_, H> = unsafe { Arc::<H>::borrow(handler) };
    // SAFETY: The caller guarantees that these are the registers.
    // INVARIANT: Likewise.
    let interrupted = unsafe { Interrupted::from_raw(NonNull::new_unchecked(regs)) };
    handler.handle(interrupted);
}

/// The reservation of the PMU and its PMI: made for the first user, released with the last.
///
/// # Invariants
///
/// - `HANDLER` is an `Arc<H>` that this value owns.
/// - While there are users the PMU is reserved, and `trampoline::<H>` is called at PMIs.
/// - The number of users becomes or ceases to be 0 only under the lock.
#[pin_data(PinnedDrop)]
pub(crate) struct PmcReservation<H: Handler> {
    users: AtomicUsize,
    /// Held by who reserves and releases the PMU.
    #[pin]
    first_and_last: Mutex<()>,
    handler: PhantomData<Arc<H>>,
}

impl<H: Handler> PmcReservation<H> {
    /// Has PMIs handled by `handler` once there are users. Fails with `EBUSY` when there is another
    /// handler.
    pub(crate) fn new(_permit: CallbackPermit, handler: Arc<H>) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            users: AtomicUsize::new(0),
            first_and_last <- new_mutex!(()),
            handler: {
                let handler = handler.into_foreign();
                // INVARIANT: The `Arc` is this value's now, as `HANDLER` was null. There are no
                // users.
                if HANDLER.compare_exchange(null_mut(), handler, SeqCst, Relaxed).is_err() {
                    // SAFETY: Made by `into_foreign` above, and not stored.
                    drop(unsafe { Arc::<H>::from_foreign(handler) });
                    return Err(EBUSY);
                }
                PhantomData
            },
        }? Error)
    }

    /// Adds a user. The first one reserves the PMU; fails with `EBUSY`, without a new user, if
    /// another driver has reserved it.
    pub(crate) fn get(&self) -> Result {
        if self.add() {
            return Ok(());
        }
        self.get_first()
    }

    /// As [`PmcReservation::get`], for who may be the first.
    #[cold]
    fn get_first(&self) -> Result {
        let _lock = self.first_and_last.lock();
        // Another one may have been the first meanwhile.
        if !self.add() {
            // SAFETY: By the type invariants `HANDLER` is an `Arc<H>`, for longer than there are
            // users. `drop` releases it, and comes, by the permit's invariants.
            to_result(unsafe { bindings::reserve_pmc_hardware(Some(trampoline::<H>)) })?;
            // INVARIANT: Reserved just now, and the lock is held. Without users nobody else changes
            // the number.
            self.users.store(1, Release);
        }
        Ok(())
    }

    /// Adds a user if there is one, which keeps the PMU reserved.
    #[inline]
    fn add(&self) -> bool {
        let more = |users: usize| (users > 0).then_some(users.wrapping_add(1));
        self.users.fetch_update(Acquire, Relaxed, more).is_ok()
    }

    /// Removes a user that [`PmcReservation::get`] added; does nothing when there is none.
    pub(crate) fn put(&self) {
        let less = |users: usize| (users > 1).then_some(users.wrapping_sub(1));
        if self.users.fetch_update(Release, Relaxed, less).is_err() {
            self.put_last();
        }
    }

    /// As [`PmcReservation::put`], for who may be the last.
    #[cold]
    fn put_last(&self) {
        let _lock = self.first_and_last.lock();
        // Others may have come meanwhile.
        let less = |users: usize| users.checked_sub(1);
        if self.users.fetch_update(AcqRel, Relaxed, less) == Ok(1) {
            // SAFETY: There was a user, so the PMU is reserved by the type invariants. Who comes
            // next waits for the lock.
            unsafe { bindings::release_pmc_hardware() };
        }
    }
}

#[pinned_drop]
impl<H: Handler> PinnedDrop for PmcReservation<H> {
    fn drop(self: Pin<&mut Self>) {
        if self.users.load(Acquire) > 0 {
            // SAFETY: There are users, so the PMU is reserved by the type invariants.
            unsafe { bindings::release_pmc_hardware() };
        }
        // A PMI on another CPU may have read `perf_irq` or `HANDLER` before that. Its handler runs
        // with interrupts off, so it is done after a grace period. Only then may `HANDLER` become
        // another's.
        rcu::synchronize_rcu();
        let handler = HANDLER.swap(null_mut(), SeqCst);
        // SAFETY: By the type invariants it is an `Arc<H>` of this value's. No PMI uses it any
        // more.
        drop(unsafe { Arc::<H>::from_foreign(handler) });
    }
}

/// The handler of the driver that has reserved the PMU, for [`dispatch`].
static OTHER_HANDLER: AtomicUsize = AtomicUsize::new(0);

/// Called by the kernel at each PMI while there is a [`SharedInterrupt`].
///
/// # Safety
///
/// As for [`trampoline`]. `OTHER_HANDLER` must be a handler of PMIs.
unsafe extern "C" fn dispatch<H: Handler>(regs: *mut pt_regs) {
    // SAFETY: As in `trampoline`.
    let handler: ArcBorrow<'_, H> = unsafe { Arc::<H>::borrow(HANDLER.load(Acquire)) };
    if handler.has_pmu() {
        // SAFETY: The caller's guarantees are those asked for.
        unsafe { trampoline::<H>(regs) };
    } else {
        let other = OTHER_HANDLER.load(Relaxed) as *const ();
        // SAFETY: The caller guarantees a handler of PMIs.
        let other: unsafe extern "C" fn(*mut pt_regs) = unsafe { core::mem::transmute(other) };
        // SAFETY: The caller guarantees the registers of the PMI under way.
        unsafe { other(regs) };
    }
}

/// Calls the handler of a [`PmcReservation`] at PMIs of CPUs whose PMU is that handler's, although
/// another driver has reserved the PMU. For an emulator only: hardware raises no PMI under EBE.
///
/// # Invariants
///
/// The PMU is reserved by the other driver, which takes no part in it, with `dispatch` in place of
/// its handler, which is `OTHER_HANDLER`.
pub(crate) struct SharedInterrupt(());

impl SharedInterrupt {
    /// Starts it. The other driver's handler is the function `name`, in the same part of the kernel
    /// as the code at the address `near`. Fails with `ENOENT` if there is none.
    ///
    /// # Safety
    ///
    /// The other driver must have the PMU reserved, with a handler of that name, and there must be
    /// a [`PmcReservation<H>`] without users, both as long as the value lives.
    pub(crate) unsafe fn new<H: Handler>(
        _permit: CallbackPermit,
        name: &CStr,
        near: usize,
    ) -> Result<Self> {
        // SAFETY: The name is a C string.
        let other = unsafe { bindings::ebb_pmu_find_function(name.as_char_ptr(), near) };
        if other == 0 {
            return Err(ENOENT);
        }
        OTHER_HANDLER.store(other, Relaxed);
        // SAFETY: The caller guarantees the `Arc<H>` in `HANDLER`. `drop` puts the other handler
        // back, and comes, by the permit's invariants.
        to_result(unsafe { bindings::ebb_pmu_replace_handler(Some(dispatch::<H>)) })?;
        // INVARIANT: Replaced just now.
        Ok(Self(()))
    }
}

impl Drop for SharedInterrupt {
    fn drop(&mut self) {
        let other = OTHER_HANDLER.load(Relaxed) as *const ();
        // SAFETY: By the type invariants it is the other driver's handler, which is reserved again.
        // A `PmcReservation` waits for PMIs under way.
        unsafe { bindings::ebb_pmu_replace_handler(Some(core::mem::transmute(other))) };
    }
}

/// Another driver that has reserved the PMU, for tests.
#[cfg(EBB_KUNIT)]
pub(crate) struct OtherOwner(());

#[cfg(EBB_KUNIT)]
impl OtherOwner {
    /// Reserves the PMU as another driver would. Fails with `EBUSY` if it is reserved already.
    pub(crate) fn reserve() -> Result<Self> {
        unsafe extern "C" fn ignore(_regs: *mut pt_regs) {}
        // SAFETY: The handler is part of the module, and `drop` releases the PMU.
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
