// SPDX-License-Identifier: GPL-2.0

//! A `struct pmu` together with its driver, which callbacks find through the pointer that they get.

use super::{
    bindings,
    AttrGroups,
    CpuContexts,
    Pmu, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

/// A PMU as perf core sees it, with its driver.
///
/// # Invariants
///
/// `pmu` is the first field.
#[pin_data]
#[repr(C)]
pub(super) struct Instance<T: Pmu> {
    #[pin]
    pmu: Opaque<bindings::pmu>,
    cpus: Arc<CpuContexts<T::Shared, T::Exclusive, T::EventData>>,
    /// What `pmu.attr_groups` points to.
    attr_groups: AttrGroups,
    #[pin]
    driver: T,
}

// SAFETY: perf core serialises what it does to the `struct pmu`; the rest is `Sync`.
unsafe impl<T: Pmu> Sync for Instance<T> {}
// SAFETY: A `struct pmu` is not bound to a thread; the rest is `Send`.
unsafe impl<T: Pmu> Send for Instance<T> {}

impl<T: Pmu> Instance<T> {
    /// Completes `pmu`, whose callbacks must be those of `T`, with the driver.
    pub(super) fn new(
        mut pmu: bindings::pmu,
        attr_groups: AttrGroups,
        cpus: Arc<CpuContexts<T::Shared, T::Exclusive, T::EventData>>,
        driver: impl PinInit<T, Error>,
    ) -> impl PinInit<Self, Error> {
        pmu.attr_groups = attr_groups.as_raw();
        try_pin_init!(Self {
            pmu: Opaque::new(pmu),
            cpus,
            attr_groups,
            driver <- driver,
        }? Error)
    }

    /// # Safety
    ///
    /// `pmu` must be the one in an `Instance<T>` that lives for `'a`.
    pub(super) unsafe fn from_pmu<'a>(pmu: *mut bindings::pmu) -> &'a Self {
        // SAFETY: The caller guarantees it. CAST: `pmu` is the first field by the type invariants.
        unsafe { &*pmu.cast() }
    }

    /// The structure as perf core takes it.
    pub(super) fn pmu(&self) -> *mut bindings::pmu {
        self.pmu.get()
    }

    pub(super) fn cpus(&self) -> &CpuContexts<T::Shared, T::Exclusive, T::EventData> {
        &self.cpus
    }

    pub(super) fn driver(&self) -> &T {
        &self.driver
    }
}
