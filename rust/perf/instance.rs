// SPDX-License-Identifier: GPL-2.0

//! A `struct pmu` with its driver, which callbacks find through the pointer to the structure.

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

/// A driver, with the contexts of all CPUs.
#[pin_data]
pub(super) struct Bound<T: Pmu> {
    cpus: Arc<CpuContexts<T::Shared, T::Exclusive, T::EventData>>,
    #[pin]
    driver: T,
}

impl<T: Pmu> Bound<T> {
    pub(super) fn new(
        cpus: Arc<CpuContexts<T::Shared, T::Exclusive, T::EventData>>,
        driver: impl PinInit<T, Error>,
    ) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            cpus,
            driver <- driver,
        }? Error)
    }

    pub(super) fn cpus(&self) -> &CpuContexts<T::Shared, T::Exclusive, T::EventData> {
        &self.cpus
    }

    pub(super) fn driver(&self) -> &T {
        &self.driver
    }
}

/// Way in which a callback finds the driver of the PMU for which perf core calls it.
pub(super) trait Locate<T: Pmu> {
    /// Whether all events of the PMU belong to the driver, because it shares the PMU with no other.
    const HAS_EVERY_EVENT: bool;

    /// Finds the driver.
    ///
    /// # Safety
    ///
    /// `pmu` must have the callbacks of `T` for the lifetime `'a`, and must have got them in the
    /// way that this type represents.
    unsafe fn bound<'a>(pmu: *mut bindings::pmu) -> &'a Bound<T>;
}

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
    /// The groups of files in sysfs to which `pmu.attr_groups` points.
    attr_groups: AttrGroups,
    #[pin]
    bound: Bound<T>,
}

// SAFETY: perf core serialises its accesses to the `struct pmu`. The other fields are `Sync`.
unsafe impl<T: Pmu> Sync for Instance<T> {}
// SAFETY: A `struct pmu` is not bound to a thread. The other fields are `Send`.
unsafe impl<T: Pmu> Send for Instance<T> {}

impl<T: Pmu> Instance<T> {
    /// Makes an instance of `pmu`, whose callbacks must be those of `T`, and the driver.
    pub(super) fn new(
        mut pmu: bindings::pmu,
        attr_groups: AttrGroups,
        cpus: Arc<CpuContexts<T::Shared, T::Exclusive, T::EventData>>,
        driver: impl PinInit<T, Error>,
    ) -> impl PinInit<Self, Error> {
        pmu.attr_groups = attr_groups.as_raw();
        try_pin_init!(Self {
            pmu: Opaque::new(pmu),
            attr_groups,
            bound <- Bound::new(cpus, driver),
        }? Error)
    }

    /// Returns the structure as a pointer for perf core.
    pub(super) fn pmu(&self) -> *mut bindings::pmu {
        self.pmu.get()
    }
}

/// Finds the driver of a PMU that it has registered: the structure is in an `Instance<T>`.
impl<T: Pmu> Locate<T> for Instance<T> {
    const HAS_EVERY_EVENT: bool = true;

    #[inline]
    unsafe fn bound<'a>(pmu: *mut bindings::pmu) -> &'a Bound<T> {
        // SAFETY: The caller guarantees an `Instance<T>` that lives for `'a`. CAST: `pmu` is its
        // first field by the type invariants.
        unsafe { &(*pmu.cast::<Self>()).bound }
    }
}
