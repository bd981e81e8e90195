// SPDX-License-Identifier: GPL-2.0

//! What perf shows of the PMU's registers in a sample, the extended registers: it reads the SPRs
//! when it writes the sample, and takes the counters from where [`SampledCounters`] puts them.
//!
//! C header: [`arch/powerpc/include/uapi/asm/perf_regs.h`](srctree/arch/powerpc/include/uapi/asm/perf_regs.h)

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

/// The numbers of PMC1 to PMC6.
const COUNTER_BITS: u64 = 0x3f << 51;
/// The numbers of SDAR and SIAR.
const ADDRESS_BITS: u64 = 0b11 << 57;

/// Whether a mask of registers has a counter.
pub(crate) fn has_counters(registers: u64) -> bool {
    registers & COUNTER_BITS != 0
}

/// Whether a mask of registers has one that holds an address.
pub(crate) fn has_addresses(registers: u64) -> bool {
    registers & ADDRESS_BITS != 0
}

/// The counters that samples of this CPU show while it lives; 0 otherwise.
pub(crate) struct SampledCounters<'a>(PhantomData<&'a LocalPmu>);

impl<'a> SampledCounters<'a> {
    /// Shows `counters`. To be called, and dropped, in the PMU's interrupt.
    pub(crate) fn show(_local: &'a LocalPmu, counters: &[u32; COUNTERS]) -> Self {
        for (index, &counter) in counters.iter().enumerate() {
            set(index, counter);
        }
        Self(PhantomData)
    }
}

impl Drop for SampledCounters<'_> {
    fn drop(&mut self) {
        for index in 0..COUNTERS {
            set(index, 0);
        }
    }
}

fn set(index: usize, counter: u32) {
    // SAFETY: There are that many counters; the callers stay on this CPU.
    // CAST: At most 5; a counter has 32 bits.
    unsafe { bindings::set_pmcs_ext_regs(index as c_int, counter as usize) };
}

/// Hides what the address registers hold of the kernel as long as it lives. The PMU must be frozen.
pub(crate) struct HiddenAddresses<'a> {
    siar: u64,
    sdar: u64,
    local: PhantomData<&'a LocalPmu>,
}

impl<'a> HiddenAddresses<'a> {
    /// Hides them.
    pub(crate) fn hide(_local: &'a LocalPmu) -> Self {
        let hidden = Self {
            siar: Siar::read(),
            sdar: Sdar::read(),
            local: PhantomData,
        };
        if machine::is_kernel_address(hidden.siar) {
            Siar::write(0);
        }
        if machine::is_kernel_address(hidden.sdar) {
            Sdar::write(0);
        }
        hidden
    }
}

impl Drop for HiddenAddresses<'_> {
    fn drop(&mut self) {
        Siar::write(self.siar);
        Sdar::write(self.sdar);
    }
}
