// SPDX-License-Identifier: GPL-2.0

//! Extended registers: those of the PMU that a sample may hold beside the interrupted ones.
//!
//! The kernel's perf code reads SPRs when it writes the sample, and takes the counters from where
//! [`SampledCounters`] puts them.
//!
//! C header:
//! [`arch/powerpc/include/uapi/asm/perf_regs.h`](srctree/arch/powerpc/include/uapi/asm/perf_regs.h)

use super::{
    bindings,
    machine,
    pmu::{
        LocalPmu,
        COUNTERS, //
    },
    regs::{
        Sdar,
        Siar, //
    }, //
};
use core::marker::PhantomData;
use kernel::prelude::*;

/// PMC1 to PMC6 in a mask of registers (`PERF_REG_POWERPC_PMC1` and following).
const PMC_MASK: u64 = 0x3f << 51;
/// SDAR and SIAR in a mask of registers (`PERF_REG_POWERPC_SDAR` and following).
const ADDRESS_MASK: u64 = 0b11 << 57;

/// Whether a mask of registers has a counter.
pub(crate) fn has_counters(mask: u64) -> bool {
    mask & PMC_MASK != 0
}

/// Whether a mask of registers has one that holds an address.
pub(crate) fn has_addresses(mask: u64) -> bool {
    mask & ADDRESS_MASK != 0
}

/// The counters that samples of this CPU show while the value lives. They show 0 otherwise.
pub(crate) struct SampledCounters<'a>(PhantomData<&'a LocalPmu>);

impl<'a> SampledCounters<'a> {
    /// Shows `counters`. To be called, and dropped, in a PMI.
    pub(crate) fn show(_local: &'a LocalPmu, counters: &[u32; COUNTERS]) -> Self {
        set_counters(counters);
        Self(PhantomData)
    }
}

impl Drop for SampledCounters<'_> {
    fn drop(&mut self) {
        set_counters(&[0; COUNTERS]);
    }
}

/// Sets what samples of this CPU show for the counters.
fn set_counters(counters: &[u32; COUNTERS]) {
    for (index, &counter) in (0..).zip(counters) {
        // SAFETY: The kernel has that many counters. The callers stay on this CPU.
        // CAST: A counter has 32 bits.
        unsafe { bindings::set_pmcs_ext_regs(index, counter as c_ulong) };
    }
}

/// Hides kernel addresses in SIAR and SDAR while the value lives. The PMU must be frozen.
pub(crate) struct HiddenAddresses<'a> {
    siar: u64,
    sdar: u64,
    local: PhantomData<&'a LocalPmu>,
}

impl<'a> HiddenAddresses<'a> {
    /// Saves both registers, and sets those to 0 that hold a kernel address.
    pub(crate) fn hide(_local: &'a LocalPmu) -> Self {
        let saved = Self {
            siar: Siar::read(),
            sdar: Sdar::read(),
            local: PhantomData,
        };
        if machine::is_kernel_address(saved.siar) {
            Siar::write(0);
        }
        if machine::is_kernel_address(saved.sdar) {
            Sdar::write(0);
        }
        saved
    }
}

impl Drop for HiddenAddresses<'_> {
    fn drop(&mut self) {
        Siar::write(self.siar);
        Sdar::write(self.sdar);
    }
}
