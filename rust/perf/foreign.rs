// SPDX-License-Identifier: GPL-2.0

//! A PMU of somebody else: finding the one that counts cycles, setting it aside, giving it back.
//!
//! perf core protects nobody from the unregistering of a PMU that is not one's own. A driver that
//! is built into the kernel does not go with a module, but its device may go, and with it what the
//! driver allocated. And an event stays open when its PMU is unregistered: perf core revokes it.
//! So a PMU is set aside only if
//!
//! - an open event shows that it is registered, up to the moment when the setting aside begins;
//! - it has no module and no device to go with;
//! - its structure and its name are in memory that the kernel never frees.
//!
//! Then nothing of it can go, and if its driver unregisters it meanwhile, perf core refuses to do
//! so again. The driver of a POWER kernel's core PMU is such a one: it registers a static structure
//! when the kernel boots, for good.

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

/// An event that the kernel itself has open, for the current task, and that never counts.
///
/// # Invariants
///
/// The event is live and belongs to this value.
pub(crate) struct KernelEvent(NonNull<bindings::perf_event>);

// SAFETY: The kernel may release an event of its own from any thread.
unsafe impl Send for KernelEvent {}
// SAFETY: What is read of the event does not change.
unsafe impl Sync for KernelEvent {}

impl KernelEvent {
    /// Opens an event that would count cycles. Fails as opening an event does.
    pub(crate) fn open_cycles() -> Result<Self> {
        Self::open(
            bindings::perf_type_id_PERF_TYPE_HARDWARE,
            bindings::perf_hw_id_PERF_COUNT_HW_CPU_CYCLES.into(),
        )
    }

    /// Opens the event `config` of the PMU type `kind`. Fails as opening an event does.
    pub(super) fn open(kind: u32, config: u64) -> Result<Self> {
        let mut attr = bindings::perf_event_attr {
            type_: kind,
            // CAST: A small constant.
            size: size_of::<bindings::perf_event_attr>() as u32,
            config,
            ..pin_init::zeroed()
        };
        attr.set_disabled(1);
        // SAFETY: The attributes are valid for the call; the event follows the current task on any
        // CPU, which lives while this runs; there is no handler.
        let event = from_err_ptr(unsafe {
            bindings::perf_event_create_kernel_counter(
                &raw mut attr,
                -1,
                kernel::bindings::get_current(),
                None,
                core::ptr::null_mut(),
            )
        })?;
        // INVARIANT: Created just now.
        NonNull::new(event).map(Self).ok_or(ENOENT)
    }

    pub(super) fn as_raw(&self) -> *mut bindings::perf_event {
        self.0.as_ptr()
    }
}

impl Drop for KernelEvent {
    fn drop(&mut self) {
        // SAFETY: By the type invariants the event is this value's to release.
        unsafe { bindings::perf_event_release_kernel(self.0.as_ptr()) };
    }
}

/// A PMU of the kernel's own that counts cycles, found by an event that it took.
pub(crate) struct Foreign(pub(super) KernelEvent);

