// SPDX-License-Identifier: GPL-2.0

//! A PMU of somebody else: finding the one that counts cycles, setting it aside, giving it back.

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
    str::CStrExt, //
};

/// An event that the kernel itself has open, for the current task, and that never counts.
///
/// # Invariants
///
/// The event is live and belongs to this value.
pub(crate) struct KernelEvent(NonNull<bindings::perf_event>);

impl KernelEvent {
    /// Opens an event that would count cycles. Fails as opening an event does.
    pub(crate) fn open_cycles() -> Result<Self> {
        let mut attr = bindings::perf_event_attr {
            type_: bindings::perf_type_id_PERF_TYPE_HARDWARE,
            // CAST: A small constant.
            size: size_of::<bindings::perf_event_attr>() as u32,
            config: bindings::perf_hw_id_PERF_COUNT_HW_CPU_CYCLES.into(),
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
}

impl Drop for KernelEvent {
    fn drop(&mut self) {
        // SAFETY: By the type invariants the event is this value's to release.
        unsafe { bindings::perf_event_release_kernel(self.0.as_ptr()) };
    }
}

/// A PMU that is built into the kernel and registered.
///
/// # Invariants
///
/// The PMU belongs to no module, so it is there as long as the kernel is. It was registered when
/// this value was made.
pub(crate) struct Foreign(NonNull<bindings::pmu>);

// SAFETY: A `struct pmu` is not bound to a thread.
unsafe impl Send for Foreign {}
// SAFETY: What is read of the structure does not change while it is registered or set aside.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// Finds the PMU that counts cycles, by opening such an event and asking who took it. `None`
    /// when there is none.
    ///
    /// Fails with `EBUSY` when that PMU belongs to a module, which could go at any time, and as
    /// opening an event does (for one, `EBUSY` when the hardware is reserved by somebody else).
    pub(crate) fn find_cycles() -> Result<Option<Self>> {
        let event = match KernelEvent::open_cycles() {
            Ok(event) => event,
            Err(e) if e == ENOENT => return Ok(None),
            Err(e) => return Err(e),
        };
        // SAFETY: The event is live. Its PMU is null if it was unregistered since.
        let pmu = NonNull::new(unsafe { event.0.as_ref().pmu });
        // SAFETY: As long as the event is open its PMU cannot go.
        let built_in = pmu.is_some_and(|pmu| unsafe { pmu.as_ref() }.module.is_null());
        if !built_in {
            return Err(EBUSY);
        }
        // INVARIANT: It belongs to no module, and was registered as it took an event.
        Ok(pmu.map(Self))
    }

    /// The name under which the PMU is registered.
    pub(crate) fn name(&self) -> &CStr {
        // SAFETY: A registered PMU has a name; a built-in one's is static.
        unsafe { CStr::from_char_ptr((*self.0.as_ptr()).name) }
    }

    /// Unregisters the PMU until the result is dropped. Its open events are revoked: they count no
    /// more, keep the value they had, and poll as in error.
    ///
    /// Fails with `EINVAL` when the PMU is not registered any more, `EBUSY` when perf core cannot
    /// revoke its events.
    pub(crate) fn set_aside(self) -> Result<SetAside> {
        // SAFETY: By the type invariants the structure is there and was registered; nobody but this
        // module, whose insertions are serialised, unregisters it.
        unsafe { bindings::ebb_perf_stop_rotation(self.0.as_ptr()) };
        // SAFETY: As above; perf core checks that it is registered.
        to_result(unsafe { bindings::perf_pmu_unregister(self.0.as_ptr()) })?;
        // SAFETY: The structure is there, and nobody else's business while it is unregistered. perf
        // core has freed what the pointers are to: it would take the device for one to keep, and
        // free the other again if registering fails.
        unsafe {
            (*self.0.as_ptr()).dev = core::ptr::null_mut();
            (*self.0.as_ptr()).cpu_pmu_context = core::ptr::null_mut();
        }
        // INVARIANT: Unregistered just now.
        Ok(SetAside(self))
    }
}

/// A PMU that is set aside; dropping it registers the PMU again.
///
/// # Invariants
///
/// The PMU is not registered, and its name and type are those it had.
pub(crate) struct SetAside(Foreign);

impl SetAside {
    /// The name under which the PMU was and will be registered.
    pub(crate) fn name(&self) -> &CStr {
        self.0.name()
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        let pmu = self.0 .0.as_ptr();
        // SAFETY: The structure is there, complete and not registered by the type invariants; name
        // and type are as before.
        let result = to_result(unsafe {
            let (name, kind) = ((*pmu).name, (*pmu).type_);
            bindings::perf_pmu_register(pmu, name, kind)
        });
        if let Err(e) = result {
            pr_err!("the built-in PMU could not be registered again ({e:?})\n");
        }
    }
}
