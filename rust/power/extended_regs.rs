// SPDX-License-Identifier: GPL-2.0

//! Extended registers: PMU registers that a sample may contain in addition to the interrupted
//! registers.
//!
//! The kernel's perf code reads SPRs when it writes the sample, and takes the counters from the
//! variables that [`SampleCounters`] sets.
//!
//! C header:
//! [`arch/powerpc/include/uapi/asm/perf_regs.h`](srctree/arch/powerpc/include/uapi/asm/perf_regs.h)

use super::{
    bindings,
    machine,
    pmu::{
        self,
        LocalPmu,
        COUNTERS, //
    },
    regs::{
        Mmcra,
        Sdar,
        Siar,
        Sier2,
        Sier3, //
    }, //
};
use core::marker::PhantomData;
use kernel::prelude::*;

/// PMC1 to PMC6 in a mask of registers (`PERF_REG_POWERPC_PMC1` and following).
const PMC_MASK: u64 = 0x3f << 51;
/// The registers that describe the sampled instruction in a mask of registers: SDAR and SIAR
/// (`PERF_REG_POWERPC_SDAR` and following), SIER2 and SIER3 (`PERF_REG_POWERPC_SIER2` and
/// following).
const INSTRUCTION_MASK: u64 = 0b11 << 57 | 0b11 << 49;

/// Returns whether a mask of registers contains a counter.
pub(crate) fn has_counters(mask: u64) -> bool {
    mask & PMC_MASK != 0
}

/// Returns whether a mask of registers contains one that describes the sampled instruction.
pub(crate) fn has_instruction(mask: u64) -> bool {
    mask & INSTRUCTION_MASK != 0
}

/// The counters that samples of this CPU show while the value lives. Samples show 0 otherwise.
pub(crate) struct SampleCounters<'a>(PhantomData<&'a LocalPmu<'a>>);

impl<'a> SampleCounters<'a> {
    /// Shows `counters`. Must be called, and the result dropped, in a PMI.
    pub(crate) fn show(_local: &'a LocalPmu<'a>, counters: &[u32; COUNTERS]) -> Self {
        set_counters(counters);
        Self(PhantomData)
    }
}

impl Drop for SampleCounters<'_> {
    fn drop(&mut self) {
        set_counters(&[0; COUNTERS]);
    }
}

/// Sets the values that samples of this CPU show for the counters.
fn set_counters(counters: &[u32; COUNTERS]) {
    for (index, &counter) in (0..).zip(counters) {
        // SAFETY: The kernel has this many counters. The callers have interrupts off, so the CPU is
        // the same.
        // CAST: A counter has 32 bits.
        unsafe { bindings::set_pmcs_ext_regs(index, counter as c_ulong) };
    }
}

/// Hides the PMU's data about the kernel's instructions while the value lives. The PMU must be
/// frozen.
pub(crate) struct HiddenInstruction<'a> {
    mmcra: Mmcra,
    siar: u64,
    sdar: u64,
    /// SIER2 and SIER3, if they are hidden.
    sier2_sier3: Option<(u64, u64)>,
    local: PhantomData<&'a LocalPmu<'a>>,
}

impl<'a> HiddenInstruction<'a> {
    /// Hides kernel addresses in SIAR and SDAR. `mmcra` must be the value of MMCRA.
    pub(crate) fn hide_addresses(_local: &'a LocalPmu<'a>, mmcra: Mmcra) -> Self {
        let saved = Self::save(mmcra, false);
        if machine::is_kernel_address(saved.siar) {
            Siar::write(0);
        }
        if machine::is_kernel_address(saved.sdar) {
            Sdar::write(0);
        }
        saved
    }

    /// Hides SIAR and SDAR, and on ISA v3.1 (`is_v31`) SIER2 and SIER3, because the instruction is
    /// the kernel's. `mmcra` must be the value of MMCRA.
    pub(crate) fn hide_all(_local: &'a LocalPmu<'a>, mmcra: Mmcra, is_v31: bool) -> Self {
        let saved = Self::save(mmcra, is_v31);
        Siar::write(0);
        Sdar::write(0);
        if is_v31 {
            Sier2::write(0);
            Sier3::write(0);
        }
        saved
    }

    /// Saves the registers after stopping hardware from setting SDAR. With MMCRA's SDAR mode it may
    /// set SDAR although the PMU is frozen, and the addresses that perf core accesses until it
    /// reads SDAR are the kernel's.
    fn save(mmcra: Mmcra, is_v31: bool) -> Self {
        if mmcra.sdar_mode() != 0 {
            mmcra.with_const_sdar_mode::<0>().write();
            pmu::synchronize();
        }
        Self {
            mmcra,
            siar: Siar::read(),
            sdar: Sdar::read(),
            sier2_sier3: is_v31.then(|| (Sier2::read(), Sier3::read())),
            local: PhantomData,
        }
    }
}

impl Drop for HiddenInstruction<'_> {
    fn drop(&mut self) {
        Siar::write(self.siar);
        Sdar::write(self.sdar);
        if let Some((sier2, sier3)) = self.sier2_sier3 {
            Sier2::write(sier2);
            Sier3::write(sier3);
        }
        if self.mmcra.sdar_mode() != 0 {
            self.mmcra.write();
        }
    }
}
