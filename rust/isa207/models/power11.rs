// SPDX-License-Identifier: GPL-2.0

//! Power11 (Power ISA v3.1): POWER10's PMU under another name.
//!
//! Source: `init_power11_pmu()` in the kernel's `arch/powerpc/perf/power10-pmu.c`.

use super::{
    model::CpuModel,
    power10, //
};

/// Power11.
pub(super) static POWER11: CpuModel = power10::with_name("Power11");
