// SPDX-License-Identifier: GPL-2.0
//! Work for the perf tool to sample, whose branches are known: `pmu_branch_work
//! ROUNDS` goes ROUNDS times through `branch_loop`, which calls `f1`, which calls
//! `f2` once and `f3` three times, the last time by the count register.
//!
//! A round, in its order (`branch_perf.sh` has the same table):
//!
//! | from | to | kind | |
//! |---|---|---|---|
//! | branch_loop | f1 | call | |
//! | f1 | f2 | call | |
//! | f2 | f2 | indirect jump | |
//! | f2 | f1 | return | |
//! | f1 | f3 | call, in the end an indirect one | three times these |
//! | f3 | f3 | conditional | |
//! | f3 | f1 | return | |
//! | f1 | branch_loop | return | |
//! | branch_loop | branch_loop | conditional | |
//!
//! From each branch's target to the next branch are four instructions, in branch_loop five, so that an
//! event that counts cycles samples behind each of the 15 about equally often (in
//! an emulator that counts one for each instruction).

use std::arch::global_asm;

// r3 rounds, r4 the address of f3. All in one page: see pmu_selftests::work.
global_asm!(
    ".macro function name",
    ".globl \\name",
    ".type \\name, @function",
    "\\name:",
    ".endm",
    ".macro nops",
    "nop",
    "nop",
    ".endm",
    ".p2align 12",
    "function branch_loop",
    "mflr 0",
    "addi 5, 4, .Lf2_goes_on - f3",
    "1: nops",
    "nops",
    "bl f1",
    "nops",
    "addic. 3, 3, -1",
    "bne 1b",
    "mtlr 0",
    "blr",
    ".size branch_loop, . - branch_loop",
    "function f1",
    "mflr 11",
    "nops",
    "bl f2",
    "nops",
    "nop",
    "bl f3",
    "nops",
    "nop",
    "bl f3",
    "mtctr 4",
    "nops",
    "bctrl",
    "mtlr 11",
    "nops",
    "blr",
    ".size f1, . - f1",
    "function f2",
    "mtctr 5",
    "nops",
    "bctr",
    "nop",
    ".Lf2_goes_on: nops",
    "nop",
    "blr",
    ".size f2, . - f2",
    "function f3",
    "cmpd 6, 3, 3",
    "nops",
    "beq 6, 1f",
    "nop",
    "1: nops",
    "nop",
    "blr",
    ".size f3, . - f3",
    ".purgem function",
    ".purgem nops",
);

unsafe extern "C" {
    fn branch_loop(rounds: u64, f3: u64);
    fn f3();
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let Some(rounds @ 1..) = rounds else {
        eprintln!("usage: pmu_branch_work ROUNDS");
        std::process::exit(2)
    };
    // SAFETY: changes r0, r3, r5, r11, LR, CTR and CR fields 0, 6, which a callee may.
    // The functions use no TOC, so there is one entry point.
    unsafe { branch_loop(rounds, f3 as *const () as u64) };
}
