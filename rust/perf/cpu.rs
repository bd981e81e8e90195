// SPDX-License-Identifier: GPL-2.0

//! Per-CPU state of a PMU driver, and who may use it.
//!
//! perf core schedules events with interrupts off and does one such thing at a time on a CPU. But
//! code with interrupts off is interrupted all the same: by the PMU's interrupt, where that is an
//! NMI or is not masked with the others, and by probes and tracepoints with perf events of their
//! own. From there perf core calls [`Pmu::stop`], [`Pmu::start`] and [`Pmu::read`] in the middle of
//! any other callback. So there are two types for "this CPU":
//!
//! - [`ExclusiveCpu`] is for the callbacks that schedule events. There is at most one reference to
//!   that of a CPU at a time, so the state that only it reaches can be made of plain `Cell`s;
//! - [`ThisCpu`] is for everybody, the PMU's interrupt included. There may be several references to
//!   that of a CPU at a time, each in code that interrupted the one before. The state that it
//!   reaches must be `Sync`, such as [`PmiCell`] and atomics: no value of them can be seen half
//!   written.
//!
//! [`Pmu::read`]: super::Pmu::read
//! [`Pmu::start`]: super::Pmu::start
//! [`Pmu::stop`]: super::Pmu::stop

#[cfg(CONFIG_PPC64)]
use super::bindings;
use super::{
    event::{
        ContextEvents,
        Group, //
    },
    ownership::{
        Owner,
        Ownership, //
    },
    Event,
    Slots, //
};
use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem::{
        transmute_copy,
        MaybeUninit, //
    },
    ops::Deref, //
};
use kernel::{
    cpu::CpuId,
    prelude::*,
    sync::Arc, //
};

/// A `Cell` that an interrupt may read and write in the middle of another access: each is a single
/// load or store of the whole, in program order with those of other `PmiCell`s.
///
/// That orders nothing between CPUs.
pub(crate) struct PmiCell<T>(UnsafeCell<T>);

// SAFETY: Each access is a single volatile load or store of an integer, whatever the fields, as
// `READ_ONCE()` and `WRITE_ONCE()` in C, which the kernel's memory model lets race. A value without
// pointers (`IntoBytes`) means nothing beyond its bits, so nothing else has to be visible with it.
unsafe impl<T: Copy + Send + IntoBytes> Sync for PmiCell<T> {}

impl<T: Copy> PmiCell<T> {
    /// One instruction loads or stores so many bytes, if they are aligned to their number.
    const IS_WORD: () =
        assert!(matches!(size_of::<T>(), 1 | 2 | 4 | 8) && size_of::<T>() == align_of::<T>());

    /// A cell that holds `value`.
    pub(crate) const fn new(value: T) -> Self {
        let () = Self::IS_WORD;
        Self(UnsafeCell::new(value))
    }

    /// The value.
    #[inline]
    pub(crate) fn get(&self) -> T {
        let at = self.0.get();
        // SAFETY: The pointer is to the cell's own value, which is initialised, has this size and
        // alignment by `IS_WORD`, and is written by single stores only.
        unsafe {
            match size_of::<T>() {
                1 => transmute_copy(&at.cast::<MaybeUninit<u8>>().read_volatile()),
                2 => transmute_copy(&at.cast::<MaybeUninit<u16>>().read_volatile()),
                4 => transmute_copy(&at.cast::<MaybeUninit<u32>>().read_volatile()),
                _ => transmute_copy(&at.cast::<MaybeUninit<u64>>().read_volatile()),
            }
        }
    }

    /// Sets the value, and returns what it was: a load, then a store.
    pub(crate) fn replace(&self, value: T) -> T {
        let before = self.get();
        self.set(value);
        before
    }

    /// Sets the value.
    #[inline]
    pub(crate) fn set(&self, value: T) {
        let at = self.0.get();
        // SAFETY: As in `get`; `Copy` types have nothing to drop.
        unsafe {
            match size_of::<T>() {
                1 => at
                    .cast::<MaybeUninit<u8>>()
                    .write_volatile(transmute_copy(&value)),
                2 => at
                    .cast::<MaybeUninit<u16>>()
                    .write_volatile(transmute_copy(&value)),
                4 => at
                    .cast::<MaybeUninit<u32>>()
                    .write_volatile(transmute_copy(&value)),
                _ => at
                    .cast::<MaybeUninit<u64>>()
                    .write_volatile(transmute_copy(&value)),
            }
        }
    }
}

