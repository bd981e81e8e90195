// SPDX-License-Identifier: GPL-2.0

//! A driver that serves some events of a PMU which another driver has registered, and keeps.
//!
//! The PMU stays registered: its events, its files in sysfs and all that perf core does for it are
//! as before. Only the callbacks that schedule events are replaced in the other driver's
//! `struct pmu`, which perf core calls through. Each replacement calls the driver that has the
//! event, or the PMU of the CPU ([`Ownership`](super::ownership::Ownership)):
//!
//! | callback | goes to |
//! |---|---|
//! | `event_init` | the driver of the group's leader, or by [`SharedPmu::wants`] |
//! | `add`, `del` | the driver that accepted the event |
//! | `pmu_enable`, `pmu_disable`, transactions | the driver that has the CPU's PMU |
//! | all others | the other driver (see [`SharedPmu`]) |
//!
//! Events of the interposed driver are those with data of a driver's own (`pmu_private`), which the
//! other driver gives none of its events. Events that were open before stay the other driver's.
//!
//! C header: [`include/linux/perf_event.h`](srctree/include/linux/perf_event.h), `struct pmu`

use super::{
    bindings,
    built_in::BuiltInPmu,
    instance::{
        Bound,
        Locate, //
    },
    ownership::{
        Drivers,
        Owner, //
    },
    pmu::{
        Exclusive,
        SharedPmu,
        Transaction, //
    },
    vtable::VTable,
    CpuContexts,
    PerfEvent, //
};
use core::{
    ptr::{
        null_mut,
        NonNull, //
    },
    sync::atomic::{
        AtomicPtr,
        AtomicUsize,
        Ordering::{
            Acquire,
            Relaxed,
            Release, //
        }, //
    }, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

/// The callbacks of a `struct pmu` that are replaced.
#[derive(Clone, Copy)]
struct Callbacks {
    event_init: unsafe extern "C" fn(*mut bindings::perf_event) -> c_int,
    pmu_enable: unsafe extern "C" fn(*mut bindings::pmu),
    pmu_disable: unsafe extern "C" fn(*mut bindings::pmu),
    add: unsafe extern "C" fn(*mut bindings::perf_event, c_int) -> c_int,
    del: unsafe extern "C" fn(*mut bindings::perf_event, c_int),
    start_txn: unsafe extern "C" fn(*mut bindings::pmu, c_uint),
    commit_txn: unsafe extern "C" fn(*mut bindings::pmu) -> c_int,
    cancel_txn: unsafe extern "C" fn(*mut bindings::pmu),
}

impl Callbacks {
    /// Reads the callbacks of `pmu`. `None` if it lacks one.
    ///
    /// # Safety
    ///
    /// `pmu` must be valid, and none of its callbacks change.
    unsafe fn of(pmu: *mut bindings::pmu) -> Option<Self> {
        // SAFETY: The caller guarantees it. Other fields may change, so no reference is made.
        unsafe {
            Some(Self {
                event_init: (*pmu).event_init?,
                pmu_enable: (*pmu).pmu_enable?,
                pmu_disable: (*pmu).pmu_disable?,
                add: (*pmu).add?,
                del: (*pmu).del?,
                start_txn: (*pmu).start_txn?,
                commit_txn: (*pmu).commit_txn?,
                cancel_txn: (*pmu).cancel_txn?,
            })
        }
    }

    /// Replaces the callbacks of `pmu` by these.
    ///
    /// # Safety
    ///
    /// `pmu` must be valid, and perf core must not call it in the meantime, except `event_init`.
    /// Others may store the same callbacks at the same time.
    unsafe fn store(&self, pmu: *mut bindings::pmu) {
        // SAFETY: The caller guarantees it. Each is a single store of a pointer.
        unsafe {
            (&raw mut (*pmu).event_init).write_volatile(Some(self.event_init));
            (&raw mut (*pmu).pmu_enable).write_volatile(Some(self.pmu_enable));
            (&raw mut (*pmu).pmu_disable).write_volatile(Some(self.pmu_disable));
            (&raw mut (*pmu).add).write_volatile(Some(self.add));
            (&raw mut (*pmu).del).write_volatile(Some(self.del));
            (&raw mut (*pmu).start_txn).write_volatile(Some(self.start_txn));
            (&raw mut (*pmu).commit_txn).write_volatile(Some(self.commit_txn));
            (&raw mut (*pmu).cancel_txn).write_volatile(Some(self.cancel_txn));
        }
    }
}

/// The [`Interposed`] that the callbacks find: null, or the one of the [`Interposition`] that there
/// is. The kernel crate's atomics are function calls.
static INTERPOSED: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// An interposed driver, and the one beside it.
#[pin_data]
struct Interposed<T: SharedPmu> {
    /// The other driver's PMU.
    pmu: NonNull<bindings::pmu>,
    /// The other driver's callbacks.
    other: Callbacks,
    /// The calls of `event_init` that began, and those that ended.
    begun: AtomicUsize,
    ended: AtomicUsize,
    #[pin]
    bound: Bound<T>,
}

// SAFETY: A `struct pmu` is not bound to a thread; the rest is `Send` and `Sync`.
unsafe impl<T: SharedPmu> Sync for Interposed<T> {}
// SAFETY: As above.
unsafe impl<T: SharedPmu> Send for Interposed<T> {}

/// The PMU is the other driver's.
impl<T: SharedPmu> Locate<T> for Interposed<T> {
    const HAS_EVERY_EVENT: bool = false;

    #[inline]
    unsafe fn bound<'a>(_pmu: *mut bindings::pmu) -> &'a Bound<T> {
        // SAFETY: The caller guarantees a PMU with the callbacks of this type.
        &unsafe { Self::get() }.bound
    }
}

/// Both drivers, on the CPU that this runs on.
struct OnCpu<'a, T: SharedPmu> {
    interposed: &'a Interposed<T>,
    cpu: &'a Exclusive<T>,
}

