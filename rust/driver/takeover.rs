// SPDX-License-Identifier: GPL-2.0

//! Taking the PMU over from the driver that is built into the kernel, and giving it back.

use super::{
    emulator::Emulator,
    exec::ResetOnExec,
    interrupt::PmiHandler,
    sysfs,
    Driver, //
};
use crate::{
    isa207::{
        CpuModel,
        Isa, //
    },
    perf::{
        Capabilities,
        Capability,
        CpuContexts,
        Foreign,
        Registration,
        SetAside, //
    },
    power::{
        exec::ExecWatch,
        machine, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Holds the PMU: takes it over when made, gives it back when dropped.
pub(crate) struct Takeover {
    // Fields are dropped in this order: this driver's PMU must be gone when the other one's comes
    // back.
    _exec: ExecWatch<ResetOnExec>,
    _registration: Registration<Arc<Driver>>,
    _set_aside: Option<SetAside>,
}

impl Takeover {
    /// Takes the PMU over.
    ///
    /// Fails with `ENODEV` on a processor that the driver does not know, with `EBUSY` if the PMU
    /// belongs to another module, with `ENOMEM` and the like. The PMU is left to who had it then.
    pub(crate) fn new(module: &'static ThisModule) -> Result<Self> {
        let pvr = machine::pvr();
        let Some(model) = CpuModel::from_pvr(pvr) else {
            pr_err!("no support for the processor with PVR {pvr:#010x}\n");
            return Err(ENODEV);
        };
        // Do all that can fail before the other driver loses the PMU.
        let cpus = CpuContexts::new()?;
        let emulator = Emulator::identify(&cpus)?;
        let pmi_handler = PmiHandler::new(model, cpus.clone(), emulator);
        let pmi_handler = Arc::new(pmi_handler, GFP_KERNEL)?;
        let attr_groups = sysfs::attr_groups(model)?;
        let driver = Arc::pin_init(Driver::new(model, pmi_handler), GFP_KERNEL)?;
        let on_exec = Arc::new(ResetOnExec::new(driver.clone(), cpus.clone()), GFP_KERNEL)?;
        let exec = ExecWatch::new(on_exec).inspect_err(|e| {
            pr_err!("the kernel cannot tell of new programs ({e:?}): CONFIG_TRACEPOINTS?\n");
        })?;

        let set_aside = Foreign::find_cycles()
            .and_then(|foreign| foreign.map(Foreign::set_aside).transpose())
            .inspect_err(|e| {
                pr_err!("the PMU that counts cycles cannot be taken over ({e:?})\n");
            })?;
        let capabilities = if model.isa() >= Isa::V300 {
            Capability::ExtendedRegs.into()
        } else {
            Capabilities::empty()
        };
        let registration =
            Registration::new_core(module, c"cpu", capabilities, attr_groups, cpus, Ok(driver))
                .inspect_err(|e| pr_err!("cannot register the PMU ({e:?})\n"))?;

        let name = model.name();
        match &set_aside {
            Some(other) => {
                let other = other.name();
                pr_info!("{name}: took \"{other}\" over; 6 counters, sampling, branches, EBB\n");
            }
            None => pr_info!("{name}: no PMU to take over; 6 counters, sampling, branches, EBB\n"),
        }
        Ok(Self {
            _exec: exec,
            _registration: registration,
            _set_aside: set_aside,
        })
    }
}
