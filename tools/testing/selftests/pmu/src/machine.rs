// SPDX-License-Identifier: GPL-2.0
//! Facts about the machine the tests run on, and the kernel's limit of samples.

use std::arch::asm;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use ktap::Outcome;

use crate::work;

/// The processor family, as far as the event codes differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Model {
    /// ISA v2.07.
    Power8,
    /// ISA v3.0.
    Power9,
    /// ISA v3.1; Power11 has the same event codes.
    Power10,
}

/// The model by the name of the PMU, which is the processor's. /proc/cpuinfo has another one in the
/// compatibility mode of an older processor.
pub fn model() -> io::Result<Model> {
    let name = fs::read_to_string(PMU_NAME)?.to_uppercase();
    // Power11 first: "POWER1" is a part of both names.
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

/// Whether this is QEMU.
pub fn is_emulated() -> io::Result<bool> {
    Ok(fs::read_to_string("/proc/cpuinfo")?.contains("emulated by qemu"))
}

/// Whether the built-in driver keeps the PMU, beside the module: it is in its `ebb` mode.
pub fn is_pmu_shared() -> bool {
    let mode = fs::read_to_string("/sys/module/ebb_pmu/parameters/mode");
    mode.is_ok_and(|mode| mode.trim() == "ebb")
}

/// Whether the kernel is the hypervisor.
pub fn is_bare_metal() -> io::Result<bool> {
    Ok(fs::read_to_string("/proc/cpuinfo")?.contains("PowerNV"))
}

/// Whether the kernel checks itself, which takes several times as many instructions.
pub fn is_debug_kernel() -> bool {
    // Found once: who asks while events count shall not add to them.
    static FOUND: LazyLock<bool> = LazyLock::new(|| {
        // With lockdep only.
        Path::new("/proc/lockdep").exists()
    });
    *FOUND
}

/// What the kernel's own work may add to a count: `usually`, and more on a debug kernel.
pub fn kernel_share(usually: u64) -> u64 {
    if is_debug_kernel() {
        4 * usually
    } else {
        usually
    }
}

/// How much rarer samples have to be on a debug kernel.
const DEBUG_FACTOR: u32 = 10;

/// A sampling period: `usually`, and a longer one on a debug kernel.
///
/// A sample takes such a kernel some 20,000 instructions, of which those around the
/// driver's own part count: for an event that leaves the kernel out as well, on an
/// emulator that ignores the freeze bits of MMCR2. A period that these alone make up
/// ends before the interrupted program has gone on, each time anew.
pub fn period(usually: u64) -> u64 {
    usually * u64::from(debug_factor())
}

/// How long to sample: `usually`, and as much longer on a debug kernel as periods are.
pub fn sampling_time(usually: Duration) -> Duration {
    usually * debug_factor()
}

/// How much to do while sampling: likewise.
pub fn sampled_work(usually: u64) -> u64 {
    usually * u64::from(debug_factor())
}

fn debug_factor() -> u32 {
    if is_debug_kernel() { DEBUG_FACTOR } else { 1 }
}

/// The time base, in ticks of [`TIME_BASE_HZ`].
pub fn time_base() -> u64 {
    let ticks;
    // SAFETY: reads the time base, which user mode may do.
    unsafe { asm!("mftb {}", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

/// Frequency of the time base of every POWER since POWER6.
pub const TIME_BASE_HZ: u64 = 512_000_000;

/// True when an emulator derives time from the number of instructions (QEMU's
/// `-icount shift=0`: each takes 1 ns). Counts are then the same in each run,
/// and cycles are as many as instructions.
///
/// Found without the PMU: by the time that a known number of them takes.
pub fn instructions_make_time() -> bool {
    // A timer interrupt in between makes it longer, so one of a few must fit.
    (0..5).any(|_| {
        let start = time_base();
        let instructions = work::run(1 << 20) as f64;
        let ticks = (time_base() - start) as f64;
        let nanoseconds = ticks * 1e9 / TIME_BASE_HZ as f64;
        (nanoseconds / instructions - 1.0).abs() < 0.01
    })
}

/// Skips a test about the rate of samples where work outruns interrupts: an
/// emulator without an instruction clock does millions of instructions while
/// one is on its way.
pub fn needs_pace() -> Outcome {
    if is_emulated()? && !instructions_make_time() {
        return ktap::skip("needs an instruction clock");
    }
    Ok(())
}

/// Lets samples take any share of the time, for what tests have to do first.
///
/// The kernel lowers the highest sample rate when it finds that its handler
/// takes long, which it always does in an emulator; a test would then see its
/// events throttled because of the tests before it.
///
/// A debug kernel gets a rate that it can reach, so that it throttles at all.
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

/// The most samples of an event per second, before it is throttled.
pub fn sample_rate() -> io::Result<u64> {
    fs::read_to_string(HIGHEST_RATE)?
        .trim()
        .parse()
        .map_err(io::Error::other)
}

/// Sets what [`sample_rate`] tells, and lets samples take any share of the time.
pub fn set_sample_rate(per_second: u64) -> io::Result<()> {
    // The rate is fixed while there is no limit to the share.
    fs::write(SHARE, "99")?;
    fs::write(HIGHEST_RATE, per_second.to_string())?;
    fs::write(SHARE, "100")
}

const PMU_NAME: &str = "/sys/bus/event_source/devices/cpu/caps/pmu_name";
const SHARE: &str = "/proc/sys/kernel/perf_cpu_time_max_percent";
const HIGHEST_RATE: &str = "/proc/sys/kernel/perf_event_max_sample_rate";

/// Samples per second: twice what tests ask for, as a tick may be late, and less than
/// half of the time.
const DEBUG_RATE: u64 = 20_000;