impl<T: SharedPmu> OnCpu<'_, T> {
    fn driver(&self) -> &T {
        self.interposed.bound.driver()
    }
}

impl<T: SharedPmu> Drivers for OnCpu<'_, T> {
    fn has_events(&self, driver: Owner) -> bool {
        match driver {
            Owner::Interposed => self.cpu.slots().len() > 0,
            // The interposed driver has none on this PMU, so perf core's number is the other's.
            // SAFETY: The PMU is registered. Interrupts are off, as the CPU is lent.
            Owner::Registered => unsafe {
                bindings::ebb_perf_events_on_cpu(self.interposed.pmu.as_ptr()) > 0
            },
        }
    }

    fn start_txn(&self, driver: Owner) {
        match driver {
            Owner::Interposed => self.driver().start_txn(self.cpu, Transaction::Add),
            // SAFETY: As perf core does, which has disabled the PMU and has a transaction open.
            Owner::Registered => unsafe {
                let add = bindings::PERF_PMU_TXN_ADD;
                (self.interposed.other.start_txn)(self.interposed.pmu.as_ptr(), add);
            },
        }
    }

    fn cancel_txn(&self, driver: Owner) {
        match driver {
            Owner::Interposed => self.driver().cancel_txn(self.cpu),
            // SAFETY: As perf core does. Its transaction is open, without an event.
            Owner::Registered => unsafe {
                (self.interposed.other.cancel_txn)(self.interposed.pmu.as_ptr());
            },
        }
    }

    fn release(&self, driver: Owner) {
        match driver {
            Owner::Interposed => self.driver().released(self.cpu),
            // perf core has disabled the PMU, which has none of its events.
            Owner::Registered => {}
        }
    }

    fn acquire(&self, driver: Owner) {
        match driver {
            Owner::Interposed => self.driver().acquired(self.cpu),
            // SAFETY: As perf core does. The driver has missed it if the CPU came up while the
            // interposed driver had the PMU.
            Owner::Registered => unsafe {
                (self.interposed.other.pmu_disable)(self.interposed.pmu.as_ptr());
            },
        }
    }
}

/// Whether an event is the interposed driver's.
///
/// # Safety
///
/// `event` must be live and of the PMU.
#[inline]
unsafe fn is_interposed(event: *mut bindings::perf_event) -> bool {
    // SAFETY: The caller guarantees it. The field changes in `event_init` and `destroy` only.
    unsafe { !(*event).pmu_private.is_null() }
}

/// The driver of an event.
///
/// # Safety
///
/// As for [`is_interposed`].
#[inline]
unsafe fn driver_of(event: *mut bindings::perf_event) -> Owner {
    // SAFETY: The caller guarantees it.
    if unsafe { is_interposed(event) } {
        Owner::Interposed
    } else {
        Owner::Registered
    }
}

impl<T: SharedPmu> Interposed<T> {
    /// The replacements.
    const CALLBACKS: Callbacks = Callbacks {
        event_init: Self::event_init,
        pmu_enable: Self::pmu_enable,
        pmu_disable: Self::pmu_disable,
        add: Self::add,
        del: Self::del,
        start_txn: Self::start_txn,
        commit_txn: Self::commit_txn,
        cancel_txn: Self::cancel_txn,
    };

