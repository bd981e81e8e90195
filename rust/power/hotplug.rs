// SPDX-License-Identifier: GPL-2.0

//! Which CPUs came up, for the first time or again: their PMUs have to be turned on.
//!
//! The hotplug core calls back on another CPU, before the one that is to come up runs. So a flag
//! tells the latter.
//!
//! C header: [`include/linux/cpuhotplug.h`](srctree/include/linux/cpuhotplug.h)

use super::callback::CallbackPermit;
use core::sync::atomic::{
    AtomicBool,
    Ordering::Relaxed, //
};
use kernel::{
    bindings,
    cpu::CpuId,
    error::to_result,
    prelude::*, //
};

// CAST: The largest number of CPUs a kernel is built for.
const CPUS: usize = bindings::NR_CPUS as usize;

/// CPUs that came up since [`Hotplug::test_and_clear_came_up`] was last called there.
/// The kernel crate's atomics are function calls.
static CAME_UP: [AtomicBool; CPUS] = [const { AtomicBool::new(false) }; CPUS];

/// Called by the hotplug core before `cpu` comes up.
///
/// # Safety
///
/// None: any number does. The type of the hotplug core's callbacks asks for `unsafe`.
unsafe extern "C" fn prepare(cpu: c_uint) -> c_int {
    // CAST: A CPU's number fits any integer.
    if let Some(came_up) = CAME_UP.get(cpu as usize) {
        came_up.store(true, Relaxed);
    }
    0
}

/// Watches CPUs come up while it lives.
///
/// # Invariants
///
/// `state` is the hotplug core's number for `prepare`.
pub(crate) struct Hotplug {
    state: bindings::cpuhp_state,
}

impl Hotplug {
    /// Starts watching. Fails with `ENOSPC` if the hotplug core has no state left.
    pub(crate) fn watch(_permit: CallbackPermit) -> Result<Self> {
        // No PMU has been turned on yet.
        for came_up in &CAME_UP {
            came_up.store(true, Relaxed);
        }
        // SAFETY: `prepare` may be called from now on until `drop`, which comes, by the permit's
        // invariants.
        let state = unsafe {
            bindings::__cpuhp_setup_state(
                bindings::cpuhp_state_CPUHP_BP_PREPARE_DYN,
                c"perf/ebb_pmu:prepare".as_char_ptr(),
                false,
                Some(prepare),
                None,
                false,
            )
        };
        to_result(state)?;
        // INVARIANT: A dynamic state's number is positive, and returned.
        Ok(Self { state })
    }

    /// Returns whether `cpu`, the current one, came up since this was last called there, or has not
    /// called it yet.
    pub(crate) fn test_and_clear_came_up(&self, cpu: CpuId) -> bool {
        // CAST: A CPU's number fits any integer.
        match CAME_UP.get(cpu.as_u32() as usize) {
            // Set before this CPU ran its first instruction; only this CPU clears it.
            Some(came_up) if came_up.load(Relaxed) => {
                came_up.store(false, Relaxed);
                true
            }
            _ => false,
        }
    }
}

impl Drop for Hotplug {
    fn drop(&mut self) {
        // SAFETY: Set up by the type invariants. This waits until `prepare` is not running.
        unsafe { bindings::__cpuhp_remove_state(self.state, false) };
    }
}