impl<T: Copy + Default> Default for PmiCell<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// Every CPU's context: the events on its PMU, what a driver keeps for all code on that CPU (`S`),
/// and what it keeps for code that schedules events (`X`).
///
/// # Invariants
///
/// There are `nr_cpu_ids()` contexts, by the CPUs' numbers.
pub(crate) struct CpuContexts<S, X, D> {
    contexts: KVVec<ExclusiveCpu<S, X, D>>,
}

// SAFETY: `ThisCpu` reaches the slots, which bear being interrupted and are used on their own CPU
// only, an `S`, which is `Sync`, and the data of events, which are `Sync` too. `ExclusiveCpu`
// reaches an `X` as well, one at a time.
unsafe impl<S: Send + Sync, X: Send, D: Send + Sync> Sync for CpuContexts<S, X, D> {}
// SAFETY: The contexts are not bound to the thread that made them; the events that `slots` points
// to are perf core's, usable from any CPU.
unsafe impl<S: Send, X: Send, D: Send + Sync> Send for CpuContexts<S, X, D> {}

impl<S: Default, X: Default, D> CpuContexts<S, X, D> {
    /// Allocates a context for each CPU that can ever come up. Fails with `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        // CAST: A number of CPUs fits any integer.
        let cpus = kernel::cpu::nr_cpu_ids() as usize;
        let mut contexts = KVVec::with_capacity(cpus, GFP_KERNEL)?;
        for _ in 0..cpus {
            let context = ExclusiveCpu {
                this: ThisCpu {
                    slots: Slots::new(),
                    ownership: Ownership::default(),
                    state: S::default(),
                    not_send: PhantomData,
                },
                state: X::default(),
            };
            contexts.push(context, GFP_KERNEL)?;
        }
        // INVARIANT: One was pushed for each number.
        Ok(Arc::new(Self { contexts }, GFP_KERNEL)?)
    }
}

impl<S, X, D> CpuContexts<S, X, D> {
    /// The context of the CPU that this runs on. No reference, as code that this interrupts may
    /// have one.
    #[inline]
    fn current(&self) -> *const ExclusiveCpu<S, X, D> {
        // SAFETY: By the type invariants, as each CPU's number is below `nr_cpu_ids()`.
        &raw const *unsafe { self.contexts.get_unchecked(current_index()) }
    }

    /// Calls `f` with the CPU that this runs on.
    ///
    /// # Safety
    ///
    /// Interrupts must be off until this returns.
    #[inline]
    pub(crate) unsafe fn with_this_cpu<R>(&self, f: impl FnOnce(&ThisCpu<S, D>) -> R) -> R {
        // SAFETY: A context of `self`.
        // INVARIANT: The caller guarantees that interrupts are off. `f` cannot keep the reference.
        f(unsafe { &(*self.current()).this })
    }

    /// Calls `f` with the CPU that this runs on, for code that schedules events.
    ///
    /// # Safety
    ///
    /// Interrupts must be off until this returns. The caller must not be the PMU's interrupt, nor
    /// anything else that interrupts code with interrupts off, and must not be called by code with
    /// an [`ExclusiveCpu`] of this CPU.
    #[inline]
    pub(crate) unsafe fn with_exclusive_cpu<R>(
        &self,
        f: impl FnOnce(&ExclusiveCpu<S, X, D>) -> R,
    ) -> R {
        // SAFETY: A context of `self`.
        // INVARIANT: The caller guarantees that interrupts are off, and that nobody else has a
        // reference: who does is neither interrupted by this, nor calls this. `f` cannot keep it.
        f(unsafe { &*self.current() })
    }
}

/// The number of the CPU that this runs on: `raw_smp_processor_id()`, which is a function call in
/// Rust.
#[inline]
fn current_index() -> usize {
    #[cfg(CONFIG_PPC64)]
    {
        let index: usize;
        // SAFETY: Register 13 has the address of this CPU's paca, whatever CPU that is. Without
        // `nomem` the compiler keeps this on its side of what turns interrupts off.
        unsafe {
            core::arch::asm!(
                "lhz {}, {}(13)",
                out(reg) index,
                const bindings::EBB_PERF_PACA_INDEX,
                options(nostack, preserves_flags)
            )
        };
        index
    }
    // CAST: A CPU's number fits any integer.
    #[cfg(not(CONFIG_PPC64))]
    (CpuId::current().as_u32() as usize)
}

/// Shows that interrupts are off, for callbacks that need no more of the CPU.
///
/// # Invariants
///
/// Interrupts are off for the lifetime `'a`.
pub(crate) struct IrqsOff<'a>(PhantomData<(&'a (), *mut ())>);

