// SPDX-License-Identifier: GPL-2.0
//! The assembly entry that the hardware branches to, and the frame it builds.
//!
//! At an event-based branch only the address changes (Power ISA Book II,
//! "Event-Based Branch Facility"): every register still belongs to the interrupted code, which may
//! stand at any instruction, also in the middle of a prologue or of a
//! larx/stcx. pair. So the entry
//!
//! * leaves the 512 bytes below r1 alone: 288 are the red zone of the ELFv2 ABI
//!   and Linux keeps 512;
//! * saves what a Rust or C callee may change: r0, r2, r4-r12, r3, LR, CR, CTR,
//!   XER, TAR, FPSCR, VSCR and VSR 0-51. VSR 14-31 count although f14-f31 are
//!   the callee's to keep, as it keeps their left halves only; VSR 52-63
//!   (v20-v31) it keeps whole. r13, the thread pointer, is the same for handler
//!   and program and nobody may change it;
//! * makes its own TOC pointer from its own address: r12 does not hold that
//!   address, as it would at a call, and r2 may be anything;
//! * hands the callee default floating-point control, as a signal handler gets;
//! * drops a reservation that the interrupted code may hold, so that its stcx.
//!   fails and is tried again if the handler has stored to the same place;
//! * writes MMCR0 as late as possible: only three instructions of the entry are
//!   counted after the counters run again.
//!
//! MMA accumulators (ISA v3.1) are neither saved nor touched: a program must not
//! be interrupted with one primed and a handler that uses VSR 0-31 through it.

use core::mem::offset_of;

/// Bytes below r1 that belong to the interrupted code.
const RED_ZONE: usize = 512;

/// What the entry keeps of the interrupted code.
#[repr(C, align(16))]
pub(crate) struct Frame {
    /// The interrupted r1.
    pub(crate) back_chain: u64,
    /// CR, LR and TOC save words of the ABI's frame header.
    header: [u64; 3],
    gpr: [u64; 13],
    r31: u64,
    cr: u64,
    pub(crate) lr: u64,
    ctr: u64,
    xer: u64,
    tar: u64,
    fpscr: u64,
    /// What the entry writes to MMCR0 before it returns.
    resume: u64,
    /// Target of the store that drops the reservation.
    scratch: u64,
    vscr: [u64; 2],
    vsr: [[u64; 2]; 52],
}

const FRAME: usize = size_of::<Frame>() + RED_ZONE;

// A frame of the ABI is a multiple of 16 bytes, and stdu reaches 32 KiB.
const _: () = assert!(FRAME.is_multiple_of(16) && FRAME < 0x8000);

unsafe extern "C" {
    /// The address for EBBHR. Never called: see the module's text.
    pub(crate) fn ebb_entry();
}

core::arch::global_asm!(
    ".pushsection .text.ebb_entry, \"ax\", @progbits",
    // In one page, so that one translation is enough, and because QEMU's
    // counters miss instructions where a block ends with its page.
    ".p2align 11",
    ".globl ebb_entry",
    ".type ebb_entry, @function",
    "ebb_entry:",
    "stdu 1, -{frame}(1)",
    "std 0, {gpr} + 8 * 0(1)",
    ".irp n, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12",
    "std \\n, {gpr} + 8 * \\n(1)",
    ".endr",
    // r31 survives the callee and stays the base of the frame, whatever
    // the alignment below does to r1.
    "std 31, {r31}(1)",
    "mr 31, 1",
    "mfcr 0",
    "std 0, {cr}(31)",
    "mflr 0",
    "std 0, {lr}(31)",
    "mfctr 0",
    "std 0, {ctr}(31)",
    "mfxer 0",
    "std 0, {xer}(31)",
    "mfspr 0, 815",
    "std 0, {tar}(31)",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51",
    "li 3, {vsr} + 16 * \\n",
    "stxvd2x \\n, 31, 3",
    ".endr",
    "mffs 0",
    "stfd 0, {fpscr}(31)",
    "mfvscr 0",
    "li 3, {vscr}",
    "stxvd2x 32, 31, 3",
    // Default floating-point control for the callee.
    "xxlxor 0, 0, 0",
    "mtfsf 255, 0",
    "vxor 0, 0, 0",
    "mtvscr 0",
    // An aligned frame header for the callee, chained to this frame.
    "clrrdi 1, 1, 7",
    "std 31, -32(1)",
    "addi 1, 1, -32",
    // bcl 20,31,$+4 is the one form that return predictors leave alone.
    "bcl 20, 31, 2f",
    "2: mflr 12",
    "addis 2, 12, .TOC.-2b@ha",
    "addi 2, 2, .TOC.-2b@l",
    "mr 3, 31",
    "bl {dispatch}",
    "nop",
    "std 3, {resume}(31)",
    "addi 4, 31, {scratch}",
    "stdcx. 0, 0, 4",
    "li 3, {vscr}",
    "lxvd2x 32, 31, 3",
    "mtvscr 0",
    "lfd 0, {fpscr}(31)",
    "mtfsf 255, 0",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51",
    "li 3, {vsr} + 16 * \\n",
    "lxvd2x \\n, 31, 3",
    ".endr",
    "ld 0, {tar}(31)",
    "mtspr 815, 0",
    "ld 0, {xer}(31)",
    "mtxer 0",
    "ld 0, {ctr}(31)",
    "mtctr 0",
    "ld 0, {lr}(31)",
    "mtlr 0",
    "ld 0, {cr}(31)",
    "mtcrf 255, 0",
    "mr 1, 31",
    "ld 31, {r31}(1)",
    ".irp n, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12",
    "ld \\n, {gpr} + 8 * \\n(1)",
    ".endr",
    "ld 0, {resume}(1)",
    "mtspr 779, 0",
    // The counters run from here on.
    "ld 0, {gpr}(1)",
    "addi 1, 1, {frame}",
    "rfebb 1",
    ".size ebb_entry, . - ebb_entry",
    ".popsection",
    frame = const FRAME,
    gpr = const offset_of!(Frame, gpr),
    r31 = const offset_of!(Frame, r31),
    cr = const offset_of!(Frame, cr),
    lr = const offset_of!(Frame, lr),
    ctr = const offset_of!(Frame, ctr),
    xer = const offset_of!(Frame, xer),
    tar = const offset_of!(Frame, tar),
    fpscr = const offset_of!(Frame, fpscr),
    vscr = const offset_of!(Frame, vscr),
    vsr = const offset_of!(Frame, vsr),
    resume = const offset_of!(Frame, resume),
    scratch = const offset_of!(Frame, scratch),
    dispatch = sym crate::handler::ebb_dispatch,
);
