// SPDX-License-Identifier: GPL-2.0
//! Random requests for events: valid, invalid and borderline ones.

use ebb::Attr;
use pmu_selftests::codes::ALL_COUNTERS;
use pmu_selftests::codes::on_pmc;
use pmu_selftests::regs;

use pmu_selftests::random::Random;

/// Bits of a code for EBBs: EBB, BHRB, IFM.
const EBB_BITS: u64 = 0xf << 60;

/// PERF_SAMPLE_REGS_INTR.
pub const SAMPLE_REGS_INTR: u64 = 1 << 18;
/// PERF_SAMPLE_CALLCHAIN, _BRANCH_STACK, _REGS_USER, _STACK_USER: each has a field of its own.
const SAMPLE_CALLCHAIN: u64 = 1 << 5;
const SAMPLE_BRANCH_STACK: u64 = 1 << 11;
const SAMPLE_REGS_USER: u64 = 1 << 12;
const SAMPLE_STACK_USER: u64 = 1 << 13;
/// Registers of a program in a sample.
const USER_REGISTERS: u64 = (1 << 43) - 1;
/// All bits of PERF_SAMPLE_ except RAW, which is for tracepoints.
const SAMPLE_TYPES: u64 = 0x1ff_ffff & !(1 << 10);

/// Bits of the word of flags in `struct perf_event_attr`, in the order of
/// `uapi/linux/perf_event.h`.
mod flag {
    pub const DISABLED: u64 = 1;
    pub const INHERIT: u64 = 1 << 1;
    pub const PINNED: u64 = 1 << 2;
    pub const EXCLUSIVE: u64 = 1 << 3;
    pub const EXCLUDE_USER: u64 = 1 << 4;
    pub const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub const EXCLUDE_HV: u64 = 1 << 6;
    pub const FREQ: u64 = 1 << 10;
    pub const ENABLE_ON_EXEC: u64 = 1 << 12;
    pub const WRITE_BACKWARD: u64 = 1 << 27;
    pub const REMOVE_ON_EXEC: u64 = 1 << 36;
    pub const SIGTRAP: u64 = 1 << 37;
    /// All flags up to `defer_output`.
    pub const ALL: u64 = (1 << 40) - 1;
}

/// Codes of events that exist on all or on some processors: on one counter, on any, of caches,
/// marked, on a bus, with a threshold.
const CODES: [u64; 20] = [
    on_pmc(1, 0x1e),
    on_pmc(2, 0x1e),
    on_pmc(3, 0x1e),
    on_pmc(4, 0x1e),
    on_pmc(1, 2),
    on_pmc(2, 2),
    on_pmc(3, 2),
    on_pmc(4, 2),
    0x400fa,
    0x500fa,
    0x600f4,
    0x1e,
    2,
    0x100f8,
    0x200f2,
    0x4d05e,
    0x2c040,
    0x0001_2c04_0142,
    0x0004_01e0,
    0x0001_3401_01e6,
];

/// Returns a code, often one that QEMU counts.
fn code(random: &mut Random) -> u64 {
    let known = match random.below(10) {
        0..6 => random.pick(&ALL_COUNTERS),
        6..9 => random.pick(&CODES),
        _ => random.any() >> 4 >> random.below(30),
    };
    match random.below(8) {
        // One bit is wrong.
        0 => known ^ 1 << random.below(60),
        _ => known,
    }
}

/// Limits of what requests ask for.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Shortest period of samples.
    pub period: u64,
    /// Whether EBB events are left out.
    pub no_ebb: bool,
}

impl Limits {
    /// Returns a period, often a short one. A counter is loaded with 0x80000000 minus the period;
    /// no period makes that look like a mark of another process (`marks`).
    pub fn period(self, random: &mut Random) -> u64 {
        let period = match random.below(8) {
            0 => random.below(16) + 1,
            1 => 1 << 41 | random.any() >> 2,
            2 => random.up_to_bits(25).max(1),
            _ => random.up_to_bits(18).max(1),
        };
        period.max(self.period)
    }
}

/// Returns an EBB event as programs use it, or one with something wrong.
fn ebb_event(random: &mut Random, member: bool) -> Attr {
    let code = code(random) | ebb::config::EBB;
    let code = match random.below(6) {
        0 | 1 => code | random.any() & EBB_BITS,
        // Makes some processes request equal groups. For those the driver leaves the PMU programmed
        // from one process to the next, but it must not leave the counters' values.
        2 => on_pmc(2, 0x1e) | ebb::config::EBB,
        3 => on_pmc(2, 0x1e) | ebb::config::EBB | ebb::config::BHRB,
        _ => code,
    };
    let attr = match member {
        true => ebb::member(code),
        false => ebb::event(code),
    };
    match random.below(8) {
        0 => with_flags(attr, |flags| flags ^ 1 << random.below(40)),
        1 => attr.sample_period(random.up_to_bits(20)),
        2 => attr.with(|raw| raw.sample_type = 1 << random.below(25)),
        _ => attr,
    }
}

/// Returns an event that counts, as programs use it.
fn counting(random: &mut Random) -> Attr {
    // Users other than root may not count the kernel.
    let exclude = match random.below(4) {
        0 => random.any() & (flag::EXCLUDE_USER | flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV),
        _ => flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV,
    };
    let order =
        random.few_of(flag::PINNED | flag::EXCLUSIVE | flag::INHERIT | flag::ENABLE_ON_EXEC);
    let attr = match random.below(4) {
        0 => Attr::hardware(random.below(11) as u32),
        1 => Attr::cache(random.below(8), random.below(4), random.below(3)),
        _ => Attr::raw(code(random)),
    };
    let attr = attr.read_format(random.below(32));
    with_flags(attr, |flags| flags | exclude | order)
}

