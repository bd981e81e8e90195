// SPDX-License-Identifier: GPL-2.0

//! The performance monitor interrupt (PMI): its handler, and the state that it interrupted.
//!
//! A PMI can interrupt code that turned interrupts off: on this architecture "off" is a mask in
//! software, which delays PMIs only on request (`masked_pmis.rs`). So a PMI's handler follows the
//! rules for NMIs. It runs with interrupts off, and does not nest.
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

/// In the mask of interrupts, and in `softe` of `struct pt_regs`: interrupts are off.
pub(super) const IRQS_DISABLED: u64 = 1;

/// Returns the registers by their kernel names. The other member of the union has the names that
/// user space uses.
///
/// # Safety
///
/// `regs` must be valid.
unsafe fn named(regs: NonNull<pt_regs>) -> *mut NamedRegs {
    // SAFETY: The caller guarantees that `regs` is valid. Both members are valid, and they are the
    // same registers.
    unsafe { &raw mut (*regs.as_ptr()).__bindgen_anon_1.__bindgen_anon_1 }
}

/// The state that a PMI interrupted.
///
/// # Invariants
///
/// The registers are those of the PMI that is being handled, and valid until its handler returns.
#[repr(transparent)]
pub(crate) struct Interrupted(Opaque<pt_regs>);

impl Interrupted {
    /// Makes a reference from the kernel's pointer.
    ///
    /// # Safety
    ///
    /// `regs` must be valid for the lifetime `'a`. Other code may read the registers in the
    /// meantime, because they may be the program's, and use them through [`as_raw`], but not as a
    /// value of this type.
    ///
    /// [`as_raw`]: Interrupted::as_raw
    unsafe fn from_raw<'a>(regs: NonNull<pt_regs>) -> &'a mut Self {
        // SAFETY: The caller guarantees that `regs` is valid; the type is transparent over the
        // registers.
        unsafe { regs.cast().as_mut() }
    }

    /// Returns the registers as a pointer for C.
    pub(crate) fn as_raw(&self) -> NonNull<pt_regs> {
        // SAFETY: The address of a value is not null.
        unsafe { NonNull::new_unchecked(self.0.get()) }
    }

    /// Returns the registers by their names.
    fn named(&self) -> *mut NamedRegs {
        // SAFETY: The registers are valid by the type invariants.
        unsafe { named(self.as_raw()) }
    }

    /// Returns NIP: the address of the instruction that would have run next.
    pub(crate) fn nip(&self) -> u64 {
        // SAFETY: The registers are valid by the type invariants.
        // CAST: An `unsigned long` has 64 bits on this machine, as everywhere below.
        unsafe { (*self.named()).nip as u64 }
    }

    /// Returns whether the PMI interrupted a program and not the kernel.
    pub(crate) fn is_user(&self) -> bool {
        // SAFETY: The registers are valid by the type invariants.
        let msr = unsafe { (*self.named()).msr };
        msr as u64 & MSR_PR != 0
    }

    /// Returns whether the PMI interrupted code that had turned interrupts off, so that it is an
    /// NMI.
    pub(crate) fn is_nmi(&self) -> bool {
        // SAFETY: The registers are valid by the type invariants.
        let softe = unsafe { (*self.named()).softe };
        softe as u64 & IRQS_DISABLED != 0
    }

    /// Passes the sampled instruction to the kernel's perf code: whether its address is in SIAR and
    /// not in NIP, and the values of SIER and MMCRA.
    ///
    /// `perf_arch_misc_flags()` and the callchain code read these fields, which the kernel does not
    /// set when it replays a PMI. So they must be set before an overflow is reported to perf core.
    pub(crate) fn set_perf_regs(&mut self, use_siar: bool, sier: Sier, mmcra: Mmcra) {
        let named = self.named();
        // SAFETY: The registers are valid by the type invariants, and only this handler uses these
        // fields.
        unsafe {
            (*named).result = use_siar.into();
            (*named).__bindgen_anon_1.dar = u64::from(sier) as c_ulong;
            (*named).__bindgen_anon_2.dsisr = u64::from(mmcra) as c_ulong;
        }
    }

