// SPDX-License-Identifier: GPL-2.0
//! Work with known values in registers and known callers on the stack.

use std::arch::global_asm;
use std::ops::Range;

/// Instructions of one round of the loop.
const ROUND: u64 = 256;

// The loop has a stack frame of its own. Like `work`, it uses no TOC and lies within one page.
global_asm!(
    ".globl known_leaf",
    ".type known_leaf, @function",
    ".p2align 12",
    "known_leaf:",
    "mflr 0",
    "std 0, 16(1)",
    "stdu 1, -64(1)",
    "mtctr 3",
    "lis 5, 0x1234",
    "lis 6, 0x2345",
    "lis 7, 0x3456",
    "ori 5, 5, 0x5678",
    "ori 6, 6, 0x6789",
    "ori 7, 7, 0x789a",
    ".globl known_loop",
    "known_loop:",
    ".rept 255",
    "nop",
    ".endr",
    "bdnz known_loop",
    ".globl known_end",
    "known_end:",
    "addi 1, 1, 64",
    "ld 0, 16(1)",
    "mtlr 0",
    "blr",
    ".size known_leaf, . - known_leaf",
    // Two callers: `known_outer` calls `known_inner`, which calls the loop.
    ".macro known_caller name callee",
    ".globl \\name",
    ".type \\name, @function",
    "\\name:",
    "mflr 0",
    "std 0, 16(1)",
    "stdu 1, -64(1)",
    "bl \\callee",
    ".globl \\name\\()_return",
    "\\name\\()_return:",
    "addi 1, 1, 64",
    "ld 0, 16(1)",
    "mtlr 0",
    "blr",
    ".size \\name, . - \\name",
    ".endm",
    "known_caller known_inner known_leaf",
    "known_caller known_outer known_inner",
    ".purgem known_caller",
);

unsafe extern "C" {
    fn known_outer(rounds: u64);
    static known_loop: u8;
    static known_end: u8;
    static known_inner_return: u8;
    static known_outer_return: u8;
}

/// Registers with the values that they hold during the loop.
pub const REGISTERS: [(u32, u64); 3] = [(5, 0x1234_5678), (6, 0x2345_6789), (7, 0x3456_789a)];

/// Size of each frame (bytes).
pub const FRAME: u64 = 64;

/// Executes about `instructions` in the loop, below two callers. Returns the number of rounds,
/// which the loop counts down in CTR.
pub fn run(instructions: u64) -> u64 {
    let rounds = (instructions / ROUND).max(1);
    // SAFETY: The code changes volatile registers only, and keeps to the ABI's frames.
    unsafe { known_outer(rounds) };
    rounds
}

/// Returns the addresses of the loop.
pub fn code() -> Range<u64> {
    &raw const known_loop as u64..&raw const known_end as u64
}

/// Returns the return addresses of the loop and of its caller.
pub fn callers() -> [u64; 2] {
    [
        &raw const known_inner_return as u64,
        &raw const known_outer_return as u64,
    ]
}
