// SPDX-License-Identifier: GPL-2.0

//! The processor, its state and its clock, and which addresses are the kernel's.

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

/// The time base, for reading.
const TB: u32 = 268;

/// The processor version of POWER8E.
const PVR_POWER8E: u32 = 0x004b;

/// MSR\[HV\] (IBM bit 3): hypervisor state.
const MSR_HV: u64 = 1 << 60;

/// MSR\[EE\] (IBM bit 48): external interrupts enabled.
const MSR_EE: u64 = 1 << 15;

/// Start of the kernel's half of the effective address space.
pub(crate) const KERNEL_START: u64 = 0xc000_0000_0000_0000;

/// The processor version register (PVR): the version in the upper half, the revision in the lower.
pub(crate) fn pvr() -> u32 {
    // CAST: The register has 32 bits.
    spr::read::<PVR>() as u32
}

/// Whether the CPUs implement Power ISA v3.0.
pub(crate) fn implements_v300() -> bool {
    // SAFETY: Reads what the kernel found when it booted.
    unsafe { bindings::ebb_pmu_cpu_has_arch_300() }
}

/// Whether the CPUs implement Power ISA v3.1, or a hypervisor lets the kernel know of no older one:
/// which registers their PMU has is another question, see [`RegisterSet`].
///
/// [`RegisterSet`]: super::pmu::RegisterSet
pub(crate) fn implements_v31() -> bool {
    // SAFETY: Reads what the kernel found when it booted.
    unsafe { bindings::ebb_pmu_cpu_has_arch_31() }
}

/// Whether the hardware takes interrupts (MSR\[EE\]). The kernel may still mask them in software.
pub(crate) fn hard_irqs_enabled() -> bool {
    spr::read_msr() & MSR_EE != 0
}

/// Whether the kernel runs in hypervisor state (bare metal) rather than in a partition.
pub(crate) fn is_hypervisor() -> bool {
    spr::read_msr() & MSR_HV != 0
}

/// Whether the CPUs have the BHRB's instructions. All do whose model the driver knows.
/// The kernel crate's atomics are function calls.
static BHRB: AtomicBool = AtomicBool::new(true);

/// Keeps the driver from the BHRB, on a machine without its instructions.
pub(crate) fn disable_bhrb() {
    BHRB.store(false, Relaxed);
}

/// Whether there is a BHRB.
#[inline]
pub(crate) fn has_bhrb() -> bool {
    BHRB.load(Relaxed)
}

/// Whether other partitions may run on this one's CPUs, unless the user excludes it by the
/// parameter `dedicated_cpus`.
static SHARED: AtomicBool = AtomicBool::new(true);

/// Says that no other partition runs on this one's CPUs, whatever `yield_count` says.
pub(crate) fn set_not_shared() {
    SHARED.store(false, Relaxed);
}

/// Returns how often the hypervisor has taken this CPU away and given it back (`yield_count` of
/// the lppaca), modulo 2^32. The number never changes on bare metal, where the kernel itself is
/// the hypervisor: what runs in a guest of its own is of the task that entered it. It is 0 where
/// no other partition runs on this one's CPUs.
///
/// The shared-processor bit of the lppaca (`lppaca_shared_proc()`) does not decide that. KVM sets
/// it for every guest, whatever its CPUs are pinned to (`init_vpa()` in
/// `arch/powerpc/kvm/book3s_hv.c`). Where the bit is clear, the partition still lends its idle
/// CPUs to others (`donate_dedicated_cpu`, set by `dedicated_cede_loop()` in
/// `drivers/cpuidle/cpuidle-pseries.c`). So the user decides.
#[inline]
pub(crate) fn dispatches() -> u32 {
    if !SHARED.load(Relaxed) || parameters::dedicated_cpus() {
        return 0;
    }
    spr::yield_count()
}

/// Whether writing MMCR0 with PMAO set raises no alert, as it should: an erratum of POWER8E
/// (`CPU_FTR_PMAO_BUG` in the kernel).
pub(crate) fn has_pmao_bug() -> bool {
    pvr() >> 16 == PVR_POWER8E
}

/// Whether an effective address is the kernel's.
#[inline]
pub(crate) fn is_kernel_address(address: u64) -> bool {
    address >= KERNEL_START
}

/// The time base, in ticks. It is the same on all CPUs.
#[inline]
pub(crate) fn time_base() -> u64 {
    spr::read::<TB>()
}

/// Ticks of the time base in a second: since POWER6 on every processor of IBM's, and in emulators.
/// Of another the times that rest on it are wrong by as much, which only limit the rate of samples.
pub(crate) const TICKS_PER_SECOND: u64 = 512_000_000;

/// So many ticks of the time base in nanoseconds: up to 9 years.
#[inline]
pub(crate) const fn ticks_to_ns(ticks: u64) -> u64 {
    // Both divided by what they have in common.
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
        // A hypervisor may take the CPU away between two of these, but hardly for so long.
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
        // The hypervisor counts when it takes the CPU away, and when it gives it back.
        assert!(counts.iter().all(|count| count % 2 == 0));
        // Unless all of them are of another CPU than the one before.
        let mut pairs = counts.windows(2);
        let grows = |pair: &[u32]| (1..1 << 16).contains(&pair[1].wrapping_sub(pair[0]));
        assert!(pairs.any(grows));
    }
}
