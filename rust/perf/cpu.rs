// SPDX-License-Identifier: GPL-2.0

//! Per-CPU state of a PMU driver, and the code that may use it.
//!
//! perf core schedules events with interrupts off, and only one such action runs on a CPU at a
//! time. But code with interrupts off can still be interrupted: by the PMU's interrupt, if that is
//! an NMI or is not masked with the others, and by probes and tracepoints with perf events of their
//! own. From there perf core calls [`Pmu::stop`], [`Pmu::start`] and [`Pmu::read`] in the middle of
//! any other callback. So there are two types for "this CPU":
//!
//!
//! - [`ExclusiveCpu`] is for the callbacks that schedule events. There is at most one reference to
//!   a CPU's value at a time, so the state that only it can reach may consist of plain `Cell`s;
//! - [`ThisCpu`] is for all code, including the PMU's interrupt. There may be several references to
//!   a CPU's value at a time, each in code that interrupted the previous one. The state that it can
//!   reach must be `Sync`, such as [`PmiCell`] and atomics: their values are never seen partly
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

/// A `Cell` that an interrupt may read and write in the middle of another access. Each access is a
/// single load or store of the whole value, in program order with accesses to other `PmiCell`s.
///
/// There is no order between CPUs.
pub(crate) struct PmiCell<T>(UnsafeCell<T>);

// SAFETY: Each access is a single volatile load or store of an integer, like `READ_ONCE()` and
// `WRITE_ONCE()` in C, which the kernel's memory model allows to race. A value without pointers
// (`IntoBytes`) refers to no other memory, so no other memory has to be visible with it.
unsafe impl<T: Copy + Send + IntoBytes> Sync for PmiCell<T> {}

impl<T: Copy> PmiCell<T> {
    /// One instruction loads or stores a value whose size is its alignment and that of an integer.
    const IS_WORD: () =
        assert!(matches!(size_of::<T>(), 1 | 2 | 4 | 8) && size_of::<T>() == align_of::<T>());

    /// Makes a cell that holds `value`.
    pub(crate) const fn new(value: T) -> Self {
        let () = Self::IS_WORD;
        Self(UnsafeCell::new(value))
    }

    /// Returns the value.
    #[inline]
    pub(crate) fn get(&self) -> T {
        let at = self.0.get();
        // SAFETY: The pointer is to the cell's own value, which is initialised, has this size and
        // alignment by `IS_WORD`, and is written only by single stores.
        unsafe {
            match size_of::<T>() {
                1 => transmute_copy(&at.cast::<MaybeUninit<u8>>().read_volatile()),
                2 => transmute_copy(&at.cast::<MaybeUninit<u16>>().read_volatile()),
                4 => transmute_copy(&at.cast::<MaybeUninit<u32>>().read_volatile()),
                _ => transmute_copy(&at.cast::<MaybeUninit<u64>>().read_volatile()),
            }
        }
    }

    /// Sets the value and returns the old one: a load, then a store.
    pub(crate) fn replace(&self, value: T) -> T {
        let before = self.get();
        self.set(value);
        before
    }

    /// Sets the value.
    #[inline]
    pub(crate) fn set(&self, value: T) {
        let at = self.0.get();
        // SAFETY: The pointer is to the cell's own value, of this size and alignment by `IS_WORD`.
        // `Copy` types have nothing to drop.
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

/// Every CPU's context: the events on its PMU, a driver's state for all code on that CPU (`S`), and
/// its state for code that schedules events (`X`).
///
/// # Invariants
///
/// There are `nr_cpu_ids()` contexts, in the order of the CPUs' numbers.
pub(crate) struct CpuContexts<S, X, D> {
    contexts: KVVec<ExclusiveCpu<S, X, D>>,
}

// SAFETY: `ThisCpu` gives access to the slots, which tolerate interrupts and are used only on their
// own CPU, to an `S`, which is `Sync`, and to the data of events, which are `Sync`, too.
// `ExclusiveCpu` also gives access to an `X`, and only one exists at a time.
unsafe impl<S: Send + Sync, X: Send, D: Send + Sync> Sync for CpuContexts<S, X, D> {}
// SAFETY: The contexts are not bound to the thread that made them. The events that `slots` points
// to belong to perf core and can be used from any CPU.
unsafe impl<S: Send, X: Send, D: Send + Sync> Send for CpuContexts<S, X, D> {}

impl<S: Default, X: Default, D> CpuContexts<S, X, D> {
    /// Allocates a context for each CPU that can ever come up. Fails with `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        // CAST: `usize` has 64 bits here, so a `u32` fits.
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
        // INVARIANT: The loop pushed one context for each number.
        Ok(Arc::new(Self { contexts }, GFP_KERNEL)?)
    }
}

impl<S, X, D> CpuContexts<S, X, D> {
    /// Returns the current CPU's context. This is not a reference, because interrupted code may
    /// have one.
    #[inline]
    fn current(&self) -> *const ExclusiveCpu<S, X, D> {
        // SAFETY: By the type invariants there is a context for each number below `nr_cpu_ids()`,
        // and each CPU's number is below.
        &raw const *unsafe { self.contexts.get_unchecked(current_index()) }
    }

    /// Calls `f` with the current CPU.
    ///
    /// # Safety
    ///
    /// Interrupts must be off until this returns.
    #[inline]
    pub(crate) unsafe fn with_this_cpu<R>(&self, f: impl FnOnce(&ThisCpu<S, D>) -> R) -> R {
        // SAFETY: The pointer is to a context of `self`.
        // INVARIANT: The caller guarantees that interrupts are off. `f` cannot keep the reference.
        f(unsafe { &(*self.current()).this })
    }