    fn new(
        pmu: NonNull<bindings::pmu>,
        other: Callbacks,
        bound: impl PinInit<Bound<T>, Error>,
    ) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            pmu,
            other,
            begun: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            bound <- bound,
        }? Error)
    }

    /// The one that there is.
    ///
    /// # Safety
    ///
    /// The caller must be one of [`Interposed::CALLBACKS`] or be called by one, or by `destroy`.
    #[inline]
    unsafe fn get<'a>() -> &'a Self {
        // SAFETY: `INTERPOSED` is set before perf core has the callbacks, and reset when it calls
        // them no more. It is of this type, as the callbacks are.
        unsafe { &*INTERPOSED.load(Relaxed).cast() }
    }

    /// The driver that has the PMU of the CPU that this runs on.
    ///
    /// # Safety
    ///
    /// Interrupts must be off.
    #[inline]
    unsafe fn owner(&self) -> Owner {
        let owner = |cpu: &super::pmu::Shared<T>| cpu.ownership().owner();
        // SAFETY: The caller guarantees it.
        unsafe { self.bound.cpus().with_this_cpu(owner) }
    }

    /// Gives the PMU of the CPU that this runs on to `driver`.
    ///
    /// # Safety
    ///
    /// Interrupts must be off and the PMU disabled, and no callback that schedules events be under
    /// way in the interposed driver.
    unsafe fn hand_to(&self, driver: Owner) -> Result {
        let hand_over = |cpu: &Exclusive<T>| {
            let drivers = OnCpu {
                interposed: self,
                cpu,
            };
            cpu.ownership().hand_to(driver, &drivers)
        };
        // SAFETY: The caller guarantees it.
        unsafe { self.bound.cpus().with_exclusive_cpu(hand_over) }
    }

    /// # Safety
    ///
    /// perf core's: `event` is being opened for the PMU.
    unsafe extern "C" fn event_init(event: *mut bindings::perf_event) -> c_int {
        // SAFETY: This is one of the callbacks.
        let this = unsafe { Self::get() };
        this.begun.fetch_add(1, Acquire);
        // SAFETY: The caller's guarantees are those asked for.
        let result = unsafe { this.open(event) };
        // Last use of `this`.
        this.ended.fetch_add(1, Release);
        result
    }

    /// Opens an event, by the driver that it is for.
    ///
    /// # Safety
    ///
    /// perf core's: `event` is being opened for the PMU.
    unsafe fn open(&self, event: *mut bindings::perf_event) -> c_int {
        // SAFETY: The caller guarantees a live event. perf core holds its leader.
        let is_ours = unsafe {
            let leader = (*event).group_leader;
            if leader != event && (*leader).pmu == (*event).pmu {
                is_interposed(leader)
            } else {
                T::wants(PerfEvent::from_raw(event).attr())
            }
        };
        // An event of the interposed driver keeps the module. As the module goes, the other driver
        // opens all.
        // SAFETY: The function has no precondition.
        if !is_ours || !unsafe { bindings::ebb_perf_module_get() } {
            // SAFETY: As perf core does.
            return unsafe { (self.other.event_init)(event) };
        }
        // SAFETY: The caller's guarantees are those asked for. The event is accepted, if it is, as
        // one of the interposed driver, and `destroy` gives the module back.
        unsafe {
            let result = VTable::<T, Self>::event_init(event);
            if result == 0 {
                (*event).destroy = Some(Self::destroy);
            } else {
                bindings::ebb_perf_module_put();
            }
            result
        }
    }

    /// # Safety
    ///
    /// perf core's: the interposed driver accepted `event`, which is on no CPU any more.
    unsafe extern "C" fn destroy(event: *mut bindings::perf_event) {
        // SAFETY: The caller's guarantees are those asked for. `open` took the reference. A module
        // that goes waits until this has returned, see `Interposition::drop`.
        unsafe {
            VTable::<T, Self>::destroy(event);
            bindings::ebb_perf_module_put();
        }
    }

    /// # Safety
    ///
    /// perf core's: interrupts are off.
    unsafe extern "C" fn pmu_enable(pmu: *mut bindings::pmu) {
        // SAFETY: This is one of the callbacks; the caller's guarantees are those asked for. While
        // the interposed driver has the PMU, perf core calls no such callback in the middle of
        // another.
        unsafe {
            let this = Self::get();
            match this.owner() {
                Owner::Interposed => VTable::<T, Self>::pmu_enable(pmu),
                Owner::Registered => (this.other.pmu_enable)(pmu),
            }
        }
    }

    /// # Safety
    ///
    /// perf core's: interrupts are off.
    unsafe extern "C" fn pmu_disable(pmu: *mut bindings::pmu) {
        // SAFETY: As for `pmu_enable`.
        unsafe {
            let this = Self::get();
            match this.owner() {
                Owner::Interposed => VTable::<T, Self>::pmu_disable(pmu),
                Owner::Registered => (this.other.pmu_disable)(pmu),
            }
        }
    }

    /// # Safety
    ///
    /// perf core's: `event` is live until the matching `del`, interrupts are off, the PMU is
    /// disabled, no such callback is under way.
    unsafe extern "C" fn add(event: *mut bindings::perf_event, flags: c_int) -> c_int {
        // SAFETY: This is one of the callbacks; the caller's guarantees are those asked for.
        unsafe {
            let this = Self::get();
            let driver = driver_of(event);
            if this.owner() != driver {
                if let Err(error) = this.hand_to(driver) {
                    return error.to_errno();
                }
            }
            match driver {
                Owner::Interposed => VTable::<T, Self>::add(event, flags),
                Owner::Registered => (this.other.add)(event, flags),
            }
        }
    }

    /// # Safety
    ///
    /// perf core's: `event` was added on this CPU, interrupts are off, the PMU is disabled, no such
    /// callback is under way.
    unsafe extern "C" fn del(event: *mut bindings::perf_event, flags: c_int) {
        // SAFETY: This is one of the callbacks; the caller's guarantees are those asked for.
        unsafe {
            match driver_of(event) {
                Owner::Interposed => VTable::<T, Self>::del(event, flags),
                Owner::Registered => (Self::get().other.del)(event, flags),
            }
        }
    }

    /// # Safety
    ///
    /// perf core's: interrupts are off, no such callback is under way.
    unsafe extern "C" fn start_txn(pmu: *mut bindings::pmu, flags: c_uint) {
        // SAFETY: This is one of the callbacks; the caller's guarantees are those asked for.
        unsafe {
            let this = Self::get();
            this.set_adding(flags & bindings::PERF_PMU_TXN_ADD != 0);
            match this.owner() {
                Owner::Interposed => VTable::<T, Self>::start_txn(pmu, flags),
                Owner::Registered => (this.other.start_txn)(pmu, flags),
            }
        }
    }

    /// # Safety
    ///
    /// perf core's: interrupts are off, no such callback is under way.
    unsafe extern "C" fn commit_txn(pmu: *mut bindings::pmu) -> c_int {
        // SAFETY: This is one of the callbacks; the caller's guarantees are those asked for.
        unsafe {
            let this = Self::get();
            // If it fails, perf core adds nothing before `cancel_txn`.
            this.set_adding(false);
            match this.owner() {
                Owner::Interposed => VTable::<T, Self>::commit_txn(pmu),
                Owner::Registered => (this.other.commit_txn)(pmu),
            }
        }
    }

    /// # Safety
    ///
    /// perf core's: interrupts are off, no such callback is under way.
    unsafe extern "C" fn cancel_txn(pmu: *mut bindings::pmu) {
        // SAFETY: This is one of the callbacks; the caller's guarantees are those asked for.
        unsafe {
            let this = Self::get();
            this.set_adding(false);
            match this.owner() {
                Owner::Interposed => VTable::<T, Self>::cancel_txn(pmu),
                Owner::Registered => (this.other.cancel_txn)(pmu),
            }
        }
    }

    /// Notes whether a transaction that adds events is open on the CPU that this runs on.
    ///
    /// # Safety
    ///
    /// Interrupts must be off.
    #[inline]
    unsafe fn set_adding(&self, is_adding: bool) {
        let set = |cpu: &super::pmu::Shared<T>| cpu.ownership().set_adding(is_adding);
        // SAFETY: The caller guarantees it.
        unsafe { self.bound.cpus().with_this_cpu(set) };
    }

    /// Called on all CPUs at a time, with interrupts off.
    ///
    /// # Safety
    ///
    /// `this` must be an [`Interposed<T>`], in `INTERPOSED`.
    unsafe extern "C" fn install(this: *mut c_void) -> c_int {
        // SAFETY: The caller guarantees it. perf core calls nothing, see `Interposition::new`.
        unsafe { Self::CALLBACKS.store((*this.cast::<Self>()).pmu.as_ptr()) };
        0
    }

    /// Called on all CPUs at a time, with interrupts off.
    ///
    /// # Safety
    ///
    /// As for [`Interposed::install`]. The interposed driver has no events.
    unsafe extern "C" fn remove(this: *mut c_void) -> c_int {
        // SAFETY: The caller guarantees it.
        let this = unsafe { &*this.cast::<Self>() };
        // SAFETY: No callback is under way, see `Interposition::new`. If the interposed driver has
        // the PMU, that is frozen, as it has no events; only then this does anything.
        let given = unsafe { this.hand_to(Owner::Registered) };
        // SAFETY: As for `install`.
        unsafe { this.other.store(this.pmu.as_ptr()) };
        from_result_of(given)
    }
}

