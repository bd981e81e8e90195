// SPDX-License-Identifier: GPL-2.0

//! Records which CPUs came up, for the first time or again, because their PMUs must be turned on.
//!
//! The hotplug core calls back on another CPU, before the new CPU runs. So a flag passes the
//! information to the new CPU.
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

// CAST: `NR_CPUS` is the largest number of CPUs of this kernel, and `usize` has 64 bits.
const CPUS: usize = bindings::NR_CPUS as usize;

/// CPUs that came up since they last called [`Hotplug::test_and_clear_came_up`]. These are not the
/// kernel crate's atomics, because those are function calls.
static CAME_UP: [AtomicBool; CPUS] = [const { AtomicBool::new(false) }; CPUS];

/// Records that `cpu` comes up. The hotplug core calls this before the CPU runs.
///
/// # Safety
///
/// None: any number is valid. The type of the hotplug core's callbacks requires `unsafe`.
unsafe extern "C" fn prepare(cpu: c_uint) -> c_int {
    // CAST: `usize` has 64 bits here, so a `c_uint` fits.
    if let Some(came_up) = CAME_UP.get(cpu as usize) {
        came_up.store(true, Relaxed);
    }
    0
}

/// Records which CPUs come up while it lives.
///
/// # Invariants
///
/// `state` is the hotplug core's number for `prepare`.
pub(crate) struct Hotplug {
    state: bindings::cpuhp_state,
}

impl Hotplug {
    /// Starts recording. Fails with `ENOSPC` if the hotplug core has no free state.
    pub(crate) fn watch(_permit: CallbackPermit) -> Result<Self> {
        // No PMU is turned on yet.
        for came_up in &CAME_UP {
            came_up.store(true, Relaxed);
        }
        // SAFETY: The kernel may call `prepare` from now on until `drop`, and the permit's
        // invariants guarantee that `drop` runs before the module is unloaded.
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
        // INVARIANT: For a dynamic state, the function returns its number, which is positive.
        Ok(Self { state })
    }

    /// Returns whether `cpu`, the current CPU, came up since its last call of this function, or
    /// never called it.
    pub(crate) fn test_and_clear_came_up(&self, cpu: CpuId) -> bool {
        // CAST: `usize` has 64 bits here, so a `u32` fits.
        match CAME_UP.get(cpu.as_u32() as usize) {
            // The flag was set before this CPU ran its first instruction, and only this CPU clears
            // it.
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
        // SAFETY: By the type invariants `watch` set up the state. The function waits until
        // `prepare` is not running.
        unsafe { bindings::__cpuhp_remove_state(self.state, false) };
    }
}
