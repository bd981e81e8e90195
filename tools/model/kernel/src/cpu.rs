// SPDX-License-Identifier: GPL-2.0

//! CPUs. A thread of a test plays all of them, one at a time.

use std::cell::Cell;

/// The CPUs that there can ever be.
pub const CPUS: u32 = 4;

thread_local! {
    static CURRENT: Cell<u32> = const { Cell::new(0) };
}

/// Has the thread be another CPU.
pub fn set_current(cpu: u32) {
    assert!(cpu < CPUS);
    CURRENT.set(cpu);
}

/// A CPU's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuId(u32);

impl CpuId {
    /// The CPU that this runs on.
    pub fn current() -> Self {
        Self(CURRENT.get())
    }

    /// The number.
    pub fn as_u32(self) -> u32 {
        self.0
    }
}

/// The CPUs that there can ever be.
pub fn nr_cpu_ids() -> u32 {
    CPUS
}
