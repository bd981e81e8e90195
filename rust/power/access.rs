// SPDX-License-Identifier: GPL-2.0

//! Denies programs access to the PMU's registers of CPUs on which no event has been.
//!
//! Before ISA v3.1 MMCR0\[PMCC\] is 0b00 when a CPU comes up, so programs could read what other
//! programs, or a guest, left in the registers. The driver closes a PMU (denies access) whenever it
//! stops or starts it; this file closes those that the driver has not used yet. Only the `full`
//! mode uses it.
//!
//! C header: [`include/linux/cpuhotplug.h`](srctree/include/linux/cpuhotplug.h)

use super::{
    callback::CallbackPermit,
    pmu::{
        LocalPmu,
        RegisterSet, //
    },
    regs::Mmcr0, //
};
use core::sync::atomic::{
    AtomicBool,
    Ordering::Relaxed, //
};
use kernel::{
    bindings,
    error::to_result,
    interrupt::local_interrupt_disable,
    prelude::*, //
};

/// Closes the PMU of a CPU. The hotplug core calls this on a CPU that came up, and
/// [`ClosedPmus::new`] makes it call this on all CPUs.
///
/// # Safety
///
/// None. The type of the hotplug core's callbacks requires `unsafe`.
unsafe extern "C" fn close(_cpu: c_uint) -> c_int {
    let _off = local_interrupt_disable();
    // SAFETY: Interrupts are off while `_off` lives.
    let local = unsafe { LocalPmu::new() };
    local.make_usable();
    let mmcr0 = Mmcr0::read();
    // The driver never leaves a PMU open: it has not used this PMU yet, and no PMI can occur before
    // this. But the hypervisor may have preserved the registers of another driver's EBB group.
    if !mmcr0.is_closed() {
        mmcr0.frozen().write();
    }
    0
}

/// Set while the module is unloaded and the driver has no events any more: [`reopen`] then reopens
/// each CPU's PMU.
static REOPENING: AtomicBool = AtomicBool::new(false);

/// Whether the PMU has the registers of ISA v3.1, for [`reopen`].
static IS_V31: AtomicBool = AtomicBool::new(false);

/// Reopens the PMU of a CPU if [`REOPENING`] is set. The hotplug core calls this on all CPUs when
/// [`ClosedPmus`] is dropped, and on a CPU that goes offline, whose PMU stays closed. [`close`] has
/// made the registers usable there.
///
/// # Safety
///
/// None. The type of the hotplug core's callbacks requires `unsafe`.
unsafe extern "C" fn reopen(_cpu: c_uint) -> c_int {
    if !REOPENING.load(Relaxed) {
        return 0;
    }
    let _off = local_interrupt_disable();
    // KVM may have left a guest's PMU running.
    if Mmcr0::read().fc() == 1 {
        let set = if IS_V31.load(Relaxed) {
            RegisterSet::V31
        } else {
            RegisterSet::V207
        };
        // SAFETY: Interrupts are off while `_off` lives.
        unsafe { LocalPmu::new() }.give_back(set);
    }
    0
}

/// Keeps the PMU's registers of all CPUs closed to programs while it lives, except for those that
/// the driver opens.
///
/// # Invariants
///
/// `state` is the hotplug core's number for `close` and `reopen`.
pub(crate) struct ClosedPmus {
    state: bindings::cpuhp_state,
}

impl ClosedPmus {
    /// Closes the PMUs, which have the registers of `set`. No code may use a PMU until this
    /// returns. Fails with `ENOSPC` if the hotplug core has no free state.
    pub(crate) fn new(_permit: CallbackPermit, set: RegisterSet) -> Result<Self> {
        IS_V31.store(set == RegisterSet::V31, Relaxed);
        // SAFETY: The kernel may call `close` and `reopen` from now on until `drop`, and the
        // permit's invariants guarantee that `drop` runs before the module is unloaded.
        let state = unsafe {
            bindings::__cpuhp_setup_state(
                bindings::cpuhp_state_CPUHP_AP_ONLINE_DYN,
                c"perf/ebb_pmu:online".as_char_ptr(),
                true,
                Some(close),
                Some(reopen),
                false,
            )
        };
        to_result(state)?;
        // INVARIANT: For a dynamic state, the function returns its number, which is positive.
        Ok(Self { state })
    }
}

impl Drop for ClosedPmus {
    fn drop(&mut self) {
        REOPENING.store(true, Relaxed);
        // SAFETY: By the type invariants `new` set up the state.
        unsafe { bindings::__cpuhp_remove_state(self.state, true) };
        REOPENING.store(false, Relaxed);
    }
}
