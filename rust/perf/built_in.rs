// SPDX-License-Identifier: GPL-2.0

//! The PMU of the built-in driver: finds the PMU that counts cycles, unregisters it, and registers
//! it again.
//!
//! perf core lets any module unregister a PMU of another driver. A driver that is built into the
//! kernel is never unloaded, but its device may disappear, together with the memory that the driver
//! allocated for it. And an event stays open when its PMU is unregistered: perf core revokes it. So
//! a PMU is unregistered only if
//!
//!
//! - an open event proves that it is registered, until that begins;
//! - it has no module and no device;
//! - its structure and its name are in memory that the kernel never frees.
//!
//! Then its memory remains valid. If its own driver unregisters the PMU in the meantime, perf core
//! refuses to unregister it a second time. The driver of a POWER kernel's core PMU meets these
//! conditions: it registers a static structure when the kernel boots, and never unregisters it.

use super::bindings;
use core::{
    ffi::CStr,
    ptr::NonNull, //
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*,
    str::CStrExt,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

/// An event that the kernel itself has opened for the current task, and that never counts.
///
/// # Invariants
///
/// The event is live and belongs to this value.
pub(crate) struct KernelEvent(NonNull<bindings::perf_event>);

// SAFETY: The kernel may release an event of its own from any thread.
unsafe impl Send for KernelEvent {}
// SAFETY: The fields that are read of the event do not change.
unsafe impl Sync for KernelEvent {}

impl KernelEvent {
    /// Opens an event that would count cycles. Fails like any opening of an event.
    pub(crate) fn open_cycles() -> Result<Self> {
        Self::open(
            bindings::perf_type_id_PERF_TYPE_HARDWARE,
            bindings::perf_hw_id_PERF_COUNT_HW_CPU_CYCLES.into(),
        )
    }

    /// Opens the event `config` of the PMU type `kind`. Fails like any opening of an event.
    pub(super) fn open(kind: u32, config: u64) -> Result<Self> {
        let mut attr = bindings::perf_event_attr {
            type_: kind,
            // CAST: The size is a small constant.
            size: size_of::<bindings::perf_event_attr>() as u32,
            config,
            ..pin_init::zeroed()
        };
        attr.set_disabled(1);
        // SAFETY: The attributes are valid for the call. The event follows the current task on any
        // CPU, and that task lives while this runs. There is no handler.
        let event = from_err_ptr(unsafe {
            bindings::perf_event_create_kernel_counter(
                &raw mut attr,
                -1,
                kernel::bindings::get_current(),
                None,
                core::ptr::null_mut(),
            )
        })?;
        // INVARIANT: The event was created just now.
        NonNull::new(event).map(Self).ok_or(ENOENT)
    }

    pub(super) fn as_raw(&self) -> *mut bindings::perf_event {
        self.0.as_ptr()
    }
}

impl Drop for KernelEvent {
    fn drop(&mut self) {
        // SAFETY: By the type invariants this value owns the event.
        unsafe { bindings::perf_event_release_kernel(self.0.as_ptr()) };
    }
}

/// A PMU of the kernel that counts cycles, identified by an event that it accepted.
pub(crate) struct BuiltInPmu(pub(super) KernelEvent);

impl BuiltInPmu {
    /// Finds the PMU that counts cycles by opening such an event. Returns `None` if there is no
    /// such PMU.
    ///
    /// Fails like any opening of an event, for example with `EBUSY` if another driver has reserved
    /// the hardware.
    pub(crate) fn find() -> Result<Option<Self>> {
        match KernelEvent::open_cycles() {
            Ok(event) => Ok(Some(Self(event))),
            Err(e) if e == ENOENT => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Returns the PMU if it is the core PMU (`PERF_TYPE_RAW`) and cannot disappear.
    pub(super) fn core_pmu(&self) -> Option<NonNull<bindings::pmu>> {
        let event = self.0.as_raw();
        // SAFETY: The event is open. perf core sets the field to null when it revokes the event.
        let pmu = NonNull::new(unsafe { (&raw const (*event).pmu).read_volatile() })?;
        // SAFETY: The PMU is registered while it has an event. What is read does not change.
        unsafe {
            let raw = pmu.as_ptr();
            // CAST: The type is a small constant.
            let is_core = (*raw).type_ == bindings::perf_type_id_PERF_TYPE_RAW as c_int;
            let may_disappear = bindings::ebb_perf_may_disappear(raw);
            (is_core && !may_disappear).then_some(pmu)
        }
    }

    /// Returns the name of the PMU, "" if it is not the core PMU.
    pub(crate) fn name(&self) -> &CStr {
        // SAFETY: A PMU that is registered has a name, and `core_pmu` checked that the PMU cannot
        // disappear.
        self.core_pmu().map_or(c"", |pmu| unsafe {
            CStr::from_char_ptr((*pmu.as_ptr()).name)
        })
    }

    /// Returns the address of a function of the PMU's driver, if it is the core PMU.
    pub(crate) fn function(&self) -> Option<usize> {
        // SAFETY: The PMU is registered while it has an event.
        let function = unsafe { (*self.core_pmu()?.as_ptr()).event_init }?;
        Some(function as usize)
    }

    /// Unregisters the PMU until the result is dropped. Its open events are revoked: they stop
    /// counting and keep their value, and `poll` on them reports an error.
    ///
    /// Fails with `ENODEV` or `EINVAL` if the PMU is not registered any more. Fails with `EBUSY`,
    /// without a change, if the PMU may disappear or perf core may refuse to unregister it.
    pub(crate) fn unregister(self) -> Result<UnregisteredPmu> {
        let event = self.0.as_raw();
        // SAFETY: The event is open.
        to_result(unsafe { bindings::ebb_perf_prepare_unregister(event) })?;
        // SAFETY: The event is open. perf core sets the field to null when it revokes the event.
        let pmu = unsafe { (&raw const (*event).pmu).read_volatile() };
        let pmu = NonNull::new(pmu).ok_or(ENODEV)?;
        // The event must not be used from here on: it would be revoked like the others.
        drop(self);
        // SAFETY: The structure is never freed, as `ebb_perf_prepare_unregister` checked. perf core
        // checks that it is registered.
        to_result(unsafe { bindings::perf_pmu_unregister(pmu.as_ptr()) })?;
        // INVARIANT: The PMU was unregistered just now; `ebb_perf_prepare_unregister` checked the
        // other conditions.
        Ok(UnregisteredPmu {
            pmu,
            // SAFETY: The structure is never freed, and perf core does not use it any more.
            perf_type: unsafe { (*pmu.as_ptr()).type_ },
        })
    }
}

/// A PMU that was unregistered. Dropping the value registers the PMU again.
///
/// # Invariants
///
/// The structure, its name and the driver exist as long as the kernel. The PMU is not registered,
/// it has its original name, and `perf_type` is its original type.
pub(crate) struct UnregisteredPmu {
    pmu: NonNull<bindings::pmu>,
    /// The PMU's type.
    perf_type: c_int,
}

// SAFETY: A `struct pmu` is not bound to a thread.
unsafe impl Send for UnregisteredPmu {}
// SAFETY: The parts of the structure that are read do not change while the PMU is unregistered.
unsafe impl Sync for UnregisteredPmu {}

impl UnregisteredPmu {
    /// Number of attempts to register the PMU again.
    const ATTEMPTS: u32 = 10;

    /// Registers the PMU again. Fails like `perf_pmu_register()`, and with `EBUSY` if another PMU
    /// has its type; the PMU is not registered then.
    fn register(&self) -> Result {
        let pmu = self.pmu.as_ptr();
        // perf core freed what these two pointers point to when it unregistered the PMU or failed
        // to register it. It would try to keep the old device, and free the old contexts a second
        // time if registering fails.
        // SAFETY: By the type invariants the structure is valid, complete and not registered, and
        // no other code uses it. Name and type are the original ones.
        to_result(unsafe {
            (*pmu).dev = core::ptr::null_mut();
            (*pmu).cpu_pmu_context = core::ptr::null_mut();
            bindings::perf_pmu_register(pmu, (*pmu).name, self.perf_type)
        })?;
        // If the type is taken, perf core warns and assigns a different one.
        // SAFETY: The structure is valid by the type invariants.
        if unsafe { (*pmu).type_ } == self.perf_type {
            return Ok(());
        }
        // SAFETY: The PMU was registered just now. Other code may have opened an event since then.
        // The PMU has no `event_unmapped`, because it could be unregistered before.
        to_result(unsafe {
            bindings::ebb_perf_stop_rotation(pmu);
            bindings::perf_pmu_unregister(pmu)
        })?;
        Err(EBUSY)
    }

    /// Returns the name under which the PMU was and will be registered.
    pub(crate) fn name(&self) -> &CStr {
        // SAFETY: A PMU that was registered has a name, which is valid by the type invariants.
        unsafe { CStr::from_char_ptr((*self.pmu.as_ptr()).name) }
    }
}

impl Drop for UnregisteredPmu {
    fn drop(&mut self) {
        // Without this PMU the machine has no PMU until it is rebooted, because the next load of
        // the module finds none to take over. So try again if memory is short.
        for more in (0..Self::ATTEMPTS).rev() {
            match self.register() {
                Ok(()) => return,
                Err(ENOMEM) if more > 0 => fsleep(Delta::from_millis(200)),
                Err(e) => {
                    let why = "could not be registered again";
                    return pr_err!("the built-in PMU {why} ({e:?}): none until a reboot\n");
                }
            }
        }
    }
}
