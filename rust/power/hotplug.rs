// SPDX-License-Identifier: GPL-2.0

//! Which CPUs came up, be it again: their PMUs have to be turned on.
//!
//! The callback runs on another CPU while the one that it is about is still dead, so it sets a flag.
//!
//! C header: [`include/linux/cpuhotplug.h`](srctree/include/linux/cpuhotplug.h)

use kernel::{
    bindings,
    cpu::CpuId,
    error::to_result,
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

// CAST: The largest number of CPUs a kernel is built for.
const CPUS: usize = bindings::NR_CPUS as usize;

/// CPUs that came up since [`Hotplug::came_up`] last asked.
static CAME_UP: [Atomic<bool>; CPUS] = [const { Atomic::new(false) }; CPUS];

/// Called by the hotplug core before `cpu` comes up.
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
/// `state` is the hotplug core's name for `prepare`.
pub(crate) struct Hotplug {
    state: bindings::cpuhp_state,
}

impl Hotplug {
    /// Starts watching. Fails with `ENOSPC` when the hotplug core has no place left.
    pub(crate) fn watch() -> Result<Self> {
        // SAFETY: `prepare` may be called from now on until `drop`.
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
        // INVARIANT: It is positive, as always for a dynamic state.
        Ok(Self { state })
    }

    /// Whether `cpu`, the current one, came up since this was last asked of it.
    pub(crate) fn came_up(&self, cpu: CpuId) -> bool {
        // CAST: A CPU's number fits any integer.
        match CAME_UP.get(cpu.as_u32() as usize) {
            // It was set before this CPU ran its first instruction, and nobody else clears it.
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
        // SAFETY: Set up in `watch`, by the type invariants. Waits until `prepare` runs no more.
        unsafe { bindings::__cpuhp_remove_state(self.state, false) };
    }
}
