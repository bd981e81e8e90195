// SPDX-License-Identifier: GPL-2.0

//! A timer for each CPU, by which code of a PM interrupt has something looked at again soon.
//!
//! A PM interrupt may be an NMI, in which no timer can be started. It leaves that to an interrupt of
//! its own then (`irq_work`). The timer fires in hard interrupt context on the CPU that started it,
//! also with PREEMPT_RT, and PM interrupts are held back meanwhile.

use super::bindings;
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc,
        ArcBorrow, //
    },
    types::ForeignOwnable, //
};

/// Who looks when a timer fires.
pub(crate) trait Look: Send + Sync + 'static {
    /// Looks, on the current CPU, with interrupts off and PM interrupts masked; the timer interrupted
    /// the current task `in_program` or in the kernel. Returns in how many nanoseconds to look again.
    fn look(&self, in_program: bool) -> Option<u64>;
}

/// Who looks, an `Arc` of the type that [`trampoline`] is made for.
static LOOK: Atomic<*mut core::ffi::c_void> = Atomic::new(core::ptr::null_mut());

/// # Safety
///
/// `LOOK` must be an `Arc<L>` or null.
unsafe extern "C" fn trampoline<L: Look>(in_program: bool) -> u64 {
    let Some(look) = NonNull::new(LOOK.load(Acquire)) else {
        return 0;
    };
    // SAFETY: `Timers` put an `Arc<L>` there, and drops it only when no timer fires any more.
    let look: ArcBorrow<'_, L> = unsafe { Arc::<L>::borrow(look.as_ptr()) };
    look.look(in_program).unwrap_or(0)
}

/// Has the current CPU look in at most `nanoseconds`; without effect when there are no [`Timers`].
/// Interrupts must be off. May be called in a PM interrupt.
pub(crate) fn look_within(nanoseconds: u64) {
    // SAFETY: The timers are set up as long as there is somebody to call, else this does nothing.
    unsafe { bindings::ebb_pmu_look_within(nanoseconds) };
}

/// The right to the timers.
///
/// # Invariants
///
/// `LOOK` holds an `Arc<L>` that belongs to this value.
pub(crate) struct Timers<L: Look>(core::marker::PhantomData<Arc<L>>);

impl<L: Look> Timers<L> {
    /// Makes `look` the one that is called. Fails with `EBUSY` when there is one already.
    pub(crate) fn new(look: Arc<L>) -> Result<Self> {
        let foreign = look.into_foreign();
        if LOOK.cmpxchg(core::ptr::null_mut(), foreign, Full).is_err() {
            // SAFETY: It was made by `into_foreign` above and was not stored.
            drop(unsafe { Arc::<L>::from_foreign(foreign) });
            return Err(EBUSY);
        }
        // SAFETY: The trampoline matches the type of what `LOOK` holds, and it is not called any
        // more once `drop` has taken the timers down.
        unsafe { bindings::ebb_pmu_look_setup(Some(trampoline::<L>)) };
        // INVARIANT: The `Arc` is this value's now; nobody else's was there.
        Ok(Self(core::marker::PhantomData))
    }
}

impl<L: Look> Drop for Timers<L> {
    fn drop(&mut self) {
        // SAFETY: Set up in `new`. This waits until no timer is armed or fires; none is started
        // anew, as `look` asks for that only while there are events.
        unsafe { bindings::ebb_pmu_look_teardown() };
        let look = LOOK.xchg(core::ptr::null_mut(), Full);
        if !look.is_null() {
            // SAFETY: By the type invariants it is an `Arc<L>`; no timer uses it any more.
            drop(unsafe { Arc::<L>::from_foreign(look) });
        }
    }
}
