// SPDX-License-Identifier: GPL-2.0

//! The `ebb` mode: the driver that is built into the kernel keeps the PMU and serves regular
//! events, this driver serves EBB events.
//!
//! So this mode needs only what a kernel without patches exports. `rust/perf/ownership.rs` decides
//! which driver has the PMU of a CPU. This driver keeps the PMU after the last EBB event was
//! deleted, so a program that is scheduled in again finds it in the same state as in `full` mode.
//! Until then the PMU is frozen and closed to programs. When the built-in driver adds an event, the
//! PMU is cleared and given back. On bare metal this driver also takes the PMUs without events.
//!
//! The built-in driver handles PMIs, because no alert raises a PMI under EBE. In QEMU some alerts
//! do, and this driver handles those of the CPUs whose PMU it has.

use super::{
    cpu_state::{
        local_pmu,
        ExclusiveCpu, //
    },
    exec::ResetOnExec,
    interrupt::PmiHandler,
    takeover::Parts,
    Driver, //
};
use crate::{
    perf::{
        BuiltInPmu,
        Interposition,
        IrqsOff, //
    },
    power::{
        exec::ExecWatch,
        interrupt::SharedInterrupt, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Name of the built-in driver's handler of PMIs.
const BUILT_IN_HANDLER: &CStr = c"perf_event_interrupt";

/// The driver in `ebb` mode, which serves EBB events until the value is dropped.
pub(crate) struct Interposed {
    // Fields are dropped in this order. There are no EBB events any more, so no PMI is for this
    // driver.
    _exec: ExecWatch<ResetOnExec>,
    _interrupt: Option<SharedInterrupt>,
    _interposition: Interposition<Arc<Driver>>,
    /// Keeps the built-in PMU, and has its driver reserve the PMU's interrupt.
    _built_in: BuiltInPmu,
}

impl Interposed {
    /// Begins to serve EBB events.
    ///
    /// Fails like [`Takeover::new`](super::Takeover::new).
    pub(crate) fn new(_module: &'static ThisModule) -> Result<Self> {
        let Parts {
            model,
            permit,
            cpus,
            driver,
            exec,
        } = Parts::new(true)?;
        let log = |e: &Error| {
            pr_err!("cannot serve EBB events of the PMU that counts cycles ({e:?})\n");
        };
        let Some(built_in) = BuiltInPmu::find().inspect_err(log)? else {
            pr_err!("the kernel has no PMU: is it told to leave it, pmu_override=?\n");
            return Err(ENODEV);
        };
        let interrupt = if driver.emulator().may_raise_pmi_under_ebe() {
            let near = built_in.function().ok_or(EBUSY).inspect_err(log)?;
            let name = BUILT_IN_HANDLER;
            // SAFETY: `built_in` is an event of the built-in driver, so that driver has the PMU
            // reserved with this handler. `driver`, which `interposition` keeps, has a reservation
            // without users. Both are dropped later.
            let shared = unsafe { SharedInterrupt::new::<PmiHandler>(permit, name, near) };
            Some(shared.inspect_err(|e| {
                pr_err!("no EBBs in QEMU without {name:?} ({e:?}): CONFIG_KALLSYMS?\n");
            })?)
        } else {
            None
        };
        // Must be last: from here on an EBB event may hold a reference to the module, and then
        // loading it must not fail.
        // SAFETY: This module drops the result before it is unloaded, and `built_in` later.
        let interposition =
            unsafe { Interposition::new(&built_in, cpus, Ok(driver)) }.inspect_err(log)?;
        let name = model.name();
        let other = built_in.name();
        pr_info!("{name}: mode ebb: EBB; \"{other}\" keeps all other events\n");
        Ok(Self {
            _exec: exec,
            _interrupt: interrupt,
            _interposition: interposition,
            _built_in: built_in,
        })
    }
}

/// Prepares for a PMU that the built-in driver has used, so that the cached values of its registers
/// are wrong. The BHRB, too, may have branches of other programs, but it is cleared for each EBB
/// event that is added. Implements [`crate::perf::SharedPmu::acquired`].
///
/// The PMU may run although the built-in driver has frozen it: KVM saves nothing while
/// `pmcregs_in_use` is 0, and that driver clears it when its last event is deleted. KVM may then
/// load the values that it saved before. If the CPU came up, the hypervisor must be asked for the
/// PMU first.
pub(super) fn acquired(driver: &Driver, this_cpu: &ExclusiveCpu) {
    let local = local_pmu(this_cpu.irqs_off());
    if driver.hotplug.test_and_clear_came_up(this_cpu.id()) {
        local.turn_on(driver.is_v31());
    } else {
        local.set_in_use();
        local.freeze(driver.is_v31());
    }
    this_cpu.state().cache.forget();
}

/// Clears the PMU and leaves it to the built-in driver.
/// Implements [`crate::perf::SharedPmu::released`].
pub(super) fn released(driver: &Driver, this_cpu: &ExclusiveCpu) {
    let local = local_pmu(this_cpu.irqs_off());
    if driver.hotplug.test_and_clear_came_up(this_cpu.id()) {
        // Registers may be accessed only after this.
        local.turn_on(driver.is_v31());
    }
    local.give_back(driver.register_set);
}

/// Makes KVM preserve the registers of a PMU of the built-in driver on bare metal. Implements
/// [`crate::perf::SharedPmu::other_enabled`].
///
/// The built-in driver clears `pmcregs_in_use` when its last event is deleted. KVM could then leave
/// a guest's registers on the PMU, and with the guest's MMCR0 a task whose EBB group is not on the
/// PMU would get EBBs of the guest's alerts.
pub(super) fn other_enabled(driver: &Driver, irqs_off: &IrqsOff<'_>) {
    if driver.platform.hypervisor_mode {
        local_pmu(irqs_off).set_in_use();
    }
}
