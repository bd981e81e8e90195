// SPDX-License-Identifier: GPL-2.0

//! Learning that a CPU comes up, maybe not for the first time: its PMU then has to be turned on.
//!
//! The callback runs on another CPU while this one is still dead, so it only leaves a mark.

use super::bindings;
use core::ffi::{
    c_int,
    c_uint, //
};
use kernel::{
    cpu::CpuId,
    error::to_result,
    prelude::*, //
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

// CAST: The largest number of CPUs a kernel is built for.
const CPUS: usize = kernel::bindings::NR_CPUS as usize;

/// CPUs that came up since [`Hotplug::came_up`] last asked.
static CAME_UP: [Atomic<bool>; CPUS] = [const { Atomic::new(false) }; CPUS];

/// # Safety
///
/// None; unsafe only as the hotplug core's type says so.
unsafe extern "C" fn prepare(cpu: c_uint) -> c_int {
    // CAST: A CPU's number fits any integer.
    if let Some(mark) = CAME_UP.get(cpu as usize) {
        mark.store(true, Relaxed);
    }
    0
}

/// Marks CPUs that come up while it lives.
pub(crate) struct Hotplug {
    state: c_int,
}

impl Hotplug {
    /// Starts marking. Fails with `ENOSPC` when the hotplug core has no place left.
    pub(crate) fn watch() -> Result<Self> {
        // SAFETY: The callback may be called from now on until `drop`.
        let state = unsafe { bindings::ebb_pmu_hotplug_add(Some(prepare)) };
        to_result(state)?;
        Ok(Self { state })
    }

    /// Whether `cpu`, the current one, came up since this was last asked of it.
    pub(crate) fn came_up(&self, cpu: CpuId) -> bool {
        // CAST: A CPU's number fits any integer.
        match CAME_UP.get(cpu.as_u32() as usize) {
            // The mark was set before this CPU ran its first instruction, and nobody else clears it.
            Some(mark) if mark.load(Relaxed) => {
                mark.store(false, Relaxed);
                true
            }
            _ => false,
        }
    }
}

impl Drop for Hotplug {
    fn drop(&mut self) {
        // SAFETY: Added in `watch`; waits until the callback runs no more.
        unsafe { bindings::ebb_pmu_hotplug_remove(self.state) };
    }
}
