// SPDX-License-Identifier: MIT OR Apache-2.0
//! The routines with which an entry reloads the counters. They may change r3 to r8. An unwinder
//! that finds a signal in one of them continues with LR and the entry's stack pointer.

use crate::fixup::fixed_up;
use crate::thread;

unsafe extern "C" {
    /// Reloads each counter that is negative, which begins the period that was drawn for it. Takes
    /// the thread's block in r11.
    pub(crate) fn ebb_reload_any();
    /// Six routines for programs that use one counter, PMC1 first. They are faster if no other
    /// counter is negative, and do not change [`Thread::drawn`](thread::Thread::drawn). Take the
    /// thread's block in r11.
    pub(crate) fn ebb_reload_one();
}

/// Distance between the routines at [`ebb_reload_one`], in bytes.
pub(crate) const RELOAD_DISTANCE: usize = 128;

// `ebb_reload_any` reloads all negative counters. The routines of `ebb_reload_one`, in the order of
// the counters, reload one counter each, and branch to `ebb_reload_any` unless only theirs is
// negative.
core::arch::global_asm!(
    ".pushsection .text.ebb_entry, \"ax\", @progbits",
    ".macro reload n, otherwise",
    fixed_up!("mfspr 3, 770 + \\n"),
    "cmpwi 3, 0",
    "bge \\otherwise",
    "li 5, 1 << (\\n - 1)",
    "addi 4, 11, {drawn}",
    // Repeats if a signal handler has drawn another period before the bit is clear.
    "8: ldarx 6, 0, 4",
    "andc 6, 6, 5",
    "ld 3, {start} + 8 * (\\n - 1)(11)",
    "stdcx. 6, 0, 4",
    "bne- 8b",
    fixed_up!("mtspr 770 + \\n, 3"),
    ".endm",
    ".macro reload_one n, a, b, c, d, e",
    ".balign {distance}",
    fixed_up!("mfspr 3, 770 + \\a"),
    fixed_up!("mfspr 4, 770 + \\b"),
    fixed_up!("mfspr 5, 770 + \\c"),
    fixed_up!("mfspr 6, 770 + \\d"),
    fixed_up!("mfspr 7, 770 + \\e"),
    fixed_up!("mfspr 8, 770 + \\n"),
    "or 3, 3, 4",
    "or 5, 5, 6",
    "or 3, 3, 7",
    "or 3, 3, 5",
    "andc 3, 8, 3",
    "cmpwi 3, 0",
    "bge- ebb_reload_any",
    "ld 3, {start} + 8 * (\\n - 1)(11)",
    fixed_up!("mtspr 770 + \\n, 3"),
    "blr",
    ".endm",
    ".balign {distance}",
    ".globl ebb_reload_one",
    ".hidden ebb_reload_one",
    ".type ebb_reload_one, @function",
    "ebb_reload_one:",
    ".cfi_startproc",
    "reload_one 1, 2, 3, 4, 5, 6",
    "reload_one 2, 1, 3, 4, 5, 6",
    "reload_one 3, 1, 2, 4, 5, 6",
    "reload_one 4, 1, 2, 3, 5, 6",
    "reload_one 5, 1, 2, 3, 4, 6",
    "reload_one 6, 1, 2, 3, 4, 5",
    ".cfi_endproc",
    ".size ebb_reload_one, . - ebb_reload_one",
    ".globl ebb_reload_any",
    ".hidden ebb_reload_any",
    ".type ebb_reload_any, @function",
    "ebb_reload_any:",
    ".cfi_startproc",
    ".irp n, 1, 2, 3, 4, 5, 6",
    "reload \\n, 9f",
    "9:",
    ".endr",
    "blr",
    ".cfi_endproc",
    ".size ebb_reload_any, . - ebb_reload_any",
    ".purgem reload",
    ".purgem reload_one",
    ".popsection",
    start = const thread::START,
    drawn = const thread::DRAWN,
    distance = const RELOAD_DISTANCE,
);
