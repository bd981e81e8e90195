// SPDX-License-Identifier: GPL-2.0

//! Takes the PMU over from the kernel's built-in driver, and gives it back.

use super::{
    cpu_state::CpuContexts,
    emulator::Emulator,
    exec::ResetOnExec,
    interrupt::PmiHandler,
    register_set,
    sysfs,
    Driver, //
};
use crate::{
    isa207::{
        CpuModel,
        Isa, //
    },
    perf::{
        BuiltInPmu,
        Capabilities,
        Capability,
        Registration,
        UnregisteredPmu, //
    },
    power::{
        access::ClosedPmus,
        callback::CallbackPermit,
        exec::ExecWatch,
        machine, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Returns the model for a processor without a model of its own. The processor may have no BHRB,
/// and the BHRB's instructions are illegal then. So it is not used, and the built-in driver for
/// such processors does not use it either.
fn architected_model() -> Option<&'static CpuModel> {
    machine::disable_bhrb();
    CpuModel::architected(if machine::implements_v31() {
        Isa::V31
    } else if machine::implements_v300() {
        Isa::V300
    } else {
        Isa::V207
    })
}

/// The parts of the driver that are made before it gets the PMU.
pub(super) struct Parts {
    pub(super) model: &'static CpuModel,
    pub(super) permit: CallbackPermit,
    pub(super) cpus: Arc<CpuContexts>,
    pub(super) driver: Arc<Driver>,
    pub(super) exec: ExecWatch<ResetOnExec>,
}

impl Parts {
    /// Makes the parts. Fails with `ENODEV` on a processor that the driver does not support, or
    /// with an error such as `ENOMEM`.
    pub(super) fn new(is_interposed: bool) -> Result<Self> {
        let pvr = machine::pvr();
        let Some(model) = CpuModel::from_pvr(pvr).or_else(architected_model) else {
            pr_err!("no support for the processor with PVR {pvr:#010x}\n");
            return Err(ENODEV);
        };
        // SAFETY: Everything that is made with the permit belongs to the result, and nothing in it
        // owns the result. The module drops the result when it is unloaded.
        let permit = unsafe { CallbackPermit::new() };
        let cpus = CpuContexts::new()?;
        let emulator = Emulator::identify(&cpus)?;
        let pmi_handler = PmiHandler::new(model, cpus.clone(), emulator);
        let pmi_handler = Arc::new(pmi_handler, GFP_KERNEL)?;
        let driver = Driver::new(permit, model, pmi_handler, is_interposed);
        let driver = Arc::pin_init(driver, GFP_KERNEL)?;
        let on_exec = Arc::new(ResetOnExec::new(driver.clone(), cpus.clone()), GFP_KERNEL)?;
        let exec = ExecWatch::new(permit, on_exec).inspect_err(|e| {
            pr_err!("the kernel cannot tell of new programs ({e:?})\n");
        })?;
        Ok(Self {
            model,
            permit,
            cpus,
            driver,
            exec,
        })
    }
}

/// The takeover of the PMU. Dropping the value gives the PMU back.
pub(crate) struct Takeover {
    // Fields are dropped in this order. The PMUs must be opened to programs after the last PMI,
    // which would close them again, and before the other driver's PMU returns.
    _exec: ExecWatch<ResetOnExec>,
    _registration: Registration<Arc<Driver>>,
    _closed: ClosedPmus,
    _built_in: UnregisteredPmu,
}

impl Takeover {
    /// Takes the PMU over.
    ///
    /// Fails with `ENODEV` on an unknown processor and without a PMU in the kernel, with `EBUSY` if
    /// the PMU belongs to another module, or with an error such as `ENOMEM`. The PMU then keeps its
    /// previous owner.
    pub(crate) fn new(module: &'static ThisModule) -> Result<Self> {
        // Make what needs no PMU first: if that fails, the other driver still has the PMU.
        let Parts {
            model,
            permit,
            cpus,
            driver,
            exec,
        } = Parts::new(false)?;
        let attr_groups = sysfs::attr_groups(model)?;

        let log = |e: &Error| {
            pr_err!("the PMU that counts cycles cannot be taken over ({e:?})\n");
        };
        let Some(built_in) = BuiltInPmu::find().inspect_err(log)? else {
            // At samples perf core calls architecture code that follows a pointer to the built-in
            // driver's description of the PMU. It is null if the kernel never registered a PMU.
            pr_err!("the kernel has no PMU to take over: was it disabled by pmu_override=?\n");
            return Err(ENODEV);
        };
        let built_in = built_in.unregister().inspect_err(log)?;
        let closed = ClosedPmus::new(permit, register_set(model))
            .inspect_err(|e| pr_err!("cannot watch for CPUs that come up ({e:?})\n"))?;
        let capabilities = if model.isa() >= Isa::V300 {
            Capability::ExtendedRegs.into()
        } else {
            Capabilities::empty()
        };
        // SAFETY: `module` is this module. It keeps the result until it is unloaded, and drops it
        // then.
        let registration = unsafe {
            Registration::new_core(module, c"cpu", capabilities, attr_groups, cpus, Ok(driver))
        }
        .inspect_err(|e| pr_err!("cannot register the PMU ({e:?})\n"))?;

        let name = model.name();
        let other = built_in.name();
        pr_info!("{name}: mode full: took \"{other}\" over; 6 counters, sampling, branches, EBB\n");
        Ok(Self {
            _exec: exec,
            _registration: registration,
            _closed: closed,
            _built_in: built_in,
        })
    }
}
