// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entries that the hardware branches to.
//!
//! At an event-based branch only the address changes (Power ISA Book II, "Event-Based
//! Branch Facility"): every register still belongs to the interrupted code, which may
//! stand at any instruction, also in the middle of a prologue or of a larx/stcx. pair. So an
//! entry
//!
//! * builds its frame below the red zone (`frame.rs`);
//! * saves what a function may change (ELFv2, section 2.2.1): r0, r2-r12, LR, CR, CTR, XER,
//!   TAR; `ebb_entry_full` also FPSCR, VSCR and VSR 0-51. VSR 14-31 count although
//!   f14-f31 are the callee's to keep, as it keeps their left halves only; VSR 52-63
//!   (v20-v31) it keeps whole. r13, the thread pointer, is the same for handler and program;
//! * finds the thread's block by its own address: r12 does not hold that, as it would at a
//!   call, and r2 may be anything. The handler makes its TOC pointer itself, from r12;
//! * drops a reservation that the interrupted code may hold, so that its stcx. fails and
//!   is tried again if the handler has stored to the same place;
//! * changes of BESCR only PME and PMEO. TS holds the state of the transaction that
//!   the EBB came in (POWER8, POWER9), and rfebb goes back to that;
//! * clears MMCR0\[PMAO\] before it sets PME: as long as PMAO is set the exception exists, and
//!   would set PMEO again for an EBB of the same overflow. With FC on and PMAE off nothing sets
//!   it again while the handler runs;
//! * aborts the restartable sequence that the interrupted code may be in (`rseq.rs`);
//! * goes back to the address that it has kept, not to that in EBBRR, which is 0 in the child of a
//!   fork;
//! * sets the counters going as late as possible: only three instructions of the entry are
//!   counted after that.
//!
//! A signal may come between any two instructions of an entry, and its handler may call the
//! library, which then has to know how far the entry is: see `progress.rs`. What follows the label
//! 3 changes nothing that it reads, so it may be done again from there. What aborts a restartable
//! sequence is behind that, at the label 11, but done before the handler is called.
//!
//! The Matrix-Multiply Assist's accumulators (ISA v3.1) are safe from `ebb_entry_gprs`, which
//! touches no VSR. `ebb_entry_full` keeps them with VSR 0-31: they "introduce no new
//! logical state" (Book I, section 7.2.1.3), an accumulator and its four VSRs hold the same.
//! Power12's dense math registers are registers of their own, which no entry keeps: ebb.md says
//! which handlers may change them.
//!
//! Call frame information lets debuggers, libunwind and `backtrace()` pass through an entry
//! to the interrupted code. Its return address is DWARF register 67, as in the kernel's signal
//! trampoline: LR, 65, has a value of its own there. Registers it speaks of: 65 LR, 66 CTR,
//! 70 CR, 76 XER.

use core::mem::offset_of;

use crate::context::Rearm;
use crate::fixup::fixed_up;
use crate::frame::ALIGNMENT;
use crate::frame::Frame;
use crate::frame::FullFrame;
use crate::frame::GprFrame;
use crate::frame::HEADER;
use crate::frame::Link;
use crate::frame::RED_ZONE;
use crate::frame::RESUME;
use crate::frame::store_gprs_14_to_31;
use crate::frame::vsrs;
use crate::frame::whole;
use crate::rseq;
use crate::thread;

unsafe extern "C" {
    /// Address for EBBHR: keeps what a handler changes that uses neither vector nor
    /// floating-point registers. Never called.
    pub(crate) fn ebb_entry_gprs();
    /// The same, with r14 to r31 in the frame for the handler to read. Never called.
    pub(crate) fn ebb_entry_all_gprs();
    /// Address for EBBHR: keeps what any function may change. Never called.
    pub(crate) fn ebb_entry_full();
}

/// Places in an entry, in bytes from its first instruction.
#[repr(C)]
pub(crate) struct Places {
    /// What reads [`Thread::rearm`](crate::thread::Thread::rearm), and after that
    /// writes BESCR and MMCR0. It may be done again from here.
    pub(crate) way_back: u64,
    /// What follows the reloading of the counters.
    pub(crate) reloaded: u64,
    /// What follows the writing of MMCR0.
    pub(crate) counters_run: u64,
    /// `rfebb`, where nothing is left on the stack.
    pub(crate) rfebb: u64,
    /// The code that aborts a restartable sequence. It stands after the rest, which branches
    /// to it before the handler is called.
    pub(crate) abort: u64,
    /// The first byte behind that.
    pub(crate) abort_end: u64,
    /// The first byte behind it.
    end: u64,
}

