// SPDX-License-Identifier: GPL-2.0

//! CPUs. A test runs all of them on one thread, one at a time.

use std::cell::Cell;

/// Number of possible CPUs.
pub const CPUS: u32 = 4;

thread_local! {
    static CURRENT: Cell<u32> = const { Cell::new(0) };
}

/// Makes the thread run as another CPU.
pub fn set_current(cpu: u32) {
    assert!(cpu < CPUS);
    CURRENT.set(cpu);
}

/// A CPU's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuId(u32);

impl CpuId {
    /// Returns the current CPU.
    pub fn current() -> Self {
        Self(CURRENT.get())
    }

    /// Returns the number.
    pub fn as_u32(self) -> u32 {
        self.0
    }
}

/// Returns the number of possible CPUs.
pub fn nr_cpu_ids() -> u32 {
    CPUS
}