/// The errno of a result.
fn from_result_of(result: Result) -> c_int {
    result.map_or_else(|error| error.to_errno(), |()| 0)
}

/// A driver that serves some events of another driver's PMU while the value lives.
///
/// # Invariants
///
/// `interposed` is in `INTERPOSED`, and its callbacks are those of its PMU.
pub(crate) struct Interposition<T: SharedPmu> {
    interposed: Pin<KBox<Interposed<T>>>,
}

impl<T: SharedPmu> Interposition<T> {
    /// Interposes `driver` at the PMU of `built_in`.
    ///
    /// Fails with `EBUSY` if that PMU may go, if it is not the core PMU (`PERF_TYPE_RAW`), or if
    /// there is an interposition already, with `ENOMEM`, and as `driver` does.
    ///
    /// # Safety
    ///
    /// The caller must be in the module that `T` is part of, and must drop the value before that is
    /// unloaded: perf core calls `T` until then. It must drop `built_in` later than the value.
    pub(crate) unsafe fn new(
        built_in: &BuiltInPmu,
        cpus: Arc<CpuContexts<T::Shared, T::Exclusive, T::EventData>>,
        driver: impl PinInit<T, Error>,
    ) -> Result<Self> {
        let pmu = built_in.core_pmu().ok_or(EBUSY)?;
        // SAFETY: `built_in` keeps the PMU. Nothing but this module changes its callbacks.
        let other = unsafe { Callbacks::of(pmu.as_ptr()) }.ok_or(EBUSY)?;
        let bound = Bound::new(cpus, driver);
        let interposed = KBox::pin_init(Interposed::new(pmu, other, bound), GFP_KERNEL)?;
        let this = (&raw const *interposed).cast_mut().cast::<c_void>();
        INTERPOSED
            .compare_exchange(null_mut(), this, Release, Relaxed)
            .map_err(|_| EBUSY)?;
        // With all CPUs stopped and their interrupts off no callback but `event_init` is under way:
        // the others run with interrupts off, and a thread that stops a CPU interrupts none. Events
        // of the other driver may be on the PMUs, as events of CPUs are.
        // SAFETY: `install` may be called with `this`, which lives until `drop`.
        let stored = unsafe { bindings::ebb_perf_stop_cpus(Some(Interposed::<T>::install), this) };
        if let Err(error) = to_result(stored) {
            INTERPOSED.store(null_mut(), Release);
            return Err(error);
        }
        // INVARIANT: Stored just now.
        Ok(Self { interposed })
    }
}

