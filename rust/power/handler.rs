// SPDX-License-Identifier: GPL-2.0

//! A slot for the handler of a C callback that gets no pointer of its caller's choice.
//!
//! Such a callback is an `extern "C"` function for one type of handler, which finds the handler in a
//! `static` slot. It may run on any CPU at any time, also as an NMI, so it takes no lock; it does run
//! with interrupts off, so that a grace period of RCU outlasts it.

use core::{
    ffi::c_void,
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        rcu,
        Arc,
        ArcBorrow, //
    },
    types::ForeignOwnable, //
};

/// A place for one handler, of whatever type.
///
/// # Invariants
///
/// The pointer is null, or from `Arc::<H>::into_foreign` for the `H` of the one [`Registered`] that
/// refers to the slot, and owned by that.
pub(super) struct HandlerSlot(Atomic<*mut c_void>);

impl HandlerSlot {
    /// An empty slot.
    pub(super) const fn new() -> Self {
        // INVARIANT: Null.
        Self(Atomic::new(core::ptr::null_mut()))
    }

    /// Puts `handler` into the slot until the returned value is dropped. Fails with `EBUSY` when
    /// there is one already.
    ///
    /// # Safety
    ///
    /// As long as the returned value lives, the callbacks that run have to be those for `H`. No
    /// callback may start once its drop has begun.
    pub(super) unsafe fn register<H: Send + Sync + 'static>(
        &'static self,
        handler: Arc<H>,
    ) -> Result<Registered<H>> {
        let foreign = handler.into_foreign();
        if self
            .0
            .cmpxchg(core::ptr::null_mut(), foreign, Full)
            .is_err()
        {
            // SAFETY: Made by `into_foreign` above, and not stored.
            drop(unsafe { Arc::<H>::from_foreign(foreign) });
            return Err(EBUSY);
        }
        // INVARIANT: The slot was empty, so nobody else's value refers to it.
        Ok(Registered(self, PhantomData))
    }

    /// The handler, `None` when there is none.
    ///
    /// # Safety
    ///
    /// The caller has to be a callback for `H`, as [`HandlerSlot::register`] asks for, and interrupts
    /// to be off for `'a`.
    pub(super) unsafe fn get<'a, H: Send + Sync + 'static>(&self) -> Option<ArcBorrow<'a, H>> {
        let foreign = NonNull::new(self.0.load(Acquire))?;
        // SAFETY: By the type invariants it is an `Arc` of the registered type, which the caller says
        // is `H`. `Registered` drops it a grace period after the last callback started.
        Some(unsafe { Arc::<H>::borrow(foreign.as_ptr()) })
    }
}

/// A handler in its slot; dropping it takes it out.
///
/// # Invariants
///
/// The slot holds an `Arc<H>` that belongs to this value.
pub(super) struct Registered<H: Send + Sync + 'static>(&'static HandlerSlot, PhantomData<Arc<H>>);

impl<H: Send + Sync + 'static> Drop for Registered<H> {
    fn drop(&mut self) {
        // No callback starts any more, as promised to `register`. Those under way have interrupts
        // off, so all are over then. Only after that may the slot be another type's.
        rcu::synchronize_rcu();
        let handler = self.0 .0.xchg(core::ptr::null_mut(), Full);
        // SAFETY: By the type invariants it is an `Arc<H>` of this value's, and nobody borrows it.
        drop(unsafe { Arc::<H>::from_foreign(handler) });
    }
}
