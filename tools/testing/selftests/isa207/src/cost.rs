// SPDX-License-Identifier: GPL-2.0
//! Counts instructions with the clock: under `-icount shift=0` each one takes 1 ns.
//!
//! PMC5 could count them, too. But that needs a driver that counts, and isa207 is a part of the
//! driver; and QEMU counts per block of instructions.

use std::hint::black_box;

use isa207::CpuModel;
use isa207::Platform;
use isa207::Request;
use pmu_selftests::machine::TIME_BASE_HZ;
use pmu_selftests::machine::time_base;

/// Returns the number of instructions of [`CpuModel::solve`] for the group. It includes the few
/// instructions of the measurement, and is exact to a tick of the time base, which is two
/// instructions.
///
/// It is the least of several calls, because a timer interrupt makes a call longer.
pub fn of(model: &CpuModel, group: &[Request]) -> u64 {
    let calls = (0..4).map(|_| {
        let start = time_base();
        let answer = model.solve(black_box(group), Platform::default());
        let ticks = time_base() - start;
        // This comes after the end of the measurement. It keeps the compiler from removing the
        // call.
        let _ = black_box(answer);
        ticks
    });
    let ticks = calls.min().unwrap_or(0);
    (ticks * 1_000_000_000).div_ceil(TIME_BASE_HZ)
}