impl IrqsOff<'_> {
    /// Shows it.
    ///
    /// # Safety
    ///
    /// Interrupts must be off for the lifetime.
    #[inline]
    pub(super) unsafe fn new() -> Self {
        // INVARIANT: The caller guarantees it.
        Self(PhantomData)
    }
}

/// The CPU that this code runs on: proof that it cannot migrate, and the way to the events on the
/// CPU's PMU and to the state shared with the PMU's interrupt, to which it dereferences.
///
/// # Invariants
///
/// A reference is to the current CPU's, and interrupts are off while it lives.
pub(crate) struct ThisCpu<S, D> {
    slots: Slots<D>,
    ownership: Ownership,
    state: S,
    /// Keeps references from being sent to another thread.
    not_send: PhantomData<*mut ()>,
}

impl<S, D> ThisCpu<S, D> {
    /// The events on this CPU's PMU.
    #[inline]
    pub(crate) fn slots(&self) -> &Slots<D> {
        &self.slots
    }

    /// Which driver has this CPU's PMU, for an interposed driver.
    #[inline]
    pub(super) fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    /// Whether the driver that interposed itself has this CPU's PMU.
    #[inline]
    pub(crate) fn has_pmu(&self) -> bool {
        self.ownership.owner() == Owner::Interposed
    }

    /// Shows that interrupts are off.
    #[inline]
    pub(crate) fn irqs_off(&self) -> &IrqsOff<'_> {
        // INVARIANT: By those of `self`, which the value borrows.
        &IrqsOff(PhantomData)
    }

    /// The CPU.
    #[inline]
    pub(crate) fn id(&self) -> CpuId {
        // SAFETY: It is the number of a CPU. CAST: Such numbers are small.
        #[cfg(CONFIG_PPC64)]
        return unsafe { CpuId::from_u32_unchecked(current_index() as u32) };
        #[cfg(not(CONFIG_PPC64))]
        CpuId::current()
    }
}

impl<S, D> Deref for ThisCpu<S, D> {
    type Target = S;

    #[inline]
    fn deref(&self) -> &S {
        &self.state
    }
}

/// The CPU that this code runs on, for code that schedules events. It dereferences to [`ThisCpu`].
/// Each has cache lines of its own (128 bytes, the longest of any POWER).
///
/// # Invariants
///
/// Nobody else has a reference to that of the same CPU while one lives.
#[repr(align(128))]
pub(crate) struct ExclusiveCpu<S, X, D> {
    this: ThisCpu<S, D>,
    state: X,
}

impl<S, X, D> ExclusiveCpu<S, X, D> {
    /// The driver's state that only code that schedules events uses.
    #[inline]
    pub(crate) fn state(&self) -> &X {
        &self.state
    }

    /// The group of the event in the first slot, its leader first, with the events of it that are
    /// on no PMU. Empty if there is no event, and unless that event came since the PMU was last
    /// enabled.
    pub(crate) fn first_group(&self) -> impl Iterator<Item = &Event<D>> {
        let slots = self.slots();
        let first = slots.get(0).filter(|_| slots.are_coming());
        first.into_iter().flat_map(|event| {
            // perf core changes a group under its context's lock only. From before it adds an event
            // until the PMU is enabled it holds the lock of the event's context
            // (`lockdep_assert_held()` in `event_sched_in()`). It need not hold those of other
            // events on the PMU: another CPU may add a disabled event to their groups meanwhile
            // (`perf_install_in_context()`).
            // SAFETY: So the group does not change here.
            unsafe { Group::of(event) }
        })
    }

    /// Returns the events of this PMU that the task of the event in the first slot has: on this
    /// CPU, bound to another one, or disabled. Empty if that event follows no task, and in the
    /// cases in which [`ExclusiveCpu::first_group`] is.
    pub(crate) fn task_events(&self) -> impl Iterator<Item = &Event<D>> {
        let slots = self.slots();
        let first = slots.get(0).filter(|_| slots.are_coming());
        let first = first.filter(|event| event.follows_task());
        first.into_iter().flat_map(|event| {
            // SAFETY: An event on a CPU is in a context. perf core changes the list of a context
            // under the context's lock only (`lockdep_assert_held()` in `list_add_event()` and
            // `list_del_event()`), which it holds here, as `first_group` explains.
            unsafe { ContextEvents::of(event) }
        })
    }
}

impl<S, X, D> Deref for ExclusiveCpu<S, X, D> {
    type Target = ThisCpu<S, D>;

    #[inline]
    fn deref(&self) -> &ThisCpu<S, D> {
        &self.this
    }
}