impl Foreign {
    /// Finds the PMU that counts cycles, by opening such an event. `None` when there is none.
    ///
    /// Fails as opening an event does (for one, with `EBUSY` when the hardware is reserved by
    /// somebody else).
    pub(crate) fn find_cycles() -> Result<Option<Self>> {
        match KernelEvent::open_cycles() {
            Ok(event) => Ok(Some(Self(event))),
            Err(e) if e == ENOENT => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Returns the PMU if it is the core PMU (`PERF_TYPE_RAW`) and cannot go.
    pub(super) fn core_pmu(&self) -> Option<NonNull<bindings::pmu>> {
        let event = self.0.as_raw();
        // SAFETY: The event is open. perf core sets the field to null when it revokes the event.
        let pmu = NonNull::new(unsafe { (&raw const (*event).pmu).read_volatile() })?;
        // SAFETY: The PMU is registered while it has an event. What is read does not change.
        unsafe {
            let raw = pmu.as_ptr();
            // CAST: A small constant.
            let is_core = (*raw).type_ == bindings::perf_type_id_PERF_TYPE_RAW as c_int;
            let may_go = bindings::ebb_perf_may_go(raw);
            (is_core && !may_go).then_some(pmu)
        }
    }

    /// Returns the name of the PMU, "" if it is not the core PMU.
    pub(crate) fn name(&self) -> &CStr {
        // SAFETY: A PMU that is registered has a name. It is there for good by `core_pmu`.
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

    /// Unregisters the PMU until the result is dropped. Its open events are revoked: they count no
    /// more, keep the value they had, and poll as in error.
    ///
    /// Fails with `ENODEV` or `EINVAL` when the PMU is not registered any more, and with `EBUSY`,
    /// leaving the PMU as it is, when the PMU may go or perf core might not unregister it.
    pub(crate) fn set_aside(self) -> Result<SetAside> {
        let event = self.0.as_raw();
        // SAFETY: The event is open.
        to_result(unsafe { bindings::ebb_perf_prepare_unregister(event) })?;
        // SAFETY: The event is open. perf core sets the field to null when it revokes the event.
        let pmu = unsafe { (&raw const (*event).pmu).read_volatile() };
        let pmu = NonNull::new(pmu).ok_or(ENODEV)?;
        // Last use of the event: it would be revoked like the others.
        drop(self);
        // SAFETY: The structure is there for good, as `ebb_perf_prepare_unregister` found. perf
        // core checks that it is registered.
        to_result(unsafe { bindings::perf_pmu_unregister(pmu.as_ptr()) })?;
        // INVARIANT: Unregistered just now; `ebb_perf_prepare_unregister` found the rest.
        Ok(SetAside {
            pmu,
            // SAFETY: The structure is there, and perf core is done with it.
            perf_type: unsafe { (*pmu.as_ptr()).type_ },
        })
    }
}

/// A PMU that is set aside; dropping it registers the PMU again.
///
/// # Invariants
///
/// The structure and its name are there as long as the kernel is, and so is the driver. The PMU is
/// not registered, its name is that it had, and `perf_type` its type.
pub(crate) struct SetAside {
    pmu: NonNull<bindings::pmu>,
    /// Its type.
    perf_type: c_int,
}

// SAFETY: A `struct pmu` is not bound to a thread.
unsafe impl Send for SetAside {}
// SAFETY: What is read of the structure does not change while it is set aside.
unsafe impl Sync for SetAside {}

impl SetAside {
    /// How often to try to register the PMU again.
    const ATTEMPTS: u32 = 10;

    /// Registers the PMU again. Fails as `perf_pmu_register()` does, and with `EBUSY` when another
    /// PMU has its type; it is not registered then.
    fn register(&self) -> Result {
        let pmu = self.pmu.as_ptr();
        // perf core has freed what the two pointers are to, when it unregistered the PMU or failed
        // to register it: it would take the device for one to keep, and free the other again if
        // registering fails.
        // SAFETY: The structure is there, complete and not registered by the type invariants, and
        // nobody else's business; name and type are as before.
        to_result(unsafe {
            (*pmu).dev = core::ptr::null_mut();
            (*pmu).cpu_pmu_context = core::ptr::null_mut();
            bindings::perf_pmu_register(pmu, (*pmu).name, self.perf_type)
        })?;
        // When the type is taken, perf core warns and gives another one.
        // SAFETY: The structure is there by the type invariants.
        if unsafe { (*pmu).type_ } == self.perf_type {
            return Ok(());
        }
        // SAFETY: Registered just now. Somebody may have opened an event meanwhile. It has no
        // `event_unmapped`, as it was unregistered before.
        to_result(unsafe {
            bindings::ebb_perf_stop_rotation(pmu);
            bindings::perf_pmu_unregister(pmu)
        })?;
        Err(EBUSY)
    }

    /// The name under which the PMU was and will be registered.
    pub(crate) fn name(&self) -> &CStr {
        // SAFETY: A PMU that was registered has a name; it is there by the type invariants.
        unsafe { CStr::from_char_ptr((*self.pmu.as_ptr()).name) }
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        // Without it nobody counts until the machine is started anew, as the next load finds no PMU
        // to set aside. So do not give up at once when memory is short.
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
