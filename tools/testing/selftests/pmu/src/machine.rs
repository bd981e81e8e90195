// SPDX-License-Identifier: GPL-2.0
//! Facts about the machine that runs the tests, and the kernel's limit on samples.

use std::arch::asm;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use ktap::Outcome;

use crate::work;

/// The processor family, as far as event codes differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Model {
    /// ISA v2.07.
    Power8,
    /// ISA v3.0.
    Power9,
    /// ISA v3.1; Power11 has the same event codes.
    Power10,
}

/// Returns the model according to the PMU's name, which is that of the processor. The name in
/// /proc/cpuinfo differs when the guest runs in an older processor's compatibility mode.
pub fn model() -> io::Result<Model> {
    let name = fs::read_to_string(PMU_NAME)?.to_uppercase();
    for (part, model) in [
        ("POWER11", Model::Power10),
        ("POWER10", Model::Power10),
        ("POWER9", Model::Power9),
        ("POWER8", Model::Power8),
    ] {
        if name.contains(part) {
            return Ok(model);
        }
    }
    Err(io::Error::other(format!("unknown processor {name}")))
}

/// Returns whether this is QEMU.
pub fn is_emulated() -> io::Result<bool> {
    Ok(fs::read_to_string("/proc/cpuinfo")?.contains("emulated by qemu"))
}

/// Returns whether the module is in its `ebb` mode: the built-in driver keeps the PMU.
pub fn is_pmu_shared() -> bool {
    let mode = fs::read_to_string("/sys/module/ebb_pmu/parameters/mode");
    mode.is_ok_and(|mode| mode.trim() == "ebb")
}

/// Returns whether the kernel runs without a hypervisor below it.
pub fn is_bare_metal() -> io::Result<bool> {
    Ok(fs::read_to_string("/proc/cpuinfo")?.contains("PowerNV"))
}

/// Returns whether this is a debug kernel, which takes several times as many instructions.
pub fn is_debug_kernel() -> bool {
    // Read once, so that a call during a measurement does not add to the counts.
    static FOUND: LazyLock<bool> = LazyLock::new(|| {
        // Only debug kernels have lockdep.
        Path::new("/proc/lockdep").exists()
    });
    *FOUND
}

/// Returns how much the kernel's own work may add to a count: `usually`, and more on a debug
/// kernel.
pub fn kernel_share(usually: u64) -> u64 {
    if is_debug_kernel() {
        4 * usually
    } else {
        usually
    }
}

/// Factor by which samples are rarer on a debug kernel.
const DEBUG_FACTOR: u32 = 10;

/// Returns a sampling period: `usually`, and a longer one on a debug kernel.
///
/// A sample takes a debug kernel some 20,000 instructions, and those around the driver's own part
/// are counted. That holds even for an event that excludes the kernel, on an emulator that ignores
/// the freeze bits of MMCR2. A period shorter than that ends before the interrupted program
/// continues, and so does every following period.
pub fn period(usually: u64) -> u64 {
    usually * u64::from(debug_factor())
}

/// Returns how long to sample: `usually`, and longer on a debug kernel by the factor of [`period`].
pub fn sampling_time(usually: Duration) -> Duration {
    usually * debug_factor()
}

/// Returns how much to do while sampling: `usually`, and more on a debug kernel by the factor of
/// [`period`].
pub fn sampled_work(usually: u64) -> u64 {
    usually * u64::from(debug_factor())
}

fn debug_factor() -> u32 {
    if is_debug_kernel() { DEBUG_FACTOR } else { 1 }
}

/// Returns the time base, in ticks of [`TIME_BASE_HZ`].
pub fn time_base() -> u64 {
    let ticks;
    // SAFETY: The instruction reads the time base, which user mode is allowed to do.
    unsafe { asm!("mftb {}", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

/// Frequency of the time base of every processor since POWER6.
pub const TIME_BASE_HZ: u64 = 512_000_000;

/// Returns whether an emulator derives time from the number of instructions (QEMU's
/// `-icount shift=0`: each instruction takes 1 ns). Counts are then the same in each run, and there
/// are as many cycles as instructions.
///
/// It does not use the PMU: it measures the time of a known number of instructions.
pub fn instructions_make_time() -> bool {
    // A timer interrupt makes a measurement too long, so one of a few has to fit.
    (0..5).any(|_| {
        let start = time_base();
        let instructions = work::run(1 << 20) as f64;
        let ticks = (time_base() - start) as f64;
        let nanoseconds = ticks * 1e9 / TIME_BASE_HZ as f64;
        (nanoseconds / instructions - 1.0).abs() < 0.01
    })
}

/// Skips a test about the rate of samples where the work is too fast for interrupts: an emulator
/// without an instruction clock executes millions of instructions before an interrupt arrives.
pub fn needs_pace() -> Outcome {
    if is_emulated()? && !instructions_make_time() {
        return ktap::skip("needs an instruction clock");
    }
    Ok(())
}

/// Allows samples to take any share of the time. For tests to call first.
///
/// The kernel lowers its limit on the sample rate when its handler takes long, which is always so
/// in an emulator. The events of a test would then be throttled because of earlier tests.
///
/// A debug kernel gets a rate limit that it can reach, so that it throttles events at all.
pub fn keep_sample_rate() -> Outcome {
    let done = match is_debug_kernel() {
        true => set_sample_rate(DEBUG_RATE),
        false => fs::write(SHARE, "100"),
    };
    if let Err(error) = done {
        eprintln!("{SHARE} cannot be set: {error}");
    }
    Ok(())
}

/// Returns the limit on an event's samples per second, above which it is throttled.
pub fn sample_rate() -> io::Result<u64> {
    fs::read_to_string(HIGHEST_RATE)?
        .trim()
        .parse()
        .map_err(io::Error::other)
}

/// Sets the limit that [`sample_rate`] returns, and allows samples to take any share of the time.
pub fn set_sample_rate(per_second: u64) -> io::Result<()> {
    // The kernel refuses to change the rate while the share has no limit.
    fs::write(SHARE, "99")?;
    fs::write(HIGHEST_RATE, per_second.to_string())?;
    fs::write(SHARE, "100")
}

const PMU_NAME: &str = "/sys/bus/event_source/devices/cpu/caps/pmu_name";
const SHARE: &str = "/proc/sys/kernel/perf_cpu_time_max_percent";
const HIGHEST_RATE: &str = "/proc/sys/kernel/perf_event_max_sample_rate";

/// Samples per second: twice what tests need, because a tick may be late, and few enough to take
/// less than half of the time.
const DEBUG_RATE: u64 = 20_000;
