// SPDX-License-Identifier: GPL-2.0

//! A driver that serves some events of a PMU that another driver has registered and keeps.
//!
//! The PMU stays registered: its events, its files in sysfs and perf core's work for it are as
//! before. Only the callbacks that schedule events are replaced in the other driver's `struct pmu`,
//! from which perf core reads them at each call. Each replacement calls the driver that has the
//! event, or the driver that has the PMU of the CPU ([`Ownership`]):
//!
//! | callback | driver that is called |
//! |---|---|
//! | `event_init` | the driver of the group's leader; for a leader, [`SharedPmu::wants`] decides |
//! | `add`, `del` | the driver that accepted the event |
//! | `pmu_enable`, `pmu_disable`, transactions | the driver that has the CPU's PMU |
//! | all others | the other driver (see [`SharedPmu`]) |
//!
//! An event belongs to the interposed driver if it has data of a driver (`pmu_private`): the other
//! driver gives its events none. Events that were open before stay with the other driver.
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
        Owner,
        Ownership, //
    },
    pmu::{
        Exclusive,
        SharedPmu,
        Transaction, //
    },
    vtable::VTable,
    CpuContexts,
    IrqsOff,
    PerfEvent, //
};
use core::{
    ptr::{
        null_mut,
        NonNull, //
    },
    sync::atomic::{
        AtomicBool,
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
    bindings::{
        __cpuhp_remove_state,
        __cpuhp_setup_state,
        cpuhp_state,
        cpuhp_state_CPUHP_AP_ONLINE_DYN, //
    },
    error::{
        from_result,
        to_result, //
    },
    interrupt::local_interrupt_disable,
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
    /// Reads the callbacks of `pmu`. Returns `None` if it lacks one of them.
    ///
    /// # Safety
    ///
    /// `pmu` must be valid, and its callbacks must not change in the meantime.
    unsafe fn of(pmu: *mut bindings::pmu) -> Option<Self> {
        // SAFETY: The caller guarantees a valid `pmu`. Other fields may change, so no reference is
        // made.
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

    /// Stores these callbacks in `pmu`.
    ///
    /// # Safety
    ///
    /// `pmu` must be valid, and perf core must call none of its callbacks in the meantime, except
    /// `event_init`. Other CPUs may store the same callbacks at the same time.
    unsafe fn store(&self, pmu: *mut bindings::pmu) {
        // SAFETY: The caller guarantees a valid `pmu` whose callbacks are not called. Each store is
        // a single store of a pointer.
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

/// The [`Interposed`] of the only [`Interposition`], for the callbacks; null if there is none. This
/// is not the kernel crate's atomic, because that is a function call.
static INTERPOSED: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// The interposed driver, and the callbacks of the other driver.
#[pin_data]
struct Interposed<T: SharedPmu> {
    /// The other driver's PMU.
    pmu: NonNull<bindings::pmu>,
    /// The other driver's callbacks.
    other: Callbacks,
    /// Whether perf core has the replacements.
    is_installed: AtomicBool,
    /// Number of calls of `event_init` that began.
    begun: AtomicUsize,
    /// Number of calls of `event_init` that ended.
    ended: AtomicUsize,
    #[pin]
    bound: Bound<T>,
}

// SAFETY: A `struct pmu` is not bound to a thread. The other fields are `Sync`.
unsafe impl<T: SharedPmu> Sync for Interposed<T> {}
// SAFETY: A `struct pmu` is not bound to a thread. The other fields are `Send`.
unsafe impl<T: SharedPmu> Send for Interposed<T> {}

/// Finds the driver behind the other driver's PMU.
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
            // The interposed driver has no events on this PMU, so perf core's number counts those
            // of the other driver.
            // SAFETY: The PMU is registered. Interrupts are off by the invariants of `cpu`.
            Owner::Registered => unsafe {
                bindings::ebb_perf_events_on_cpu(self.interposed.pmu.as_ptr()) > 0
            },
        }
    }

    fn start_txn(&self, driver: Owner) {
        match driver {
            Owner::Interposed => self.driver().start_txn(self.cpu, Transaction::Add),
            // SAFETY: perf core has disabled the PMU and opened a transaction. So it is as if perf
            // core called the other driver.
            Owner::Registered => unsafe {
                let add = bindings::PERF_PMU_TXN_ADD;
                (self.interposed.other.start_txn)(self.interposed.pmu.as_ptr(), add);
            },
        }
    }

    fn cancel_txn(&self, driver: Owner) {
        match driver {
            Owner::Interposed => self.driver().cancel_txn(self.cpu),
            // SAFETY: The other driver has a transaction open, without an event. perf core may
            // cancel that.
            Owner::Registered => unsafe {
                (self.interposed.other.cancel_txn)(self.interposed.pmu.as_ptr());
            },
        }
    }

    fn release(&self, driver: Owner) {
        match driver {
            Owner::Interposed => self.driver().released(self.cpu),
            // Nothing is to be done: this driver has no events on the PMU.
            Owner::Registered => {}
        }
    }

    fn acquire(&self, driver: Owner) {
        match driver {
            Owner::Interposed => self.driver().acquired(self.cpu),
            // The other driver starts a PMU only after it has disabled it, and perf core may not
            // have called this since the CPU came up.
            // SAFETY: Interrupts are off, and the PMU has no events of this driver.
            Owner::Registered => unsafe {
                (self.interposed.other.pmu_disable)(self.interposed.pmu.as_ptr());
            },
        }
    }
}

/// Returns the driver of an event.
///
/// # Safety
///
/// `event` must be a live event of the PMU.
#[inline]
unsafe fn driver_of(event: *mut bindings::perf_event) -> Owner {
    // SAFETY: The caller guarantees a live event. The field changes in `event_init` and `destroy`
    // only.
    if unsafe { (*event).pmu_private.is_null() } {
        Owner::Registered
    } else {
        Owner::Interposed
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
            is_installed: AtomicBool::new(false),
            begun: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            bound <- bound,
        }? Error)
    }

    /// Returns the value for the callbacks.
    ///
    /// # Safety
    ///
    /// The caller must be one of [`Interposed::CALLBACKS`], `destroy` or `online`, or be called by
    /// one of them.
    #[inline]
    unsafe fn get<'a>() -> &'a Self {
        // SAFETY: `INTERPOSED` is set before perf core and the hotplug core get the callbacks, and
        // reset after the last call. It has the type of the callbacks.
        unsafe { &*INTERPOSED.load(Relaxed).cast() }
    }

    /// Calls `f` with the state that shows which driver has the PMU of the current CPU.
    ///
    /// # Safety
    ///
    /// Interrupts must be off.
    #[inline]
    unsafe fn with_ownership<R>(&self, f: impl FnOnce(&Ownership) -> R) -> R {
        // SAFETY: The caller guarantees that interrupts are off.
        unsafe { self.bound.cpus().with_this_cpu(|cpu| f(cpu.ownership())) }
    }

    /// Returns the driver that has the PMU of the current CPU.
    ///
    /// # Safety
    ///
    /// Interrupts must be off.
    #[inline]
    unsafe fn owner(&self) -> Owner {
        // SAFETY: The caller guarantees that interrupts are off.
        unsafe { self.with_ownership(Ownership::owner) }
    }

    /// Records whether a transaction that adds events is open on the current CPU. Returns the
    /// driver that has the CPU's PMU.
    ///
    /// # Safety
    ///
    /// Interrupts must be off.
    #[inline]
    unsafe fn set_adding(&self, is_adding: bool) -> Owner {
        let set = |ownership: &Ownership| {
            ownership.set_adding(is_adding);
            ownership.owner()
        };
        // SAFETY: The caller guarantees that interrupts are off.
        unsafe { self.with_ownership(set) }
    }

    /// Gives the PMU of the current CPU to `driver`. Fails like [`Ownership::hand_to`].
    ///
    /// # Safety
    ///
    /// Interrupts must be off, the PMU must be disabled, and the interposed driver must not be
    /// executing a callback that schedules events.
    unsafe fn hand_to(&self, driver: Owner) -> Result {
        let hand_over = |cpu: &Exclusive<T>| {
            let drivers = OnCpu {
                interposed: self,
                cpu,
            };
            cpu.ownership().hand_to(driver, &drivers)
        };
        // SAFETY: The caller guarantees that interrupts are off, and that no callback that
        // schedules events has the CPU.
        unsafe { self.bound.cpus().with_exclusive_cpu(hand_over) }
    }

    /// # Safety
    ///
    /// `event` must be an event that perf core is opening for the PMU.
    unsafe extern "C" fn event_init(event: *mut bindings::perf_event) -> c_int {
        // SAFETY: This is one of the callbacks.
        let this = unsafe { Self::get() };
        this.begun.fetch_add(1, Acquire);
        // SAFETY: The caller guarantees an event that is being opened.
        let result = unsafe { this.open(event) };
        // Must be the last use of `this`, which may be freed from here on.
        this.ended.fetch_add(1, Release);
        result
    }

    /// Opens an event at one of the drivers.
    ///
    /// # Safety
    ///
    /// `event` must be an event that perf core is opening for the PMU.
    unsafe fn open(&self, event: *mut bindings::perf_event) -> c_int {
        // SAFETY: The caller guarantees a live event. perf core holds its leader.
        let is_interposed = unsafe {
            let leader = (*event).group_leader;
            if leader != event && (*leader).pmu == (*event).pmu {
                driver_of(leader) == Owner::Interposed
            } else {
                T::wants(PerfEvent::from_raw(event).attr())
            }
        };
        // Each event of the interposed driver holds a reference to the module. While the module is
        // being removed, there is none to take, and the other driver opens the event.
        // SAFETY: The function has no precondition.
        if !is_interposed || !unsafe { bindings::ebb_perf_module_get() } {
            // SAFETY: The caller guarantees an event that is being opened for the other driver's
            // PMU.
            return unsafe { (self.other.event_init)(event) };
        }
        // SAFETY: The caller guarantees an event that is being opened. If it is accepted, `destroy`
        // drops the reference to the module.
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
    /// `event` must be an event that the interposed driver accepted and that is on no CPU any more.
    unsafe extern "C" fn destroy(event: *mut bindings::perf_event) {
        // SAFETY: The caller guarantees such an event, for which `open` took the reference. The
        // module is not unloaded before this has returned, see `Interposition::drop`.
        unsafe {
            VTable::<T, Self>::destroy(event);
            bindings::ebb_perf_module_put();
        }
    }

    /// # Safety
    ///
    /// Interrupts must be off. While the interposed driver has the PMU, the caller must not be in
    /// another callback that schedules events.
    unsafe extern "C" fn pmu_enable(pmu: *mut bindings::pmu) {
        // SAFETY: This is one of the callbacks. The caller guarantees what both drivers require.
        unsafe {
            let this = Self::get();
            match this.owner() {
                Owner::Interposed => VTable::<T, Self>::pmu_enable(pmu),
                Owner::Registered => {
                    (this.other.pmu_enable)(pmu);
                    this.bound.driver().other_enabled(&IrqsOff::new());
                }
            }
        }
    }

    /// # Safety
    ///
    /// Interrupts must be off. While the interposed driver has the PMU, the caller must not be in
    /// another callback that schedules events.
    unsafe extern "C" fn pmu_disable(pmu: *mut bindings::pmu) {
        // SAFETY: This is one of the callbacks. The caller guarantees what both drivers require.
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
    /// `event` must be live until the matching `del`. Interrupts must be off, and the PMU must be
    /// disabled. The caller must not be in another callback that schedules events.
    unsafe extern "C" fn add(event: *mut bindings::perf_event, flags: c_int) -> c_int {
        // SAFETY: This is one of the callbacks. The caller guarantees what both drivers require.
        unsafe {
            let this = Self::get();
            let driver = driver_of(event);
            if this.owner() != driver {
                return this.add_to_new_owner(driver, event, flags);
            }
            match driver {
                Owner::Interposed => VTable::<T, Self>::add(event, flags),
                Owner::Registered => (this.other.add)(event, flags),
            }
        }
    }

    /// Gives the PMU of the current CPU to `driver`, and adds an event of that driver.
    ///
    /// # Safety
    ///
    /// The caller must guarantee the same as for the callback `add`.
    #[cold] // Saves 9 of 42 instructions that `add` takes for an event of another driver.
    unsafe fn add_to_new_owner(
        &self,
        driver: Owner,
        event: *mut bindings::perf_event,
        flags: c_int,
    ) -> c_int {
        // SAFETY: The caller guarantees that interrupts are off, that the PMU is disabled, and that
        // no other callback is being executed.
        if let Err(error) = unsafe { self.hand_to(driver) } {
            return error.to_errno();
        }
        // SAFETY: The caller guarantees what both drivers require.
        unsafe {
            match driver {
                Owner::Interposed => VTable::<T, Self>::add(event, flags),
                Owner::Registered => (self.other.add)(event, flags),
            }
        }
    }

    /// # Safety
    ///
    /// `event` must have been added on this CPU. Interrupts must be off, and the PMU must be
    /// disabled. The caller must not be in another callback that schedules events.
    unsafe extern "C" fn del(event: *mut bindings::perf_event, flags: c_int) {
        // SAFETY: This is one of the callbacks. The caller guarantees what both drivers require.
        unsafe {
            match driver_of(event) {
                Owner::Interposed => VTable::<T, Self>::del(event, flags),
                Owner::Registered => (Self::get().other.del)(event, flags),
            }
        }
    }

    /// # Safety
    ///
    /// Interrupts must be off. The caller must not be in another callback that schedules events.
    unsafe extern "C" fn start_txn(pmu: *mut bindings::pmu, flags: c_uint) {
        // SAFETY: This is one of the callbacks. The caller guarantees what both drivers require.
        unsafe {
            let this = Self::get();
            match this.set_adding(flags & bindings::PERF_PMU_TXN_ADD != 0) {
                Owner::Interposed => VTable::<T, Self>::start_txn(pmu, flags),
                Owner::Registered => (this.other.start_txn)(pmu, flags),
            }
        }
    }

    /// # Safety
    ///
    /// Interrupts must be off. The caller must not be in another callback that schedules events.
    unsafe extern "C" fn commit_txn(pmu: *mut bindings::pmu) -> c_int {
        // SAFETY: This is one of the callbacks. The caller guarantees what both drivers require.
        unsafe {
            let this = Self::get();
            // If this fails, perf core adds no event before it calls `cancel_txn`.
            match this.set_adding(false) {
                Owner::Interposed => VTable::<T, Self>::commit_txn(pmu),
                Owner::Registered => (this.other.commit_txn)(pmu),
            }
        }
    }

    /// # Safety
    ///
    /// Interrupts must be off. The caller must not be in another callback that schedules events.
    unsafe extern "C" fn cancel_txn(pmu: *mut bindings::pmu) {
        // SAFETY: This is one of the callbacks. The caller guarantees what both drivers require.
        unsafe {
            let this = Self::get();
            match this.set_adding(false) {
                Owner::Interposed => VTable::<T, Self>::cancel_txn(pmu),
                Owner::Registered => (this.other.cancel_txn)(pmu),
            }
        }
    }

    /// Takes the PMU of the current CPU if it has no events and the interposed driver takes such
    /// PMUs.
    ///
    /// # Safety
    ///
    /// Interrupts must be off, and no callback but `event_init` may be executing on this CPU.
    unsafe fn take_unused(&self) {
        if self.bound.driver().takes_unused_pmus() {
            // It fails if the other driver has events on this PMU, and keeps it.
            // SAFETY: The caller guarantees that no callback is executing. Without events neither
            // driver runs the PMU.
            let _ = unsafe { self.hand_to(Owner::Interposed) };
        }
    }

    /// The hotplug core calls this on a CPU that came up, before tasks run on it.
    ///
    /// # Safety
    ///
    /// `INTERPOSED` must be an [`Interposed<T>`].
    unsafe extern "C" fn online(_cpu: c_uint) -> c_int {
        let _off = local_interrupt_disable();
        // SAFETY: This is `online`.
        let this = unsafe { Self::get() };
        if this.is_installed.load(Relaxed) {
            // The interposed driver may have had the PMU when the CPU went offline, but the
            // registers may have changed since then. This succeeds: the events of that driver are
            // on a PMU only while their task runs, and this thread runs.
            // SAFETY: Interrupts are off, and the hotplug core calls this in a thread, so no
            // callback is executing on this CPU.
            unsafe {
                let _ = this.hand_to(Owner::Registered);
                this.take_unused();
            }
        }
        0
    }

    /// Stores the replacements, and may take the PMU of the current CPU. `stop_machine()` calls
    /// this on all CPUs at the same time, with interrupts off.
    ///
    /// # Safety
    ///
    /// `this` must be an [`Interposed<T>`], in `INTERPOSED`. Interrupts must be off.
    unsafe extern "C" fn install(this: *mut c_void) -> c_int {
        // SAFETY: The caller guarantees the type.
        let this = unsafe { &*this.cast::<Self>() };
        // SAFETY: No callback but `event_init` is being executed, see `Interposition::new`.
        unsafe { Self::CALLBACKS.store(this.pmu.as_ptr()) };
        this.is_installed.store(true, Relaxed);
        // SAFETY: Interrupts are off, and no callback but `event_init` is being executed.
        unsafe { this.take_unused() };
        0
    }

    /// Gives the PMU of the current CPU back to the other driver, and stores that driver's
    /// callbacks. `stop_machine()` calls this on all CPUs at the same time, with interrupts off.
    ///
    /// # Safety
    ///
    /// `this` must be an [`Interposed<T>`], in `INTERPOSED`. The interposed driver must have no
    /// events.
    unsafe extern "C" fn remove(this: *mut c_void) -> c_int {
        // SAFETY: The caller guarantees the type.
        let this = unsafe { &*this.cast::<Self>() };
        // SAFETY: No callback but `event_init` is being executed, see `Interposition::new`. If the
        // interposed driver has the PMU, the PMU is frozen, because the driver has no events.
        let given = unsafe { this.hand_to(Owner::Registered) };
        // SAFETY: No callback but `event_init` is being executed, see `Interposition::new`.
        unsafe { this.other.store(this.pmu.as_ptr()) };
        this.is_installed.store(false, Relaxed);
        from_result(|| given.map(|()| 0))
    }
}

/// An interposed driver, which serves some events of another driver's PMU until the value is
/// dropped.
///
/// # Invariants
///
/// `INTERPOSED` points to `interposed`, and its PMU has the callbacks of `Interposed<T>`. `hotplug`
/// was set up.
pub(crate) struct Interposition<T: SharedPmu> {
    interposed: Pin<KBox<Interposed<T>>>,
    /// The hotplug core's number for `online`.
    hotplug: cpuhp_state,
}

impl<T: SharedPmu> Interposition<T> {
    /// Interposes `driver` at the PMU of `built_in`.
    ///
    /// Fails with `EBUSY` if that PMU may be unregistered, if it is not the core PMU
    /// (`PERF_TYPE_RAW`), or if there is an interposition already. Also fails with `ENOMEM`, with
    /// `ENOSPC` if the hotplug core has no free state, and like `driver`.
    ///
    /// # Safety
    ///
    /// The caller must be in the module that contains `T`, and must drop the value before that
    /// module is unloaded, because perf core calls `T` until then. It must drop `built_in` later
    /// than the value.
    pub(crate) unsafe fn new(
        built_in: &BuiltInPmu,
        cpus: Arc<CpuContexts<T::Shared, T::Exclusive, T::EventData>>,
        driver: impl PinInit<T, Error>,
    ) -> Result<Self> {
        let pmu = built_in.core_pmu().ok_or(EBUSY)?;
        // SAFETY: `built_in` keeps the PMU registered. Only this module changes its callbacks.
        let other = unsafe { Callbacks::of(pmu.as_ptr()) }.ok_or(EBUSY)?;
        let bound = Bound::new(cpus, driver);
        let interposed = KBox::pin_init(Interposed::new(pmu, other, bound), GFP_KERNEL)?;
        let this = (&raw const *interposed).cast_mut().cast::<c_void>();
        INTERPOSED
            .compare_exchange(null_mut(), this, Release, Relaxed)
            .map_err(|_| EBUSY)?;
        // Must precede `install`, so that no CPU is missed: the hotplug core does not call
        // `online` for the CPUs that are online now.
        // SAFETY: The hotplug core may call `online` until the state is removed, and `INTERPOSED`
        // is `this` until then.
        let hotplug = unsafe {
            __cpuhp_setup_state(
                cpuhp_state_CPUHP_AP_ONLINE_DYN,
                c"perf/ebb_pmu:shared".as_char_ptr(),
                false,
                Some(Interposed::<T>::online),
                None,
                false,
            )
        };
        if let Err(error) = to_result(hotplug) {
            INTERPOSED.store(null_mut(), Release);
            return Err(error);
        }
        // While all CPUs are stopped, no callback but `event_init` is being executed: perf core
        // calls the others with interrupts off, so a thread that stops a CPU cannot preempt them.
        // Events of the other driver may be on the PMUs, such as events that follow a CPU.
        // SAFETY: `install` may be called with `this`, which lives until `drop`.
        let stored = unsafe { bindings::ebb_perf_stop_cpus(Some(Interposed::<T>::install), this) };
        if let Err(error) = to_result(stored) {
            // SAFETY: The state was set up above.
            unsafe { __cpuhp_remove_state(hotplug, false) };
            INTERPOSED.store(null_mut(), Release);
            return Err(error);
        }
        // INVARIANT: `INTERPOSED` and the callbacks were stored just now.
        Ok(Self {
            interposed,
            hotplug,
        })
    }
}

impl<T: SharedPmu> Drop for Interposition<T> {
    fn drop(&mut self) {
        let this = (&raw const *self.interposed).cast_mut().cast::<c_void>();
        // SAFETY: By the type invariants `INTERPOSED` is `this`. `T` has no open event, because
        // each holds a reference to the module.
        let removed = unsafe { bindings::ebb_perf_stop_cpus(Some(Interposed::<T>::remove), this) };
        if removed != 0 {
            pr_err!("events were on a PMU that its driver got back ({removed})\n");
        }
        // SAFETY: By the type invariants `new` set up the state.
        unsafe { __cpuhp_remove_state(self.hotplug, false) };
        // perf core has no pointers to this code any more. But a task may have read the pointer to
        // `event_init` before and not have entered the function, may be in it, where it may sleep,
        // or may be returning from it or from `destroy`. While tasks enter and return they do not
        // sleep, so a grace period of RCU tasks waits for them. That suffices if no call is in
        // progress when the grace period starts, and none begins before it ends.
        let Interposed { begun, ended, .. } = &*self.interposed;
        loop {
            let (done, all) = (ended.load(Acquire), begun.load(Acquire));
            // SAFETY: The function has no precondition but that it may sleep.
            unsafe { bindings::ebb_perf_synchronize_rcu_tasks() };
            if done == all && begun.load(Acquire) == all {
                break;
            }
            // A task that had read the pointer has begun its call by now, so this loop is executed
            // at most once more.
            while ended.load(Acquire) != begun.load(Acquire) {
                fsleep(Delta::from_millis(1));
            }
        }
        INTERPOSED.store(null_mut(), Release);
    }
}
