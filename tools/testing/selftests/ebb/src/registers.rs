// SPDX-License-Identifier: GPL-2.0
//! Fills every register of a program with a pattern, for a time in which EBBs interrupt it.

use pmu_selftests::random::Random;
use std::arch::global_asm;
use std::mem::offset_of;

/// Bytes below the stack pointer that belong to the program (ELFv2: 288, Linux: 512).
pub const RED_ZONE: usize = 512;

/// Registers of a program, and the memory below its stack pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct Registers {
    /// r0-r31. r1, r13 and r31 are in use here and are not compared.
    pub gpr: [u64; 32],
    /// VSR 0-63, which hold the FPRs and VRs.
    pub vsr: [[u64; 2]; 64],
    /// VSCR, in its last word.
    pub vscr: [u64; 2],
    /// CR.
    pub cr: u64,
    /// LR.
    pub lr: u64,
    /// CTR; 0 at the end, as it counts the loop.
    pub ctr: u64,
    /// XER.
    pub xer: u64,
    /// TAR.
    pub tar: u64,
    /// FPSCR.
    pub fpscr: u64,
    /// Memory of the red zone.
    pub zone: [u64; RED_ZONE / 8],
}

impl Registers {
    /// Returns a pattern in which no two registers are equal.
    #[must_use]
    pub fn pattern() -> Self {
        let mut random = Random::new(1, &[]);
        let mut next = || random.any() | 1;
        let mut gpr = [0; 32].map(|_| next());
        for used in [1, 13, 31] {
            gpr[used] = 0;
        }
        Self {
            gpr,
            vsr: [[0; 2]; 64].map(|_| [next(), next()]),
            // SAT keeps its value until it is written.
            vscr: [0, 1],
            cr: 0x1234_8421,
            lr: next() & !3,
            ctr: 0,
            // SO, OV, CA and the byte count.
            xer: 0xe000_0035,
            tar: next() & !3,
            // DRN 5, and rounding towards minus infinity.
            fpscr: 5 << 32 | 3,
            // Values that `hold_registers` writes: each doubleword is its own offset.
            zone: std::array::from_fn(|i| (i as u64 * 8).wrapping_sub(RED_ZONE as u64)),
        }
    }

    /// Returns zeroes.
    #[must_use]
    pub fn zero() -> Self {
        // SAFETY: The structure has integers only.
        unsafe { std::mem::zeroed() }
    }
}

unsafe extern "C" {
    /// Loads all registers from `from`, loops `spins` times and stores the registers to `to`.
    ///
    /// # Safety
    ///
    /// `from` and `to` must point to `Registers`, and the thread must have no signal handler that
    /// uses r2 or the floating-point control.
    pub fn hold_registers(from: *const Registers, to: *mut Registers, spins: u64);

    /// Changes every register that the ELFv2 ABI lets a function change.
    ///
    /// # Safety
    ///
    /// None: it is an ordinary function.
    pub safe fn spoil_registers();
}

global_asm!(
    ".globl hold_registers",
    ".type hold_registers, @function",
    "hold_registers:",
    "mflr 0",
    "std 0, 16(1)",
    "mfcr 0",
    "std 0, 8(1)",
    "stdu 1, -1312(1)",
    ".irp n, 2, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
    "std \\n, 32 + 8 * \\n(1)",
    ".endr",
    ".irp n, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63",
    "li 6, 288 + 16 * \\n",
    "stxvd2x \\n, 1, 6",
    ".endr",
    "mr 31, 4",
    "mtctr 5",
    "li 6, -{red_zone}",
    "2: stdx 6, 1, 6",
    "addi 6, 6, 8",
    "cmpdi 6, 0",
    "bne 2b",
    "lfd 0, {fpscr}(3)",
    "mtfsf 255, 0, 1, 0",
    "li 4, {vscr}",
    "lxvd2x 32, 3, 4",
    "mtvscr 0",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63",
    "li 4, {vsr} + 16 * \\n",
    "lxvd2x \\n, 3, 4",
    ".endr",
    "ld 4, {tar}(3)",
    "mtspr 815, 4",
    "ld 4, {xer}(3)",
    "mtxer 4",
    "ld 4, {lr}(3)",
    "mtlr 4",
    "ld 4, {cr}(3)",
    "mtcrf 255, 4",
    ".irp n, 0, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 3",
    "ld \\n, 8 * \\n(3)",
    ".endr",
    "3: bdnz 3b",
    ".irp n, 0, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 3",
    "std \\n, 8 * \\n(31)",
    ".endr",
    "mfcr 3",
    "std 3, {cr}(31)",
    "mflr 3",
    "std 3, {lr}(31)",
    "mfctr 3",
    "std 3, {ctr}(31)",
    "mfxer 3",
    "std 3, {xer}(31)",
    "mfspr 3, 815",
    "std 3, {tar}(31)",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63",
    "li 4, {vsr} + 16 * \\n",
    "stxvd2x \\n, 31, 4",
    ".endr",
    "mffs 0",
    "stfd 0, {fpscr}(31)",
    "mfvscr 0",
    "li 4, {vscr}",
    "stxvd2x 32, 31, 4",
    "li 6, -{red_zone}",
    "4: ldx 7, 1, 6",
    "add 8, 31, 6",
    "std 7, {zone} + {red_zone}(8)",
    "addi 6, 6, 8",
    "cmpdi 6, 0",
    "bne 4b",
    // Restores the caller's registers, and the usual control registers.
    "xxlxor 0, 0, 0",
    "mtfsf 255, 0, 1, 0",
    "vxor 0, 0, 0",
    "mtvscr 0",
    ".irp n, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63",
    "li 6, 288 + 16 * \\n",
    "lxvd2x \\n, 1, 6",
    ".endr",
    ".irp n, 2, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
    "ld \\n, 32 + 8 * \\n(1)",
    ".endr",
    "addi 1, 1, 1312",
    "ld 0, 8(1)",
    "mtcrf 255, 0",
    "ld 0, 16(1)",
    "mtlr 0",
    "blr",
    ".size hold_registers, . - hold_registers",
    ".globl spoil_registers",
    ".type spoil_registers, @function",
    "spoil_registers:",
    "mflr 12",
    "lis 11, 0x5aa5",
    "mtspr 815, 11",
    "mtctr 11",
    "mtxer 11",
    // CR2-CR4 belong to the caller.
    "mtcrf 0xc7, 11",
    "mtfsfi 7, 2",
    // DRN.
    "mtfsfi 7, 3, 1",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51",
    "xxlxor \\n, \\n, \\n",
    ".endr",
    "mtvscr 0",
    // The left half of VSR 14-31 belongs to the caller.
    ".irp n, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
    "xxmrghd \\n, \\n, 0",
    ".endr",
    "mtlr 12",
    ".irp n, 0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12",
    "lis \\n, 0x6bb6",
    ".endr",
    "blr",
    ".size spoil_registers, . - spoil_registers",
    red_zone = const RED_ZONE,
    vsr = const offset_of!(Registers, vsr),
    vscr = const offset_of!(Registers, vscr),
    cr = const offset_of!(Registers, cr),
    lr = const offset_of!(Registers, lr),
    ctr = const offset_of!(Registers, ctr),
    xer = const offset_of!(Registers, xer),
    tar = const offset_of!(Registers, tar),
    fpscr = const offset_of!(Registers, fpscr),
    zone = const offset_of!(Registers, zone),
);
