// SPDX-License-Identifier: GPL-2.0

//! The C callbacks behind a [`Pmu`]: raw pointers to references, one call of the trait, a result to
//! an errno. They also keep each CPU's [`Slots`].
//!
//! [`Slots`]: super::Slots

use super::{
    bindings,
    instance::Locate,
    pmu::{
        Exclusive,
        Shared, //
    },
    Event,
    EventFlags,
    IrqsOff,
    NewEvent,
    PerfEvent,
    Pmu,
    SampleFormat,
    Transaction, //
};
use core::marker::PhantomData;
use kernel::{
    error::from_result,
    prelude::*, //
};

/// The callbacks of the driver `T`, which find the driver through `L`.
pub(super) struct VTable<T, L>(PhantomData<(T, L)>);

/// Calls `f` with the driver and this CPU, for a callback that schedules events.
///
/// # Safety
///
/// `pmu` must be a PMU for which `L` finds the driver. Interrupts must be off until this returns,
/// and no other callback that schedules events may be running on this CPU.
unsafe fn exclusive<T: Pmu, L: Locate<T>, R>(
    pmu: *mut bindings::pmu,
    f: impl FnOnce(&T, &Exclusive<T>) -> R,
) -> R {
    // SAFETY: The caller guarantees a PMU for which `L` finds the driver.
    let bound = unsafe { L::bound(pmu) };
    let f = |cpu: &Exclusive<T>| f(bound.driver(), cpu);
    // SAFETY: The caller guarantees that interrupts are off and that this is the only callback of
    // its kind on this CPU.
    unsafe { bound.cpus().with_exclusive_cpu(f) }
}

/// Calls `f` with the driver, this CPU and an event on it, for a callback that perf core may call
/// in the middle of another one.
///
/// # Safety
///
/// `event` must be live and belong to `T`, on a PMU for which `L` finds `T`. Interrupts must be off
/// until this returns.
unsafe fn nested<T: Pmu, L: Locate<T>>(
    event: *mut bindings::perf_event,
    f: impl FnOnce(&T, &Shared<T>, &Event<T::EventData>),
) {
    // SAFETY: The caller guarantees a live event of such a PMU, which is registered while it has
    // events.
    let bound = unsafe { L::bound((*event).pmu) };
    // SAFETY: The caller guarantees a live event.
    let event = unsafe { Event::<T::EventData>::from_raw(event) };
    let f = |cpu: &Shared<T>| f(bound.driver(), cpu, event);
    // SAFETY: The caller guarantees that interrupts are off.
    unsafe { bound.cpus().with_this_cpu(f) };
}

impl<T: Pmu, L: Locate<T>> VTable<T, L> {
    /// Fills in the callbacks of `pmu`.
    pub(super) fn fill(pmu: &mut bindings::pmu) {
        pmu.event_init = Some(Self::event_init);
        pmu.pmu_enable = Some(Self::pmu_enable);
        pmu.pmu_disable = Some(Self::pmu_disable);
        pmu.add = Some(Self::add);
        pmu.del = Some(Self::del);
        pmu.start = Some(Self::start);
        pmu.stop = Some(Self::stop);
        pmu.read = Some(Self::read);
        if T::HAS_START_TXN && T::HAS_COMMIT_TXN && T::HAS_CANCEL_TXN {
            pmu.start_txn = Some(Self::start_txn);
            pmu.commit_txn = Some(Self::commit_txn);
            pmu.cancel_txn = Some(Self::cancel_txn);
        }
        if T::HAS_SCHED_TASK {
            pmu.sched_task = Some(Self::sched_task);
        }
        if T::HAS_EVENT_IDX {
            pmu.event_idx = Some(Self::event_idx);
        }
    }