unsafe extern "C" {
    safe static ebb_entry_gprs_places: Places;
    safe static ebb_entry_all_gprs_places: Places;
    safe static ebb_entry_full_places: Places;
}

/// The entry that `address` is in, and its places.
pub(crate) fn at(address: u64) -> Option<(u64, &'static Places)> {
    [
        (ebb_entry_gprs as *const () as u64, &ebb_entry_gprs_places),
        (
            ebb_entry_all_gprs as *const () as u64,
            &ebb_entry_all_gprs_places,
        ),
        (ebb_entry_full as *const () as u64, &ebb_entry_full_places),
    ]
    .into_iter()
    .find(|(entry, places)| address.wrapping_sub(*entry) < places.end)
}

/// An entry: its name and frame, and what it saves beyond r0-r12, does before and after the
/// handler, and restores. r9 and r11 are in use when it does.
macro_rules! entry {
    (
        $name:literal, $frame:ty,
        [$($save:tt)*], [$($align:tt)*], [$($realign:tt)*], [$($restore:tt)*]
    ) => {
        core::arch::global_asm!(
            ".pushsection .text.ebb_entry, \"ax\", @progbits",
            // In one page, so that one translation is enough, and because QEMU's
            // counters miss instructions where a block ends with its page.
            ".p2align 11",
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            ".cfi_startproc",
            ".cfi_signal_frame",
            ".cfi_return_column 67",
            ".cfi_undefined 67",
            "stdu 1, -({link} + {red_zone})(1)",
            ".cfi_def_cfa_offset {link} + {red_zone}",
            "stdu 1, -{frame}(1)",
            ".cfi_def_cfa_offset {whole}",
            "std 0, {gpr}(1)",
            ".cfi_offset 0, {gpr} - {whole}",
            // First, for `progress.rs`.
            "mfspr 0, 805",
            "std 0, {nip}(1)",
            ".cfi_offset 67, {nip} - {whole}",
            // `rseq_cs` as early as can be: before this the kernel may have cleared it.
            ".irp n, 10, 11, 12",
            "std \\n, {gpr} + 8 * \\n(1)",
            ".cfi_offset \\n, {gpr} + 8 * \\n - {whole}",
            ".endr",
            "mflr 11",
            "std 11, {lr}(1)",
            ".cfi_offset 65, {lr} - {whole}",
            // bcl 20,31,$+4 is the one form that return predictors leave alone.
            "bcl 20, 31, 2f",
            "2: mflr 11",
            "addis 10, 11, ebb_rseq_cs_offset - 2b@ha",
            // LLVM knows no offset from a label in an `ld`.
            ".reloc ., R_PPC64_REL16_LO, ebb_rseq_cs_offset + 8",
            "ld 10, 0(10)",
            "ldx 12, 10, 13",
            "std 0, {resume}(1)",
            ".irp n, 2, 3, 4, 5, 6, 7, 8, 9",
            "std \\n, {gpr} + 8 * \\n(1)",
            ".cfi_offset \\n, {gpr} + 8 * \\n - {whole}",
            ".endr",
            "addis 11, 11, ebb_thread_offset - 2b@ha",
            ".reloc ., R_PPC64_REL16_LO, ebb_thread_offset + 56",
            "ld 11, 0(11)",
            "add 11, 11, 13",
            "std 11, {thread}(1)",
            "mfcr 0",
            "std 0, {cr}(1)",
            ".cfi_offset 70, {cr} - {whole}",
            "mfctr 0",
            "std 0, {ctr}(1)",
            ".cfi_offset 66, {ctr} - {whole}",
            "mfxer 0",
            "std 0, {xer}(1)",
            ".cfi_offset 76, {xer} - {whole}",
            "mfspr 0, 815",
            "std 0, {tar}(1)",
            "cmpdi 12, 0",
            "bne- 11f",
            "12:",
            $($save)*
            "mfspr 10, 806",
            "andi. 0, 10, 1",
            "beq- 8f",
            "std 1, {active}(11)",
            // MMCR0 = FC, which takes PMAO off. Hardware has frozen the counters at the overflow
            // (the kernel sets FCECE), QEMU does so only once; without FC a second counter could
            // overflow unseen behind a reading of it. PMAE is clear after an overflow, and only
            // `inject` comes with it set: there they shall count on.
            fixed_up!("mfspr 9, 779"),
            "andis. 9, 9, 0x0400",
            "bne- 2f",
            "sldi 9, 0, 31",
            fixed_up!("mtspr 779, 9"),
            "2: ld 12, {call}(11)",
            "ld 10, {ebbs}(11)",
            "addi 10, 10, 1",
            "std 10, {ebbs}(11)",
            "mtctr 12",
            "mr 3, 1",
            "ld 4, {data}(11)",
            $($align)*
            "bctrl",
            $($realign)*
            "3: ld 11, {thread}(1)",
            "ld 9, {rearm}(11)",
            // Rearm::Keep and ::Stop have it.
            "andi. 9, 9, 2",
            "bne- 9f",
            "ld 12, {reload}(11)",
            "mtctr 12",
            "bctrl",
            // BESCR with PMEO off, PME on unless EBBs are to stop, GE still off. Until the end r9 is
            // what MMCR0 gets then. The counters go on standing still, or counting if it is `inject`.
            "4: mfspr 10, 806",
            "clrrdi 10, 10, 1",
            "ld 9, {rearm}(11)",
            "rldimi 10, 9, 32, 31",
            "mtspr 806, 10",
            // Stores what is there, if it does. `rearm` is what a block begins with.
            "stdcx. 9, 0, 11",
            "5:",
            $($restore)*
            "ld 0, {tar}(1)",
            "mtspr 815, 0",
            "ld 0, {xer}(1)",
            "mtxer 0",
            "ld 0, {ctr}(1)",
            "mtctr 0",
            "ld 0, {lr}(1)",
            "mtlr 0",
            "ld 0, {cr}(1)",
            "mtcrf 255, 0",
            ".irp n, 2, 3, 4, 5, 6, 7, 8, 10, 12",
            "ld \\n, {gpr} + 8 * \\n(1)",
            ".endr",
            "li 0, 0",
            "std 0, {active}(11)",
            "ld 11, {gpr} + 8 * 11(1)",
            "ld 0, {resume}(1)",
            "mtspr 805, 0",
            "ld 0, {gpr}(1)",
            fixed_up!("mtspr 779, 9"),
            // The counters run from here on.
            "10: ld 9, {gpr} + 8 * 9(1)",
            "addi 1, 1, {whole}",
            // What was saved is below the red zone now, where a signal's frame may be.
            ".cfi_remember_state",
            ".cfi_def_cfa_offset 0",
            ".cfi_undefined 67",
            ".irp n, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 31, 65, 66, 70, 76",
            ".cfi_same_value \\n",
            ".endr",
            "6: rfebb 1",
            ".cfi_restore_state",
            // Not of the performance monitor: back as it came.
            "8:",
            fixed_up!("mfspr 9, 779"),
            "ld 10, {spurious}(11)",
            "addi 10, 10, 1",
            "std 10, {spurious}(11)",
            "ld 0, {rearm}(11)",
            "stdcx. 0, 0, 11",
            "b 5b",
            // A restartable sequence has begun, described at r12.
            ".cfi_remember_state",
            ".cfi_same_value 31",
            "11: li 0, 0",
            "stdx 0, 10, 13",
            "ld 0, {nip}(1)",
            "ld 10, {start_ip}(12)",
            "subf 10, 10, 0",
            "ld 9, {post_commit_offset}(12)",
            "cmpld 10, 9",
            "bge 12b",
            "ld 10, {abort_ip}(12)",
            "lwz 9, -4(10)",
            "xoris 9, 9, {signature} >> 16",
            "xori 9, 9, {signature} & 0xffff",
            "tdnei 9, 0",
            "std 10, {resume}(1)",
            "b 12b",
            ".cfi_restore_state",
            // The counters are not reloaded. Rearm::Keep, which is odd, is for this EBB only.
            "9: ld 0, {rearm}(11)",
            "andi. 10, 0, 1",
            "beq 4b",
            "lis 0, {restart} >> 16",
            "ori 0, 0, {restart} & 0xffff",
            "std 0, {rearm}(11)",
            "b 4b",
            "7:",
            ".cfi_endproc",
            concat!(".size ", $name, ", . - ", $name),
            // For `places`.
            ".pushsection .rodata.ebb_entry, \"a\", @progbits",
            ".balign 8",
            concat!(".globl ", $name, "_places"),
            concat!(".hidden ", $name, "_places"),
            concat!(".type ", $name, "_places, @object"),
            concat!($name, "_places:"),
            concat!(".quad 3b - ", $name, ", 4b - ", $name, ", 10b - ", $name),
            concat!(".quad 6b - ", $name, ", 11b - ", $name, ", 9b - ", $name, ", 7b - ", $name),
            concat!(".size ", $name, "_places, 56"),
            ".popsection",
            // Offsets that not every entry has a use for.
            "/* {fpscr} {vscr} {vsr} {header} {align_bits} */",
            ".popsection",
            link = const size_of::<Link>(),
            red_zone = const RED_ZONE,
            frame = const size_of::<$frame>(),
            whole = const whole(size_of::<$frame>()),
            header = const HEADER,
            align_bits = const ALIGNMENT.ilog2(),
            nip = const size_of::<$frame>() + offset_of!(Link, nip),
            gpr = const offset_of!(Frame, gpr),
            resume = const offset_of!(Frame, gpr) + 8 * RESUME,
            cr = const offset_of!(Frame, cr),
            lr = const offset_of!(Frame, lr),
            ctr = const offset_of!(Frame, ctr),
            xer = const offset_of!(Frame, xer),
            tar = const offset_of!(Frame, tar),
            thread = const offset_of!(Frame, thread),
            fpscr = const offset_of!(FullFrame, fpscr),
            vscr = const offset_of!(FullFrame, vscr),
            vsr = const offset_of!(FullFrame, vsr),
            call = const thread::CALL,
            data = const thread::DATA,
            ebbs = const thread::EBBS,
            spurious = const thread::SPURIOUS,
            reload = const thread::RELOAD,
            active = const thread::ACTIVE,
            rearm = const thread::REARM,
            restart = const Rearm::Restart as u64,
            start_ip = const rseq::START_IP,
            post_commit_offset = const rseq::POST_COMMIT_OFFSET,
            abort_ip = const rseq::ABORT_IP,
            signature = const rseq::SIGNATURE,
        );
    };
}

