// SPDX-License-Identifier: GPL-2.0

//! What programs may do with the PMU's registers of CPUs that no event has been on.
//!
//! Before ISA v3.1 MMCR0\[PMCC\] is 0b00 when a CPU comes up, so programs read what others, or a
//! guest, left in there. The driver closes a PMU whenever it stops or starts it; this closes those
//! that it has not touched yet.
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

/// Called by the hotplug core on a CPU that came up, and on all CPUs by [`ClosedPmus::new`].
///
/// # Safety
///
/// None. The type of the hotplug core's callbacks asks for `unsafe`.
unsafe extern "C" fn close(_cpu: c_uint) -> c_int {
    let _off = local_interrupt_disable();
    // SAFETY: Interrupts are off while `_off` lives.
    let local = unsafe { LocalPmu::new() };
    local.make_usable();
    let mmcr0 = Mmcr0::read();
    // The driver never leaves it open: it has not used this PMU yet, and no PMI comes in between.
    // What the hypervisor kept of another driver's EBB group may be.
    if !mmcr0.is_closed() {
        mmcr0.frozen().write();
    }
    0
}

/// The driver is going, and has no events any more: what is called for each CPU opens it.
static OPENING: AtomicBool = AtomicBool::new(false);

/// The PMU has the registers of ISA v3.1, for [`open`].
static IS_V31: AtomicBool = AtomicBool::new(false);

/// Called by the hotplug core on a CPU that goes, which stays closed, and on all CPUs when
/// [`ClosedPmus`] is dropped. (The kernel writes MMCR0 when one
/// comes up.) [`close`] has made the registers usable there.
///
/// # Safety
///
/// None, as for [`close`].
unsafe extern "C" fn open(_cpu: c_uint) -> c_int {
    if !OPENING.load(Relaxed) {
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

/// Keeps the PMU's registers of all CPUs closed to programs while it lives, but for those that the
/// driver opens.
///
/// # Invariants
///
/// `state` is the hotplug core's number for `close` and `open`.
pub(crate) struct ClosedPmus {
    state: bindings::cpuhp_state,
}

impl ClosedPmus {
    /// Closes them, which have the registers of `set`. Nobody may use a PMU until this returns.
    /// Fails with `ENOSPC` if the hotplug core has no state left.
    pub(crate) fn new(_permit: CallbackPermit, set: RegisterSet) -> Result<Self> {
        IS_V31.store(set == RegisterSet::V31, Relaxed);
        // SAFETY: `close` and `open` may be called from now on until `drop`, which comes, by the
        // permit's invariants.
        let state = unsafe {
            bindings::__cpuhp_setup_state(
                bindings::cpuhp_state_CPUHP_AP_ONLINE_DYN,
                c"perf/ebb_pmu:online".as_char_ptr(),
                true,
                Some(close),
                Some(open),
                false,
            )
        };
        to_result(state)?;
        // INVARIANT: A dynamic state's number is positive, and returned.
        Ok(Self { state })
    }
}

impl Drop for ClosedPmus {
    fn drop(&mut self) {
        OPENING.store(true, Relaxed);
        // SAFETY: Set up by the type invariants.
        unsafe { bindings::__cpuhp_remove_state(self.state, true) };
        OPENING.store(false, Relaxed);
    }
}
