// SPDX-License-Identifier: GPL-2.0

//! A PMU that perf core knows of.

use super::{
    bindings,
    vtable::VTable,
    AttrGroups,
    Capabilities,
    CpuContexts,
    Pmu, //
};
use core::ffi::CStr;
use kernel::{
    error::to_result,
    prelude::*,
    str::CStrExt,
    sync::Arc,
    types::Opaque, //
};

/// What [`Registration`] owns: the C structure with the driver behind it, so that a callback finds
/// the driver from the `struct pmu` it is given.
///
/// # Invariants
///
/// `pmu` is the first field.
#[pin_data]
#[repr(C)]
pub(super) struct Inner<T: Pmu> {
    #[pin]
    pmu: Opaque<bindings::pmu>,
    cpus: Arc<CpuContexts<T::Cpu>>,
    /// What `pmu.attr_groups` points to.
    attr_groups: AttrGroups,
    #[pin]
    driver: T,
}

// SAFETY: perf core serialises what it does to the `struct pmu`; the rest is `Sync`.
unsafe impl<T: Pmu> Sync for Inner<T> {}
// SAFETY: A `struct pmu` is not bound to a thread; the rest is `Send`.
unsafe impl<T: Pmu> Send for Inner<T> {}

impl<T: Pmu> Inner<T> {
    /// # Safety
    ///
    /// `pmu` must be the one in an `Inner<T>` that lives for `'a`.
    pub(super) unsafe fn from_pmu<'a>(pmu: *mut bindings::pmu) -> &'a Self {
        // SAFETY: The caller guarantees it. CAST: `pmu` is the first field by the type invariants.
        unsafe { &*pmu.cast() }
    }

    pub(super) fn cpus(&self) -> &CpuContexts<T::Cpu> {
        &self.cpus
    }

    pub(super) fn driver(&self) -> &T {
        &self.driver
    }
}

/// A registered PMU; dropping it unregisters the PMU.
///
/// An open event holds a reference to the driver's module, so a module that keeps the registration
/// until it is unloaded sees no event when it drops it.
///
/// # Invariants
///
/// `inner.pmu` is registered with perf core.
pub(crate) struct Registration<T: Pmu> {
    inner: Pin<KBox<Inner<T>>>,
}

impl<T: Pmu> Registration<T> {
    /// Registers `driver` as the core PMU (`PERF_TYPE_RAW`) of all CPUs under `name`, with
    /// `attr_groups` in sysfs.
    ///
    /// Fails with `EBUSY` when perf core has a PMU of that type (and warns of it), `ENOMEM`, or as
    /// sysfs does when the name is taken (`EEXIST`).
    pub(crate) fn new_core(
        module: &'static ThisModule,
        name: &'static CStr,
        capabilities: Capabilities,
        attr_groups: AttrGroups,
        cpus: Arc<CpuContexts<T::Cpu>>,
        driver: impl PinInit<T, Error>,
    ) -> Result<Self> {
        let mut pmu = bindings::pmu {
            module: module.as_ptr(),
            attr_groups: attr_groups.as_raw(),
            capabilities: capabilities.as_raw(),
            ..pin_init::zeroed()
        };
        VTable::<T>::fill(&mut pmu);
        let inner = KBox::try_pin_init(
            try_pin_init!(Inner {
                pmu: Opaque::new(pmu),
                cpus,
                attr_groups,
                driver <- driver,
            }? Error),
            GFP_KERNEL,
        )?;
        // CAST: A small constant.
        let raw = bindings::perf_type_id_PERF_TYPE_RAW as i32;
        // SAFETY: The structure is complete, pinned, and dropped only after it is unregistered;
        // `name` is static. On failure perf core leaves nothing of it behind.
        to_result(unsafe {
            bindings::perf_pmu_register(inner.pmu.get(), name.as_char_ptr(), raw)
        })?;
        // INVARIANT: Registered just now.
        let registration = Self { inner };
        // perf core gives a type that is taken away and another one instead.
        // SAFETY: The structure is complete and perf core does not change its type any more.
        if unsafe { (*registration.inner.pmu.get()).type_ } != raw {
            return Err(EBUSY);
        }
        Ok(registration)
    }
}

impl<T: Pmu> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: Registered by the type invariants. This waits until no callback runs any more.
        // It only fails for a PMU that is not registered, or that has `event_unmapped`, which no
        // `VTable` sets.
        unsafe {
            bindings::ebb_perf_stop_rotation(self.inner.pmu.get());
            bindings::perf_pmu_unregister(self.inner.pmu.get());
        }
    }
}
