// SPDX-License-Identifier: GPL-2.0

//! The driver's own code on the model: `rust/` is included here unchanged. These files replace the
//! kernel, the processor and the instructions that access its registers:
//!
//! | file | replaces |
//! |---|---|
//! | `perf.rs`, `power.rs` | the lists of modules of `rust/perf` and `rust/power` |
//! | `machine.rs` | CPUs, each with a facility, and the kernel's masking and handling of interrupts |
//! | `power/spr.rs` | the instructions that `rust/power` executes |
//! | `power/bindings.rs` | the kernel's functions, and those of `shim.c`, for `rust/power` |
//! | `perf_bindings.rs` | perf's structures and constants |
//! | `perf_core.rs` | perf core: contexts, groups, and the order of its calls |
//!
//! `tools/model/kernel` replaces the kernel crate. The tests:
//!
//! | file | subject |
//! |---|---|
//! | `history.rs` | random histories of tasks and events |
//! | `taken_away.rs` | a running PMU that `rust/power` initializes |

extern crate isa207;
extern crate kernel as pin_init;

#[path = "../../../../rust/driver/mod.rs"]
#[allow(unused, unreachable_pub, missing_docs, unexpected_cfgs, clippy::all)]
mod driver;
#[allow(unused, unreachable_pub, missing_docs, unexpected_cfgs, clippy::all)]
mod perf;
#[allow(unused, unreachable_pub, missing_docs, unexpected_cfgs, clippy::all)]
mod power;

mod perf_bindings;

mod history;
mod machine;
mod masked_pmis;
mod perf_core;
mod taken_away;