    /// Calls `f` with the current CPU, for code that schedules events.
    ///
    /// # Safety
    ///
    /// Interrupts must be off until this returns. The caller must not be the PMU's interrupt or any
    /// other code that interrupts code with interrupts off. It must not be called by code that has
    /// an [`ExclusiveCpu`] of this CPU.
    #[inline]
    pub(crate) unsafe fn with_exclusive_cpu<R>(
        &self,
        f: impl FnOnce(&ExclusiveCpu<S, X, D>) -> R,
    ) -> R {
        // SAFETY: The pointer is to a context of `self`. INVARIANT: The caller guarantees that
        // interrupts are off, and that no other reference exists: code with one is neither
        // interrupted by this, nor calls this. `f` cannot keep the reference.
        f(unsafe { &*self.current() })
    }
}

/// Returns the number of the current CPU: `raw_smp_processor_id()`, which is a function call in
/// Rust.
#[inline]
fn current_index() -> usize {
    #[cfg(CONFIG_PPC64)]
    {
        let index: usize;
        // SAFETY: Register 13 always has the address of the current CPU's paca. Without `nomem` the
        // compiler does not move this across code that turns interrupts off or on.
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
    // CAST: `usize` has 64 bits here, so a `u32` fits.
    #[cfg(not(CONFIG_PPC64))]
    (CpuId::current().as_u32() as usize)
}

/// Proof that interrupts are off, for callbacks that need no access to the CPU's state.
///
/// # Invariants
///
/// Interrupts are off for the lifetime `'a`.
pub(crate) struct IrqsOff<'a>(PhantomData<(&'a (), *mut ())>);

impl IrqsOff<'_> {
    /// Makes the proof.
    ///
    /// # Safety
    ///
    /// Interrupts must be off for the lifetime of the value.
    #[inline]
    pub(super) unsafe fn new() -> Self {
        // INVARIANT: The caller guarantees that interrupts are off.
        Self(PhantomData)
    }
}

/// The current CPU: proof that the code cannot migrate, and access to the events on the CPU's PMU.
/// It dereferences to the state that is shared with the PMU's interrupt.
///
/// # Invariants
///
/// A reference is always to the current CPU's value, and interrupts are off while it lives.
pub(crate) struct ThisCpu<S, D> {
    slots: Slots<D>,
    ownership: Ownership,
    state: S,
    /// Keeps references from being sent to another thread.
    not_send: PhantomData<*mut ()>,
}

impl<S, D> ThisCpu<S, D> {
    /// Returns the events on this CPU's PMU.
    #[inline]
    pub(crate) fn slots(&self) -> &Slots<D> {
        &self.slots
    }

    /// Returns the record of which driver has this CPU's PMU.
    #[inline]
    pub(super) fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    /// Returns whether the interposed driver has this CPU's PMU.
    #[inline]
    pub(crate) fn has_pmu(&self) -> bool {
        self.ownership.owner() == Owner::Interposed
    }

    /// Shows that interrupts are off.
    #[inline]
    pub(crate) fn irqs_off(&self) -> &IrqsOff<'_> {
        // INVARIANT: Interrupts are off by the invariants of `self`, which the result borrows.
        &IrqsOff(PhantomData)
    }

    /// Returns the CPU.
    #[inline]
    pub(crate) fn id(&self) -> CpuId {
        // SAFETY: `current_index` returns the number of a CPU.
        // CAST: Numbers of CPUs fit in a `u32`.
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

/// The current CPU, for code that schedules events. It dereferences to [`ThisCpu`]. Each CPU's
/// value has its own cache lines (128 bytes, the longest of any POWER).
///
/// # Invariants
///
/// While a reference lives, no other reference to the value of the same CPU exists.
#[repr(align(128))]
pub(crate) struct ExclusiveCpu<S, X, D> {
    this: ThisCpu<S, D>,
    state: X,
}

impl<S, X, D> ExclusiveCpu<S, X, D> {
    /// Returns the driver's state that only code that schedules events uses.
    #[inline]
    pub(crate) fn state(&self) -> &X {
        &self.state
    }

    /// Returns the group of the event in the first slot, its leader first, including events that
    /// are not on a PMU. Empty if there is no event, or if that event was already there when the
    /// PMU was last enabled.
    pub(crate) fn first_group(&self) -> impl Iterator<Item = &Event<D>> {
        let slots = self.slots();
        let first = slots.get(0).filter(|_| slots.are_being_added());
        first.into_iter().flat_map(|event| {
            // perf core changes a group only under its context's lock. It holds the lock of an
            // event's context from before it adds the event until the PMU is enabled
            // (`lockdep_assert_held()` in `event_sched_in()`). It need not hold the locks of other
            // events on the PMU: another CPU may add a disabled event to their groups in the
            // meantime (`perf_install_in_context()`).
            // SAFETY: So the group does not change here.
            unsafe { Group::of(event) }
        })
    }

    /// Returns the events on this PMU of the task that the event in the first slot follows: on this
    /// CPU, bound to another CPU, or disabled. Empty if that event follows no task, and in the
    /// cases in which [`ExclusiveCpu::first_group`] is empty.
    pub(crate) fn task_events(&self) -> impl Iterator<Item = &Event<D>> {
        let slots = self.slots();
        let first = slots.get(0).filter(|_| slots.are_being_added());
        let first = first.filter(|event| event.follows_task());
        first.into_iter().flat_map(|event| {
            // SAFETY: An event on a CPU is in a context. perf core changes the list of a context
            // only under the context's lock (`lockdep_assert_held()` in `list_add_event()` and
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
