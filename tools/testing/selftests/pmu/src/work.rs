// SPDX-License-Identifier: GPL-2.0
//! Work of a known number of instructions.
//!
//! A round is 256 instructions: 255 `nop` and one `bdnz`. Long rounds keep emulators fast, because
//! these count once per straight run of code. Each copy lies within one page, because QEMU does not
//! count the instructions of a straight run that ends at a page boundary.

use std::arch::global_asm;
use std::ops::Range;

use crate::machine;

/// Instructions of one round.
pub const ROUND: u64 = 256;
/// Instructions around the rounds: `mtctr` and `blr`.
pub const CALL: u64 = 2;

// Two copies, so that the address in a sample shows which one ran. They use no TOC, so their global
// and local entry points are the same.
global_asm!(
    ".macro pmu_work name",
    ".globl \\name",
    ".type \\name, @function",
    ".p2align 12",
    "\\name:",
    "mtctr 3",
    "1:",
    ".rept 255",
    "nop",
    ".endr",
    "bdnz 1b",
    "blr",
    ".globl \\name\\()_end",
    "\\name\\()_end:",
    ".size \\name, . - \\name",
    ".endm",
    "pmu_work pmu_work_a",
    "pmu_work pmu_work_b",
    ".purgem pmu_work",
);

unsafe extern "C" {
    fn pmu_work_a(rounds: u64);
    fn pmu_work_b(rounds: u64);
    static pmu_work_a_end: u8;
    static pmu_work_b_end: u8;
}

/// Executes about `instructions`, rounded down to whole rounds of 256 (at least one). Returns the
/// exact number, without the instructions of the call itself.
pub fn run(instructions: u64) -> u64 {
    let rounds = (instructions / ROUND).max(1);
    // SAFETY: The code changes CTR and r3 only, both volatile in the ABI.
    unsafe { pmu_work_a(rounds) };
    rounds * ROUND + CALL
}

/// Works for about `nanoseconds` of the time base. Returns the number of instructions.
pub fn run_for(nanoseconds: u64) -> u64 {
    let ticks = nanoseconds * (machine::TIME_BASE_HZ / 1_000_000) / 1000;
    let start = machine::time_base();
    let mut done = 0;
    while machine::time_base() - start < ticks {
        done += run(1 << 16);
    }
    done
}

/// Does the work of [`run`] at another address.
pub fn run_elsewhere(instructions: u64) -> u64 {
    let rounds = (instructions / ROUND).max(1);
    // SAFETY: The code changes CTR and r3 only, both volatile in the ABI.
    unsafe { pmu_work_b(rounds) };
    rounds * ROUND + CALL
}

/// Makes `calls` system calls that do almost nothing.
pub fn system_calls(calls: u64) {
    for _ in 0..calls {
        // SAFETY: The system call takes no arguments.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
}

/// Returns the addresses of the code that [`run`] executes.
pub fn code() -> Range<u64> {
    pmu_work_a as *const () as u64..&raw const pmu_work_a_end as u64
}

/// Returns the addresses of the code that [`run_elsewhere`] executes.
pub fn code_elsewhere() -> Range<u64> {
    pmu_work_b as *const () as u64..&raw const pmu_work_b_end as u64
}
