// SPDX-License-Identifier: GPL-2.0
//! Counts instructions by the clock: under `-icount shift=0` each takes 1 ns.
//!
//! PMC5 would do as well, but needs a driver that counts, which isa207 is a part of, and QEMU
//! counts by blocks.

use std::hint::black_box;

use isa207::CpuModel;
use isa207::Machine;
use isa207::Request;
use pmu_selftests::machine::TIME_BASE_HZ;
use pmu_selftests::machine::time_base;

/// Instructions that [`CpuModel::solve`] takes for the group, the measurement's own few included;
/// exact to a tick of the time base, which is two.
///
/// The least of some calls: a timer interrupt within one makes it longer.
pub fn of(model: &CpuModel, group: &[Request]) -> u64 {
    let calls = (0..4).map(|_| {
        let start = time_base();
        let answer = model.solve(black_box(group), Machine::default());
        let ticks = time_base() - start;
        // After the time is taken; it keeps the compiler from leaving out the call.
        let _ = black_box(answer);
        ticks
    });
    let ticks = calls.min().unwrap_or(0);
    (ticks * 1_000_000_000).div_ceil(TIME_BASE_HZ)
}