    /// Clears the fields that [`Interrupted::set_perf_regs`] set.
    pub(crate) fn clear_perf_regs(&mut self) {
        self.set_perf_regs(false, Sier::from(0), Mmcra::from(0));
    }
}

/// Returns the registers with which the current task's program entered the kernel; `None` for a
/// task without a program.
fn program_regs(_local: &LocalPmu<'_>) -> Option<NonNull<pt_regs>> {
    // SAFETY: Interrupts are off, so the task remains the current one.
    let (mm, regs) = unsafe { ((*get_current()).mm, (*get_current()).thread.regs) };
    // A task that exits still has its registers after its memory was freed. perf core would use
    // their stack pointer in the address space that the CPU happens to use.
    if mm.is_null() {
        return None;
    }
    let regs = NonNull::new(regs)?;
    // SAFETY: The registers that the task saved when it entered the kernel are valid until it
    // returns.
    let msr = unsafe { (*named(regs)).msr };
    // CAST: An `unsigned long` has 64 bits on this machine. The MSR is 0 in a task that is about to
    // get its first program.
    (msr as u64 & MSR_PR != 0).then_some(regs)
}

/// Returns NIP of the current task's program, the address where the kernel will return to; 0 for a
/// task without a program.
pub(crate) fn program_nip(local: &LocalPmu<'_>) -> u64 {
    // SAFETY: `program_regs` returns valid registers of the current task.
    // CAST: An `unsigned long` has 64 bits on this machine.
    program_regs(local).map_or(0, |regs| unsafe { (*named(regs)).nip as u64 })
}

/// A copy of the registers with which the current task's program entered the kernel. The fields of
/// [`Interrupted::set_perf_regs`] are 0. For a task without a program all registers are 0 except
/// for MSR\[PR\].
pub(crate) struct ProgramRegs(pt_regs);

impl ProgramRegs {
    /// Copies the registers.
    pub(crate) fn copy(local: &LocalPmu<'_>) -> Self {
        // SAFETY: `program_regs` returns valid registers of the current task.
        let mut regs =
            program_regs(local).map_or_else(pt_regs::default, |regs| unsafe { regs.read() });
        // SAFETY: The registers are a local variable, so they are valid.
        let named = unsafe { named(NonNull::from(&mut regs)) };
        // SAFETY: The registers are a local variable.
        // CAST: An `unsigned long` has 64 bits here.
        unsafe { (*named).msr |= MSR_PR as c_ulong };
        // SAFETY: The registers are a local variable, and no other code has a pointer to them.
        unsafe { Interrupted::from_raw(NonNull::from(&mut regs)) }.clear_perf_regs();
        Self(regs)
    }

    /// Returns NIP: the address of the instruction with which the program continues; 0 without a
    /// program.
    pub(crate) fn nip(&mut self) -> u64 {
        // SAFETY: `self` owns the registers.
        // CAST: An `unsigned long` has 64 bits on this machine.
        unsafe { (*named(self.as_raw())).nip as u64 }
    }

    /// Returns the registers as a pointer for C, which is valid as long as `self` lives and is not
    /// moved.
    pub(crate) fn as_raw(&mut self) -> NonNull<pt_regs> {
        NonNull::from(&mut self.0)
    }
}

/// Returns whether the current interrupt, which is not a PMI, interrupted a program and not the
/// kernel.
pub(crate) fn interrupted_program(_local: &LocalPmu<'_>) -> bool {
    // SAFETY: The function reads a variable of this CPU, and interrupts are off, so the CPU is the
    // same.
    let regs = unsafe { bindings::ebb_pmu_get_irq_regs() };
    // SAFETY: `regs` is null, or valid while the interrupt is handled.
    NonNull::new(regs).is_some_and(|regs| unsafe { (*named(regs)).msr as u64 & MSR_PR != 0 })
}

/// A handler of PMIs.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Handles a PMI on the current CPU. Interrupts are off.
    fn handle(&self, interrupted: &mut Interrupted);

    /// Returns whether this handler's driver has the PMU of the current CPU, if it shares the PMUs
    /// with another driver ([`SharedInterrupt`]). Interrupts are off.
    fn has_pmu(&self) -> bool;
}