/// Returns an event that takes samples: of registers alone, which `events` can check, or of
/// anything.
fn sampling(random: &mut Random, limits: Limits) -> Attr {
    let what = match random.below(4) {
        0 => SAMPLE_REGS_INTR,
        1 => SAMPLE_BRANCH_STACK | random.few_of(SAMPLE_TYPES),
        _ => random.few_of(SAMPLE_TYPES),
    };
    let attr = counting(random)
        .sampling(limits.period(random), what)
        .with(|raw| {
            raw.branch_sample_type = branch_filter(random);
            raw.sample_regs_intr = registers(random);
            raw.sample_regs_user = random.any() & USER_REGISTERS;
            raw.sample_stack_user = 8 * random.below(64) as u32;
            raw.sample_max_stack = random.below(127) as u16;
        });
    // The fields of what is not sampled must be 0.
    let attr = match random.below(8) {
        0 => attr,
        _ => attr.with(|raw| {
            let of = |bit: u64, value: u64| if what & bit == 0 { 0 } else { value };
            raw.branch_sample_type = of(SAMPLE_BRANCH_STACK, raw.branch_sample_type);
            raw.sample_regs_intr = of(SAMPLE_REGS_INTR, raw.sample_regs_intr);
            raw.sample_regs_user = of(SAMPLE_REGS_USER, raw.sample_regs_user);
            raw.sample_stack_user = of(SAMPLE_STACK_USER, raw.sample_stack_user.into()) as u32;
            raw.sample_max_stack = of(SAMPLE_CALLCHAIN, raw.sample_max_stack.into()) as u16;
        }),
    };
    match random.below(8) {
        // A rate. The kernel finds a period for it that is not near to a mark (`marks`).
        0 => with_flags(attr.sample_period(1000 + random.below(1500)), |flags| {
            flags | flag::FREQ
        }),
        // SIGTRAP with an event that excludes the kernel makes perf core warn if the event
        // overflows twice before the program makes progress. That happens in an emulator without
        // freeze bits, under the built-in driver too.
        1 => with_flags(attr, |flags| {
            flags & !flag::EXCLUDE_KERNEL | flag::SIGTRAP | flag::REMOVE_ON_EXEC
        }),
        2 => with_flags(attr, |flags| flags | flag::WRITE_BACKWARD),
        _ => attr,
    }
}

/// Returns a mask of registers for samples: general ones, extended ones of each processor, and bits
/// that are no register.
fn registers(random: &mut Random) -> u64 {
    let extended = ((1 << (regs::SIAR + 1)) - 1) & !regs::GENERAL;
    let of_v31 = 0b111 << regs::MMCR3;
    match random.below(6) {
        0 => random.any() & regs::GENERAL,
        1 => extended,
        2 | 3 => extended & !of_v31,
        4 => random.any() & extended,
        _ => random.any() >> random.below(40),
    }
}

/// Returns a branch filter: each filter alone and with others, privileges, bits for the form of a
/// stack, and bits without a meaning.
fn branch_filter(random: &mut Random) -> u64 {
    const PRIVILEGES: u64 = 7;
    match random.below(4) {
        0 => 1 << random.below(20),
        1 => 1 << random.below(20) | random.any() & PRIVILEGES,
        2 => random.few_of((1 << 21) - 1),
        _ => 1 << 3 | 1,
    }
}

/// Returns `attr` with a changed word of flags.
fn with_flags(attr: Attr, change: impl FnOnce(u64) -> u64) -> Attr {
    attr.with(|raw| {
        const FLAGS: usize = 40;
        // SAFETY: The 8 bytes from offset 40 are the word of flags in each version of the
        // structure.
        unsafe {
            let word = (&raw mut *raw).byte_add(FLAGS).cast::<u64>();
            word.write(change(word.read()));
        }
    })
}

/// Returns any request; if `member`, one for a member of a group.
pub fn any(random: &mut Random, limits: Limits, member: bool) -> Attr {
    let attr = match random.below(10) {
        0..4 if !limits.no_ebb => ebb_event(random, member),
        0..6 => counting(random),
        6..9 => sampling(random, limits),
        // Clocks need a long period, or their samples leave no time for other work.
        _ => Attr::software(random.below(13) as u32).sampling(
            limits.period(random).max(1_000_000),
            random.few_of(SAMPLE_TYPES),
        ),
    };
    let attr = match random.below(4) {
        0 => attr,
        _ => attr.enabled(),
    };
    match random.below(12) {
        0 => attr.with(|raw| raw.config ^= random.few_of(u64::MAX >> u64::from(limits.no_ebb))),
        1 => attr.with(|raw| match random.below(4) {
            0 => raw.__bindgen_anon_3.config1 = random.any() >> random.below(64),
            1 => raw.__bindgen_anon_4.config2 = random.any() >> random.below(64),
            2 => raw.config3 = random.any(),
            _ => raw.clockid = random.below(16) as i32,
        }),
        2 => with_flags(attr, |flags| {
            (flags ^ random.few_of(flag::ALL & !flag::FREQ)) & !flag::DISABLED
        }),
        3 => attr.wakeup_events(random.any() as u32),
        _ => attr,
    }
}
