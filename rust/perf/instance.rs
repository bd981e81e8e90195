// SPDX-License-Identifier: GPL-2.0

//! A `struct pmu` together with the driver behind it, which callbacks find by the pointer they get.

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

/// A driver with what it keeps for each CPU.
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

/// How a callback finds the driver behind the PMU that perf core calls it for.
pub(super) trait Locate<T: Pmu> {
    /// Whether the driver has the PMU for itself, and so every event on it.
    const HAS_EVERY_EVENT: bool;

    /// Finds the driver.
    ///
    /// # Safety
    ///
    /// `pmu` must be one whose callbacks are those of `T` for the lifetime `'a`, in the way that
    /// this type stands for.
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
    /// What `pmu.attr_groups` points to.
    attr_groups: AttrGroups,
    #[pin]
    bound: Bound<T>,
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
            attr_groups,
            bound <- Bound::new(cpus, driver),
        }? Error)
    }

    /// The structure as perf core takes it.
    pub(super) fn pmu(&self) -> *mut bindings::pmu {
        self.pmu.get()
    }
}

/// A PMU that the driver has registered: the structure is in an `Instance<T>`.
impl<T: Pmu> Locate<T> for Instance<T> {
    const HAS_EVERY_EVENT: bool = true;

    #[inline]
    unsafe fn bound<'a>(pmu: *mut bindings::pmu) -> &'a Bound<T> {
        // SAFETY: The caller guarantees an `Instance<T>` that lives for `'a`. CAST: `pmu` is its
        // first field by the type invariants.
        unsafe { &(*pmu.cast::<Self>()).bound }
    }
}