/// The handler that [`trampoline`] calls: null, or an `Arc` of the trampoline's type. This is not
/// the kernel crate's atomic, because that is a function call.
static HANDLER: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Calls the handler. The kernel calls this at each PMI.
///
/// # Safety
///
/// `regs` must be the registers of the PMI that is being handled, and `HANDLER` an `Arc<H>`.
unsafe extern "C" fn trampoline<H: Handler>(regs: *mut pt_regs) {
    let handler = HANDLER.load(Acquire);
    // SAFETY: The caller guarantees that it is an `Arc<H>`. `PmcReservation` drops it only when no
    // PMI is being handled any more.
    let handler: ArcBorrow<'_, H> = unsafe { Arc::<H>::borrow(handler) };
    // SAFETY: The caller guarantees that these are the registers of the PMI.
    // INVARIANT: They are valid until the handler returns.
    let interrupted = unsafe { Interrupted::from_raw(NonNull::new_unchecked(regs)) };
    handler.handle(interrupted);
}

/// The reservation of the PMU and its PMI: made for the first user, released after the last one.
///
/// # Invariants
///
/// - `HANDLER` is an `Arc<H>` that this value owns.
/// - While there are users, the PMU is reserved, and `trampoline::<H>` is called at PMIs.
/// - The number of users changes from or to 0 only under the lock.
#[pin_data(PinnedDrop)]
pub(crate) struct PmcReservation<H: Handler> {
    users: AtomicUsize,
    /// Held while the PMU is reserved or released.
    #[pin]
    first_and_last: Mutex<()>,
    handler: PhantomData<Arc<H>>,
}

impl<H: Handler> PmcReservation<H> {
    /// Makes `handler` handle PMIs while there are users. Fails with `EBUSY` if there is another
    /// handler.
    pub(crate) fn new(_permit: CallbackPermit, handler: Arc<H>) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            users: AtomicUsize::new(0),
            first_and_last <- new_mutex!(()),
            handler: {
                let handler = handler.into_foreign();
                // INVARIANT: `HANDLER` was null, so this value owns the `Arc` now. There are no
                // users.
                if HANDLER.compare_exchange(null_mut(), handler, SeqCst, Relaxed).is_err() {
                    // SAFETY: `into_foreign` above returned the pointer, and it was not stored.
                    drop(unsafe { Arc::<H>::from_foreign(handler) });
                    return Err(EBUSY);
                }
                PhantomData
            },
        }? Error)
    }

    /// Adds a user. The first user reserves the PMU. Fails with `EBUSY`, without a new user, if
    /// another driver has reserved the PMU.
    pub(crate) fn get(&self) -> Result {
        if self.add() {
            return Ok(());
        }
        self.get_first()
    }

    /// Adds a user that may be the first one. Fails like [`PmcReservation::get`].
    #[cold]
    fn get_first(&self) -> Result {
        let _lock = self.first_and_last.lock();
        // Another user may have been the first in the meantime.
        if !self.add() {
            // SAFETY: By the type invariants `HANDLER` is an `Arc<H>` for longer than there are
            // users. `drop` releases it, and the permit's invariants guarantee that `drop` runs in
            // time.
            to_result(unsafe { bindings::reserve_pmc_hardware(Some(trampoline::<H>)) })?;
            // INVARIANT: The PMU was reserved just now, and the lock is held. While there are no
            // users, no other code changes the number.
            self.users.store(1, Release);
        }
        Ok(())
    }

    /// Adds a user if there is one already, which keeps the PMU reserved.
    #[inline]
    fn add(&self) -> bool {
        let more = |users: usize| (users > 0).then_some(users.wrapping_add(1));
        self.users.fetch_update(Acquire, Relaxed, more).is_ok()
    }

    /// Removes a user that [`PmcReservation::get`] added. Does nothing if there is no user.
    pub(crate) fn put(&self) {
        let less = |users: usize| (users > 1).then_some(users.wrapping_sub(1));
        if self.users.fetch_update(Release, Relaxed, less).is_err() {
            self.put_last();
        }
    }

    /// Removes a user that may be the last one.
    #[cold]
    fn put_last(&self) {
        let _lock = self.first_and_last.lock();
        // Other users may have been added in the meantime.
        let less = |users: usize| users.checked_sub(1);
        if self.users.fetch_update(AcqRel, Relaxed, less) == Ok(1) {
            // SAFETY: There was a user, so the PMU is reserved by the type invariants. A new user
            // waits for the lock before it reserves the PMU again.
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
        // A PMI on another CPU may have read `perf_irq` or `HANDLER` before the release. Its
        // handler runs with interrupts off, so it has returned after a grace period. Only then may
        // another value own `HANDLER`.
        rcu::synchronize_rcu();
        let handler = HANDLER.swap(null_mut(), SeqCst);
        // SAFETY: By the type invariants it is an `Arc<H>` that this value owns. No PMI uses it any
        // more.
        drop(unsafe { Arc::<H>::from_foreign(handler) });
    }
}