    /// # Safety
    ///
    /// perf core guarantees that `event` is being opened for a PMU of `T`.
    pub(super) unsafe extern "C" fn event_init(event: *mut bindings::perf_event) -> c_int {
        // SAFETY: The caller guarantees an event of a registered PMU of `T`.
        let bound = unsafe { L::bound((*event).pmu) };
        // SAFETY: perf core is opening the event until this returns.
        let new = unsafe { NewEvent::from_raw(event) };
        from_result(|| {
            let data = bound.driver().event_init(&new)?;
            // SAFETY: The event belongs to this PMU, and no other code sees it yet. `destroy` frees
            // the data.
            unsafe {
                (*event).pmu_private = KBox::into_raw(data).cast();
                (*event).destroy = Some(Self::destroy);
            }
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// perf core guarantees that [`VTable::event_init`] accepted `event`, and that it is on no CPU
    /// any more. Its PMU is registered, or about to be unregistered.
    pub(super) unsafe extern "C" fn destroy(event: *mut bindings::perf_event) {
        // SAFETY: The caller guarantees a live event of a PMU of `T`, whose `event_init` accepted
        // it.
        unsafe {
            let bound = L::bound((*event).pmu);
            bound.driver().destroy(Event::from_raw(event));
            let data = (*event).pmu_private;
            (*event).pmu_private = core::ptr::null_mut();
            // `event_init` made the data, and perf core calls this once. No callback uses the data
            // later: the event's state forbids to map its page (`__pmu_detach_event()`,
            // `perf_mmap()`).
            drop(KBox::<T::EventData>::from_raw(data.cast()));
        }
    }

    /// # Safety
    ///
    /// perf core guarantees that `pmu` is registered, interrupts are off, and no such callback is
    /// running.
    #[inline(never)] // Saves 3 instructions for an event of another driver (`Interposed`).
    pub(super) unsafe extern "C" fn pmu_enable(pmu: *mut bindings::pmu) {
        // SAFETY: The caller guarantees what `exclusive` requires.
        unsafe {
            exclusive::<T, L, _>(pmu, |driver: &T, cpu| {
                driver.pmu_enable(cpu);
                cpu.slots().record_enable();
            })
        }
    }

    /// # Safety
    ///
    /// perf core guarantees that `pmu` is registered, interrupts are off, and no such callback is
    /// running.
    pub(super) unsafe extern "C" fn pmu_disable(pmu: *mut bindings::pmu) {
        // SAFETY: The caller guarantees what `exclusive` requires.
        unsafe { exclusive::<T, L, _>(pmu, |driver: &T, cpu| driver.pmu_disable(cpu)) }
    }

    /// # Safety
    ///
    /// perf core guarantees that `event` is live until the matching [`VTable::del`], interrupts are
    /// off, and no such callback is running.
    #[inline(never)] // Saves 5 instructions for an event of another driver (`Interposed`).
    pub(super) unsafe extern "C" fn add(event: *mut bindings::perf_event, flags: c_int) -> c_int {
        // SAFETY: The caller guarantees a live event of this PMU.
        let event = unsafe { Event::<T::EventData>::from_raw(event) };
        let add = |driver: &T, cpu: &Exclusive<T>| {
            from_result(|| {
                if !cpu.slots().has_room() {
                    return Err(EAGAIN);
                }
                driver.add(cpu, event, EventFlags::from_raw(flags))?;
                // SAFETY: perf core keeps the event until `del`, which removes it from its slot.
                unsafe { cpu.slots().push(event) };
                if Self::wants_sched_task(event) {
                    // SAFETY: The PMU is registered. `del` undoes this on the same CPU.
                    unsafe { bindings::perf_sched_cb_inc(event.pmu()) };
                }
                Ok(0)
            })
        };
        // SAFETY: The caller guarantees what `exclusive` requires.
        unsafe { exclusive::<T, L, _>(event.pmu(), add) }
    }

    /// # Safety
    ///
    /// perf core guarantees that `event` was added on this CPU, interrupts are off, and no such
    /// callback is running.
    #[inline(never)] // Saves 12 instructions for an event of another driver (`Interposed`).
    pub(super) unsafe extern "C" fn del(event: *mut bindings::perf_event, _flags: c_int) {
        // SAFETY: The caller guarantees a live event of this PMU.
        let event = unsafe { Event::<T::EventData>::from_raw(event) };
        let del = |driver: &T, cpu: &Exclusive<T>| {
            driver.del(cpu, event);
            if cpu.slots().remove(event) && Self::wants_sched_task(event) {
                // SAFETY: The PMU is registered. `add` put the event into a slot and called
                // `perf_sched_cb_inc` once for it.
                unsafe { bindings::perf_sched_cb_dec(event.pmu()) };
            }
        };
        // SAFETY: The caller guarantees what `exclusive` requires.
        unsafe { exclusive::<T, L, _>(event.pmu(), del) }
    }

    /// Returns whether perf core must report task switches while `event` is on a CPU.
    fn wants_sched_task(event: &PerfEvent) -> bool {
        T::HAS_SCHED_TASK && L::HAS_EVERY_EVENT && event.attr().samples(SampleFormat::BranchStack)
    }

    /// # Safety
    ///
    /// perf core guarantees that `context` belongs to a registered PMU of `T` on this CPU,
    /// interrupts are off, and no such callback is running.
    unsafe extern "C" fn sched_task(
        context: *mut bindings::perf_event_pmu_context,
        _task: *mut kernel::bindings::task_struct,
        sched_in: bool,
    ) {
        // SAFETY: The caller guarantees a live context.
        let pmu = unsafe { (*context).pmu };
        let sched_task = |driver: &T, cpu: &Exclusive<T>| driver.sched_task(cpu, sched_in);
        // SAFETY: The caller guarantees what `exclusive` requires.
        unsafe { exclusive::<T, L, _>(pmu, sched_task) }
    }

    /// # Safety
    ///
    /// perf core guarantees that `event` is on this CPU's PMU or being added or deleted, and that
    /// interrupts are off.
    unsafe extern "C" fn start(event: *mut bindings::perf_event, _flags: c_int) {
        // SAFETY: The caller guarantees what `nested` requires.
        unsafe { nested::<T, L>(event, |driver: &T, cpu, event| driver.start(cpu, event)) }
    }

    /// # Safety
    ///
    /// perf core guarantees that `event` is on this CPU's PMU or being added or deleted, and that
    /// interrupts are off.
    unsafe extern "C" fn stop(event: *mut bindings::perf_event, _flags: c_int) {
        // SAFETY: The caller guarantees what `nested` requires.
        unsafe { nested::<T, L>(event, |driver: &T, cpu, event| driver.stop(cpu, event)) }
    }

    /// # Safety
    ///
    /// perf core guarantees that `event` is on this CPU's PMU or being added or deleted, and that
    /// interrupts are off.
    unsafe extern "C" fn read(event: *mut bindings::perf_event) {
        // SAFETY: The caller guarantees a live event of a registered PMU of `T`.
        let (bound, event) = unsafe {
            (
                L::bound((*event).pmu),
                Event::<T::EventData>::from_raw(event),
            )
        };
        // SAFETY: The caller guarantees that interrupts are off.
        bound.driver().read(&unsafe { IrqsOff::new() }, event);
    }

    /// # Safety
    ///
    /// perf core guarantees that `pmu` is registered, interrupts are off, and no such callback is
    /// running.
    pub(super) unsafe extern "C" fn start_txn(pmu: *mut bindings::pmu, flags: c_uint) {
        let txn = Transaction::from_raw(flags);
        // SAFETY: The caller guarantees what `exclusive` requires.
        unsafe { exclusive::<T, L, _>(pmu, |driver: &T, cpu| driver.start_txn(cpu, txn)) }
    }

    /// # Safety
    ///
    /// perf core guarantees that `pmu` is registered, interrupts are off, and no such callback is
    /// running.
    #[inline(never)] // Saves 5 instructions for an event of another driver (`Interposed`).
    pub(super) unsafe extern "C" fn commit_txn(pmu: *mut bindings::pmu) -> c_int {
        let commit =
            |driver: &T, cpu: &Exclusive<T>| from_result(|| driver.commit_txn(cpu).map(|()| 0));
        // SAFETY: The caller guarantees what `exclusive` requires.
        unsafe { exclusive::<T, L, _>(pmu, commit) }
    }

    /// # Safety
    ///
    /// perf core guarantees that `pmu` is registered, interrupts are off, and no such callback is
    /// running.
    pub(super) unsafe extern "C" fn cancel_txn(pmu: *mut bindings::pmu) {
        // SAFETY: The caller guarantees what `exclusive` requires.
        unsafe { exclusive::<T, L, _>(pmu, |driver: &T, cpu| driver.cancel_txn(cpu)) }
    }

    /// # Safety
    ///
    /// perf core guarantees that `event` is live and belongs to a PMU of `T`.
    unsafe extern "C" fn event_idx(event: *mut bindings::perf_event) -> c_int {
        // SAFETY: The caller guarantees a live event of a registered PMU of `T`.
        let (bound, event) = unsafe {
            (
                L::bound((*event).pmu),
                Event::<T::EventData>::from_raw(event),
            )
        };
        // CAST: The number of a counter fits any integer.
        bound.driver().event_idx(event) as c_int
    }
}
