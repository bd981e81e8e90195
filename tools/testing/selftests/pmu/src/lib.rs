// SPDX-License-Identifier: GPL-2.0
//! What the selftests of regular counting share: opening and reading perf
//! events, work of a known number of instructions, facts about the machine,
//! child processes in step with the test, the ring buffer and its samples, and
//! where the module is to differ from the built-in driver.
//!
//! Each program in `src/bin/` tests one behaviour. They pass under any correct
//! driver of the core PMU; `run_pmu_selftests` runs them all.

pub mod attr;
pub mod branch;
pub mod branching;
pub mod event;
pub mod fields;
pub mod kernel_work;
pub mod known;
pub mod known_samples;
pub mod machine;
pub mod process;
pub mod regs;
pub mod ring;
pub mod sample;
pub mod stricter;
pub mod work;