/// The handler of the driver that has reserved the PMU, for [`dispatch`].
static OTHER_HANDLER: AtomicUsize = AtomicUsize::new(0);

/// Calls the handler of the driver that has the PMU of the current CPU. The kernel calls this at
/// each PMI while there is a [`SharedInterrupt`].
///
/// # Safety
///
/// `regs` must be the registers of the PMI that is being handled, `HANDLER` an `Arc<H>`, and
/// `OTHER_HANDLER` a handler of PMIs.
unsafe extern "C" fn dispatch<H: Handler>(regs: *mut pt_regs) {
    // SAFETY: The caller guarantees that it is an `Arc<H>`. `PmcReservation` drops it only when no
    // PMI is being handled any more.
    let handler: ArcBorrow<'_, H> = unsafe { Arc::<H>::borrow(HANDLER.load(Acquire)) };
    if handler.has_pmu() {
        // SAFETY: The caller guarantees the registers and the `Arc<H>`.
        unsafe { trampoline::<H>(regs) };
    } else {
        let other = OTHER_HANDLER.load(Relaxed) as *const ();
        // SAFETY: The caller guarantees a handler of PMIs.
        let other: unsafe extern "C" fn(*mut pt_regs) = unsafe { core::mem::transmute(other) };
        // SAFETY: The caller guarantees the registers of the PMI that is being handled.
        unsafe { other(regs) };
    }
}

/// Makes PMIs call the handler of a [`PmcReservation`] on CPUs whose PMU that handler's driver has,
/// although another driver has reserved the PMU's interrupt. Only an emulator needs this: hardware
/// raises no PMI under EBE.
///
/// # Invariants
///
/// The other driver has reserved the interrupt, and does not notice that `dispatch` replaces its
/// handler. `OTHER_HANDLER` is that handler.
pub(crate) struct SharedInterrupt(());

impl SharedInterrupt {
    /// Replaces the other driver's handler: the function `name`, in the same part of the kernel as
    /// the code at the address `near`. Fails with `ENOENT` if there is no such function.
    ///
    /// # Safety
    ///
    /// As long as the value lives, the other driver must have the PMU reserved, with a handler of
    /// that name, and there must be a [`PmcReservation<H>`] without users.
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
        // SAFETY: The caller guarantees the `Arc<H>` in `HANDLER`. `drop` restores the other
        // handler, and the permit's invariants guarantee that `drop` runs in time.
        to_result(unsafe { bindings::ebb_pmu_replace_handler(Some(dispatch::<H>)) })?;
        // INVARIANT: The handler was replaced just now.
        Ok(Self(()))
    }
}

impl Drop for SharedInterrupt {
    fn drop(&mut self) {
        let other = OTHER_HANDLER.load(Relaxed) as *const ();
        // SAFETY: By the type invariants this is the other driver's handler of PMIs.
        let other: unsafe extern "C" fn(*mut pt_regs) = unsafe { core::mem::transmute(other) };
        // SAFETY: By the type invariants the other driver has the PMU reserved. A `PmcReservation`
        // waits for PMIs that are being handled.
        unsafe { bindings::ebb_pmu_replace_handler(Some(other)) };
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
        // SAFETY: `reserve` reserved the PMU.
        unsafe { bindings::release_pmc_hardware() };
    }
}
