// SPDX-License-Identifier: GPL-2.0
//! Jumps out of functions, as `longjmp` does, and code with addresses at which tests are
//! interrupted.

use std::arch::global_asm;

unsafe extern "C" {
    /// Calls `function`; returns 0 when that returns, and 1 when it calls [`escape`]. Only one such
    /// call may be in progress in the whole program.
    ///
    /// # Safety
    ///
    /// `function` must have nothing that must be dropped when it escapes.
    pub fn call_escapable(function: extern "C" fn()) -> u64;

    /// Makes the last [`call_escapable`] that has not returned return 1.
    ///
    /// # Safety
    ///
    /// Such a call must be in progress on this stack.
    pub fn escape() -> !;

    /// Loops without end; when a handler moves it to [`loop_end`], returns `n`.
    pub safe fn loop_until_moved(n: u64) -> u64;

    /// Instruction after the loop. Never called.
    pub fn loop_end();

    /// Calls `function` from a frame as large as the one that an entry makes above its own, with
    /// EBBRR as if the last EBB had come at the address to which the function returns. BESCR\[GE\]
    /// must be off.
    pub safe fn call_like_entry(function: extern "C" fn());

    /// Changes every GPR, CR field and special register that a function may change.
    pub safe fn spoil_gprs();
}

global_asm!(
    ".pushsection .text.escape, \"ax\", @progbits",
    ".globl call_escapable",
    ".type call_escapable, @function",
    "call_escapable:",
    "0: addis 2, 12, .TOC. - 0b@ha",
    "addi 2, 2, .TOC. - 0b@l",
    ".localentry call_escapable, . - call_escapable",
    "mflr 0",
    "std 0, 16(1)",
    "mfcr 0",
    "std 0, 8(1)",
    "stdu 1, -512(1)",
    "std 2, 24(1)",
    ".irp n, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
    "std \\n, 32 + 8 * (\\n - 14)(1)",
    "stfd \\n, 176 + 8 * (\\n - 14)(1)",
    ".endr",
    "li 4, 320",
    ".irp n, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
    "stvx \\n, 1, 4",
    "addi 4, 4, 16",
    ".endr",
    "addis 4, 2, escape_stack@toc@ha",
    "std 1, escape_stack@toc@l(4)",
    "mr 12, 3",
    "mtctr 12",
    "bctrl",
    "ld 2, 24(1)",
    "li 3, 0",
    "2: li 4, 320",
    ".irp n, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
    "lvx \\n, 1, 4",
    "addi 4, 4, 16",
    ".endr",
    ".irp n, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
    "ld \\n, 32 + 8 * (\\n - 14)(1)",
    "lfd \\n, 176 + 8 * (\\n - 14)(1)",
    ".endr",
    "addi 1, 1, 512",
    "ld 0, 8(1)",
    "mtcrf 255, 0",
    "ld 0, 16(1)",
    "mtlr 0",
    "blr",
    ".size call_escapable, . - call_escapable",
    ".globl escape",
    ".type escape, @function",
    "escape:",
    "0: addis 2, 12, .TOC. - 0b@ha",
    "addi 2, 2, .TOC. - 0b@l",
    ".localentry escape, . - escape",
    "addis 4, 2, escape_stack@toc@ha",
    "ld 1, escape_stack@toc@l(4)",
    "ld 2, 24(1)",
    "li 3, 1",
    "b 2b",
    ".size escape, . - escape",
    ".popsection",
    ".pushsection .bss.escape_stack, \"aw\", @nobits",
    ".balign 8",
    "escape_stack: .zero 8",
    ".popsection",
    ".pushsection .text.loops, \"ax\", @progbits",
    ".globl loop_until_moved",
    ".type loop_until_moved, @function",
    "loop_until_moved:",
    ".cfi_startproc",
    "stdu 1, -64(1)",
    ".cfi_def_cfa_offset 64",
    // LR changes, so unwinders must find its value here.
    "mflr 0",
    "std 0, 80(1)",
    ".cfi_offset 65, 16",
    "li 0, 0",
    "mtlr 0",
    "3: b 3b",
    ".globl loop_end",
    ".type loop_end, @function",
    "loop_end:",
    "ld 0, 80(1)",
    "mtlr 0",
    "addi 1, 1, 64",
    ".cfi_def_cfa_offset 0",
    ".cfi_restore 65",
    "blr",
    ".cfi_endproc",
    ".size loop_until_moved, . - loop_until_moved",
    ".globl call_like_entry",
    ".type call_like_entry, @function",
    "call_like_entry:",
    "mflr 0",
    "std 0, 16(1)",
    "stdu 1, -544(1)",
    "std 2, 24(1)",
    "bcl 20, 31, 2f",
    "2: mflr 4",
    "addi 4, 4, 3f - 2b",
    "mtspr 805, 4",
    "mr 12, 3",
    "mtctr 12",
    "bctrl",
    "3: ld 2, 24(1)",
    "addi 1, 1, 544",
    "ld 0, 16(1)",
    "mtlr 0",
    "blr",
    ".size call_like_entry, . - call_like_entry",
    ".globl spoil_gprs",
    ".type spoil_gprs, @function",
    "spoil_gprs:",
    "mflr 12",
    "lis 11, 0x5aa5",
    "mtspr 815, 11",
    "mtctr 11",
    "mtxer 11",
    // CR2-CR4 belong to the caller.
    "mtcrf 0xc7, 11",
    "mtlr 12",
    ".irp n, 0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12",
    "lis \\n, 0x6bb6",
    ".endr",
    "blr",
    ".size spoil_gprs, . - spoil_gprs",
    ".popsection",
);