impl<T: SharedPmu> Drop for Interposition<T> {
    fn drop(&mut self) {
        let this = (&raw const *self.interposed).cast_mut().cast::<c_void>();
        // SAFETY: By the type invariants. An open event of `T` keeps the module.
        let removed = unsafe { bindings::ebb_perf_stop_cpus(Some(Interposed::<T>::remove), this) };
        if removed != 0 {
            pr_err!("events are on a PMU that goes back to its driver ({removed})\n");
        }
        // perf core's pointers lead here no more, but tasks may be on their way: into `event_init`,
        // in it, where they may sleep, or out of it or of `destroy`. On the way in and out they do
        // not sleep, so a grace period of RCU tasks ends only when all are past that. It is enough
        // if no call is under way when it starts and none begins until it ends.
        let Interposed { begun, ended, .. } = &*self.interposed;
        loop {
            let (done, all) = (ended.load(Acquire), begun.load(Acquire));
            // SAFETY: The function has no precondition but that it may sleep.
            unsafe { bindings::ebb_perf_synchronize_rcu_tasks() };
            if done == all && begun.load(Acquire) == all {
                break;
            }
            // A task that was on its way in has begun by now, so this is passed once.
            while ended.load(Acquire) != begun.load(Acquire) {
                fsleep(Delta::from_millis(1));
            }
        }
        INTERPOSED.store(null_mut(), Release);
    }
}
