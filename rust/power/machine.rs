// SPDX-License-Identifier: GPL-2.0

//! The processor, its state and its clock, and the range of the kernel's addresses.

use super::{
    bindings,
    parameters,
    spr, //
};
use core::sync::atomic::{
    AtomicBool,
    Ordering::Relaxed, //
};

const PVR: u32 = 287;

/// The SPR number of the time base, for reading.
const TB: u32 = 268;

/// The processor version of POWER8E.
const PVR_POWER8E: u32 = 0x004b;

/// MSR\[HV\] (IBM bit 3): hypervisor state.
const MSR_HV: u64 = 1 << 60;

/// MSR\[EE\] (IBM bit 48): external interrupts enabled.
const MSR_EE: u64 = 1 << 15;

/// Start of the kernel's half of the effective address space.
pub(crate) const KERNEL_START: u64 = 0xc000_0000_0000_0000;

/// Returns the processor version register (PVR): the version in the upper half, the revision in the
/// lower.
pub(crate) fn pvr() -> u32 {
    // CAST: The register has 32 bits.
    spr::read::<PVR>() as u32
}

/// Returns whether the CPUs implement Power ISA v3.0.
pub(crate) fn implements_v300() -> bool {
    // SAFETY: The function reads features that the kernel determined when it booted.
    unsafe { bindings::ebb_pmu_cpu_has_arch_300() }
}

/// Returns whether the CPUs implement Power ISA v3.1, by the features that the hypervisor allows
/// the kernel. The registers of their PMU do not depend on that, see [`RegisterSet`].
///
/// [`RegisterSet`]: super::pmu::RegisterSet
pub(crate) fn implements_v31() -> bool {
    // SAFETY: The function reads features that the kernel determined when it booted.
    unsafe { bindings::ebb_pmu_cpu_has_arch_31() }
}

/// Returns whether the hardware takes interrupts (MSR\[EE\]). The kernel may still mask them in
/// software.
pub(crate) fn hard_irqs_enabled() -> bool {
    spr::read_msr() & MSR_EE != 0
}

/// Returns whether the kernel runs in hypervisor state (bare metal) and not in a partition.
pub(crate) fn is_hypervisor() -> bool {
    spr::read_msr() & MSR_HV != 0
}

/// Whether the CPUs have the BHRB's instructions. All processors that have a model of their own do.
/// This is not the kernel crate's atomic, because that is a function call.
static BHRB: AtomicBool = AtomicBool::new(true);

/// Turns the use of the BHRB off, on a machine without its instructions.
pub(crate) fn disable_bhrb() {
    BHRB.store(false, Relaxed);
}

/// Returns whether there is a BHRB.
#[inline]
pub(crate) fn has_bhrb() -> bool {
    BHRB.load(Relaxed)
}

/// Whether other partitions may run on this partition's CPUs, unless the user excludes that with
/// the parameter `dedicated_cpus`.
static SHARED: AtomicBool = AtomicBool::new(true);

/// Records that no other partition runs on this partition's CPUs, although `yield_count` changes.
pub(crate) fn set_not_shared() {
    SHARED.store(false, Relaxed);
}

/// Returns how often the hypervisor took this CPU away and gave it back (`yield_count` of the
/// lppaca), modulo 2^32. The number never changes on bare metal, where the kernel itself is the
/// hypervisor: code in a guest of its own belongs to the task that entered the guest. It is 0 if no
/// other partition runs on this partition's CPUs.
///
/// The shared-processor bit of the lppaca (`lppaca_shared_proc()`) is no reliable source. KVM sets
/// it for every guest, even if its CPUs are pinned (`init_vpa()` in
/// `arch/powerpc/kvm/book3s_hv.c`). And if the bit is clear, the partition still lends its idle
/// CPUs to others (`donate_dedicated_cpu`, set by `dedicated_cede_loop()` in
/// `drivers/cpuidle/cpuidle-pseries.c`). So the user decides.
#[inline]
pub(crate) fn dispatches() -> u32 {
    if !SHARED.load(Relaxed) || parameters::dedicated_cpus() {
        return 0;
    }
    spr::yield_count()
}

/// Returns whether the processor has POWER8E's erratum: writing MMCR0 with PMAO set raises no
/// alert, although it should (`CPU_FTR_PMAO_BUG` in the kernel).
pub(crate) fn has_pmao_bug() -> bool {
    pvr() >> 16 == PVR_POWER8E
}

/// Returns whether an effective address is in the kernel's half.
#[inline]
pub(crate) fn is_kernel_address(address: u64) -> bool {
    address >= KERNEL_START
}

/// Returns the time base, in ticks. It is the same on all CPUs.
#[inline]
pub(crate) fn time_base() -> u64 {
    spr::read::<TB>()
}

/// Ticks of the time base per second: correct for every IBM processor since POWER6, and for
/// emulators. On other processors derived times are off by the same factor; they only limit the
/// rate of samples.
pub(crate) const TICKS_PER_SECOND: u64 = 512_000_000;

/// Converts ticks of the time base to nanoseconds. Correct for up to 9 years.
#[inline]
pub(crate) const fn ticks_to_ns(ticks: u64) -> u64 {
    // 10^9 / `TICKS_PER_SECOND`, with both divided by 8,000,000.
    ticks.wrapping_mul(125) / (TICKS_PER_SECOND / 8_000_000)
}

/// KUnit tests (see `Documentation/testing.md`).
#[cfg(EBB_KUNIT)]
#[kernel::macros::kunit_tests(ebb_pmu_machine)]
mod tests {
    use super::*;
    use kernel::{
        interrupt::local_interrupt_disable,
        time::{
            delay::fsleep,
            Delta,
            Instant,
            Monotonic, //
        }, //
    };

    #[test]
    fn the_time_base_runs_as_fast_as_the_kernels_clock() {
        let off = local_interrupt_disable();
        let start = time_base();
        let before = Instant::<Monotonic>::now();
        while time_base().wrapping_sub(start) < TICKS_PER_SECOND / 1000 {}
        let clock = before.elapsed().as_nanos();
        let ns = ticks_to_ns(time_base().wrapping_sub(start)) as i64;
        drop(off);
        // A hypervisor may take the CPU away between two of these reads, but not for that long.
        assert!((clock - clock / 100..clock * 2).contains(&ns));
    }

    #[test]
    fn a_cpu_that_slept_was_dispatched_again() {
        let count_after_sleep = || {
            fsleep(Delta::from_millis(2));
            spr::yield_count()
        };
        let counts: [u32; 10] = core::array::from_fn(|_| count_after_sleep());
        if is_hypervisor() {
            assert_eq!(counts, [0; 10]);
            return;
        }
        // The hypervisor increments the count when it takes the CPU away, and when it gives it
        // back.
        assert!(counts.iter().all(|count| count % 2 == 0));
        // The count grows unless each sleep ended on a different CPU.
        let mut pairs = counts.windows(2);
        let grows = |pair: &[u32]| (1..1 << 16).contains(&pair[1].wrapping_sub(pair[0]));
        assert!(pairs.any(grows));
    }
}
