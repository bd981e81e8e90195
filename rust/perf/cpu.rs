// SPDX-License-Identifier: GPL-2.0

//! Per-CPU state of a PMU driver.
//!
//! A callback of perf core gets a [`ThisCpu`]: proof that it runs with interrupts off, thus on one
//! CPU until it returns. Through it the driver reaches that CPU's events and its own state, both
//! made of `Cell`s, as code that a PMU interrupt interrupts must not hold on to exclusive
//! references.

use super::Slots;
use core::{
    marker::PhantomData,
    ops::Deref, //
};
use kernel::{
    cpu::CpuId,
    prelude::*,
    sync::Arc, //
};

/// One CPU's share, on cache lines of its own (128 bytes, the largest in use).
#[repr(align(128))]
struct Context<S> {
    slots: Slots,
    state: S,
}

/// Every CPU's share of a PMU.
pub(crate) struct CpuContexts<S> {
    contexts: KVVec<Context<S>>,
}

// SAFETY: A context is reached through `ThisCpu` only, which stays on the context's CPU with
// interrupts off; so no two CPUs use the same context at a time. A PMU interrupt that comes all the
// same leaves alone what the code that it interrupts may be changing, see `this_cpu`.
unsafe impl<S: Send> Sync for CpuContexts<S> {}
// SAFETY: The contexts are not bound to the thread that made them; the events that `slots` points
// to are perf core's, usable from any CPU.
unsafe impl<S: Send> Send for CpuContexts<S> {}

impl<S: Default> CpuContexts<S> {
    /// Allocates a context for each CPU that can ever come up. Fails with `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        // CAST: A count of CPUs fits any integer.
        let cpus = kernel::cpu::nr_cpu_ids() as usize;
        let mut contexts = KVVec::with_capacity(cpus, GFP_KERNEL)?;
        for _ in 0..cpus {
            let context = Context {
                slots: Slots::new(),
                state: S::default(),
            };
            contexts.push(context, GFP_KERNEL)?;
        }
        Ok(Arc::new(Self { contexts }, GFP_KERNEL)?)
    }
}

impl<S> CpuContexts<S> {
    /// The context of the CPU that this runs on.
    ///
    /// # Safety
    ///
    /// The caller must run with interrupts off and keep them off for the lifetime `'a`. Where that
    /// does not keep the PMU's interrupt out, its handler must not use what the code that it
    /// interrupted may be changing: the driver needs a rule by which it can tell.
    pub(crate) unsafe fn this_cpu(&self) -> Option<ThisCpu<'_, S>> {
        let id = CpuId::current();
        // CAST: A CPU's number fits any integer.
        let context = self.contexts.get(id.as_u32() as usize)?;
        Some(ThisCpu {
            context,
            id,
            bound: PhantomData,
        })
    }
}

/// The CPU that a callback runs on: proof that it cannot migrate, and the way to the CPU's events
/// and to the driver's state there, to which it dereferences.
///
/// # Invariants
///
/// Interrupts are off while the value lives, and `context` is that of the current CPU.
pub(crate) struct ThisCpu<'a, S> {
    context: &'a Context<S>,
    id: CpuId,
    /// Must not be sent to another thread.
    bound: PhantomData<*mut ()>,
}

impl<'a, S> ThisCpu<'a, S> {
    /// The events on this CPU's PMU.
    pub(crate) fn slots(&self) -> &'a Slots {
        &self.context.slots
    }

    /// The CPU.
    pub(crate) fn id(&self) -> CpuId {
        self.id
    }
}

impl<S> Deref for ThisCpu<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.context.state
    }
}
