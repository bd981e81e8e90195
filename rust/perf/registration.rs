// SPDX-License-Identifier: GPL-2.0

//! Registration of a PMU with perf core.
//!
//! C header: [`include/linux/perf_event.h`](srctree/include/linux/perf_event.h),
//! `perf_pmu_register()`

use super::{
    bindings,
    instance::Instance,
    vtable::VTable,
    AttrGroups,
    Capabilities,
    CpuContexts,
    Pmu, //
};
use kernel::{
    error::to_result,
    prelude::*,
    str::CStrExt,
    sync::Arc, //
};

/// A registered PMU. Dropping it unregisters the PMU.
///
/// An open event holds a reference to the driver's module. So if the module keeps the registration
/// until it is unloaded, there are no events when it drops the registration. There may be some
/// while the module is being loaded: perf core revokes them when the PMU is unregistered.
///
/// # Invariants
///
/// The PMU of `instance` is registered with perf core.
pub(crate) struct Registration<T: Pmu> {
    instance: Pin<KBox<Instance<T>>>,
}

impl<T: Pmu> Registration<T> {
    /// Registers `driver` as the core PMU (`PERF_TYPE_RAW`) of all CPUs, under `name` and with
    /// `attr_groups` in sysfs.
    ///
    /// Fails with `EBUSY` if perf core has a PMU of that type (and warns about it), with `EEXIST`
    /// if the name is taken in sysfs, with `ENOMEM`, and with the errors of `driver`.
    ///
    /// # Safety
    ///
    /// `module` must be the module that contains `T`. The value must be dropped before that module
    /// is unloaded, because perf core calls `T` until then.
    pub(crate) unsafe fn new_core(
        module: &'static ThisModule,
        name: &'static CStr,
        capabilities: Capabilities,
        attr_groups: AttrGroups,
        cpus: Arc<CpuContexts<T::Shared, T::Exclusive, T::EventData>>,
        driver: impl PinInit<T, Error>,
    ) -> Result<Self> {
        let mut pmu = bindings::pmu {
            module: module.as_ptr(),
            capabilities: capabilities.as_raw(),
            ..pin_init::zeroed()
        };
        VTable::<T, Instance<T>>::fill(&mut pmu);
        let instance = KBox::pin_init(Instance::new(pmu, attr_groups, cpus, driver), GFP_KERNEL)?;
        // CAST: The type is a small constant.
        let raw = bindings::perf_type_id_PERF_TYPE_RAW as c_int;
        // SAFETY: The structure is complete, pinned, and dropped only after it is unregistered;
        // `name` is static. On failure perf core keeps no pointer to it.
        to_result(unsafe { bindings::perf_pmu_register(instance.pmu(), name.as_char_ptr(), raw) })?;
        // INVARIANT: The PMU was registered just now.
        let registration = Self { instance };
        // If the type is taken, perf core warns and assigns a different one.
        // SAFETY: The structure is complete, and perf core does not change its type any more.
        if unsafe { (*registration.instance.pmu()).type_ } != raw {
            return Err(EBUSY);
        }
        Ok(registration)
    }
}

impl<T: Pmu> Drop for Registration<T> {
    fn drop(&mut self) {
        let pmu = self.instance.pmu();
        // SAFETY: The PMU is registered by the type invariants.
        unsafe { bindings::ebb_perf_stop_rotation(pmu) };
        // The function waits until no callback runs any more, and removes everything from the PMU's
        // contexts (`scripts/check-kdir` refuses a perf core that does not). It fails only for a
        // PMU that is not registered, or that has `event_unmapped`, which no `VTable` sets.
        // SAFETY: The PMU is registered by the type invariants.
        unsafe { bindings::perf_pmu_unregister(pmu) };
    }
}