entry!("ebb_entry_gprs", Frame, [], [], [], []);

entry! { "ebb_entry_all_gprs", GprFrame, [store_gprs_14_to_31!(),], [], [], [] }

entry!(
    "ebb_entry_full",
    FullFrame,
    [
        store_gprs_14_to_31!(),
        ".cfi_offset 31, {gpr} + 8 * 31 - {whole}",
        vsrs!("stxvd2x"),
        "mffs 0",
        "stfd 0, {fpscr}(1)",
        "mfvscr 0",
        "li 3, {vscr}",
        "stxvd2x 32, 1, 3",
        // Default floating-point control for the handler, as a signal's gets, all 64 bits of it (DRN
        // is in the upper half). VSCR stays the
        // program's, as it does for a signal.
        "xxlxor 0, 0, 0",
        "mtfsf 255, 0, 1, 0",
    ],
    [
        // An aligned frame for vectors, whatever r1 was.
        "mr 31, 1",
        ".cfi_def_cfa_register 31",
        "clrrdi 5, 1, {align_bits}",
        // Chained to the `Link`, whose return address is the interrupted one, before r1 points there.
        "addi 0, 31, {frame}",
        "std 0, -{header}(5)",
        "addi 1, 5, -{header}",
    ],
    ["mr 1, 31", ".cfi_def_cfa_register 1",],
    [
        "li 3, {vscr}",
        "lxvd2x 32, 1, 3",
        "mtvscr 0",
        "lfd 0, {fpscr}(1)",
        "mtfsf 255, 0, 1, 0",
        vsrs!("lxvd2x"),
        "ld 31, {gpr} + 8 * 31(1)",
    ]
);
