// SPDX-License-Identifier: GPL-2.0

//! A PMU that perf core knows of.
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

/// A registered PMU; dropping it unregisters the PMU.
///
/// An open event holds a reference to the driver's module, so a module that keeps the registration
/// until it is unloaded sees no event when it drops it. While the module is being loaded there may
/// be some: perf core revokes them as the PMU goes.
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
    /// Fails with `EBUSY` when perf core has a PMU of that type (and warns of it), with `EEXIST`
    /// when the name is taken in sysfs, with `ENOMEM`, and as `driver` does.
    ///
    /// # Safety
    ///
    /// `module` must be the one that `T` is part of. The value must be dropped before that is
    /// unloaded: perf core calls `T` until then.
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
        // CAST: A small constant.
        let raw = bindings::perf_type_id_PERF_TYPE_RAW as c_int;
        // SAFETY: The structure is complete, pinned, and dropped only after it is unregistered;
        // `name` is static. On failure perf core leaves nothing of it behind.
        to_result(unsafe { bindings::perf_pmu_register(instance.pmu(), name.as_char_ptr(), raw) })?;
        // INVARIANT: Registered just now.
        let registration = Self { instance };
        // When the type is taken, perf core warns and gives another one.
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
        // SAFETY: Registered by the type invariants.
        unsafe { bindings::ebb_perf_stop_rotation(pmu) };
        // SAFETY: As above. This waits until no callback runs any more, and leaves nothing in the
        // PMU's contexts (`scripts/check-kdir` refuses a perf core that does). It only fails for a
        // PMU that is not registered, or that has `event_unmapped`, which no `VTable` sets.
        unsafe { bindings::perf_pmu_unregister(pmu) };
    }
}
