// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entries: the code that the hardware branches to at an EBB.
//!
//! At an event-based branch only the address changes (Power ISA Book II, "Event-Based
//! Branch Facility"). Every register still belongs to the interrupted code, which may be at any
//! instruction, for example in the middle of a prologue or of a larx/stcx. pair. So an entry
//!
//! * builds its frame below the red zone (`frame.rs`);
//! * saves what a function may change (ELFv2, section 2.2.1): r0, r2-r12, LR, CR, CTR, XER, TAR;
//!   `ebb_entry_full` also FPSCR, VSCR and VSR 0-51. VSR 14-31 are included although f14-f31 are
//!   callee-saved, because a callee preserves only their left halves. It preserves VSR 52-63
//!   (v20-v31) as a whole. r13, the thread pointer, is the same for handler and program;
//! * finds the thread's block relative to its own address: r12 does not hold that, as it would at
//!   a call, and r2 may have any value. The handler computes its TOC pointer itself, from r12;
//! * clears a reservation that the interrupted code may hold. Its stcx. then fails and is tried
//!   again, in case the handler has stored to the same place;
//! * changes only PME and PMEO in BESCR. TS holds the state of the transaction that the EBB
//!   interrupted (POWER8, POWER9), and rfebb returns to that state;
//! * clears MMCR0\[PMAO\] before it sets PME: the exception exists as long as PMAO is set, and
//!   would set PMEO again for an EBB of the same overflow. With FC on and PMAE off nothing sets
//!   PMAO again while the handler runs;
//! * aborts the restartable sequence that the interrupted code may be in (`rseq.rs`);
//! * returns to the address that it has saved, not to the one in EBBRR, which is 0 in the child of
//!   a fork;
//! * starts the counters as late as possible: only three instructions of the entry are counted
//!   after that.
//!
//! A signal may interrupt an entry between any two instructions, and its handler may call the
//! library, which then has to find out how far the entry is: see `progress.rs`. The code after
//! label 3 changes nothing that it reads, so it may be repeated from there. The code that aborts a
//! restartable sequence is after that, at label 11, but runs before the handler is called.
//!
//! The accumulators of the Matrix-Multiply Assist (ISA v3.1) are safe from `ebb_entry_gprs`, which
//! touches no VSR. `ebb_entry_full` saves them with VSR 0-31: they "introduce no new logical state"
//! (Book I, section 7.2.1.3), so an accumulator and its four VSRs hold the same data. Power12's
//! dense math registers are separate registers, which no entry saves: ebb.md describes which
//! handlers may change them.
//!
//! Call frame information lets debuggers, libunwind and `backtrace()` unwind through an entry
//! to the interrupted code. Its return address is DWARF register 67, as in the kernel's signal
//! trampoline, because LR (65) has a value of its own there. The numbers used are 65 for LR, 66
//! for CTR, 70 for CR and 76 for XER.

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
    /// Entry for handlers that use neither vector nor floating-point registers: saves the other
    /// volatile registers. Its address is for EBBHR; it must not be called.
    pub(crate) fn ebb_entry_gprs();
    /// Entry for the same handlers that also stores r14 to r31 in the frame for the handler to
    /// read. Its address is for EBBHR; it must not be called.
    pub(crate) fn ebb_entry_all_gprs();
    /// Entry for any handler: saves all volatile registers. Its address is for EBBHR; it must not
    /// be called.
    pub(crate) fn ebb_entry_full();
}

/// Offsets of instructions in an entry, in bytes from its first one.
#[repr(C)]
pub(crate) struct Places {
    /// The code that reads [`Thread::rearm`](crate::thread::Thread::rearm), and after that
    /// writes BESCR and MMCR0. It may be repeated from here.
    pub(crate) way_back: u64,
    /// The first instruction after the counters were reloaded.
    pub(crate) reloaded: u64,
    /// The first instruction after MMCR0 was written.
    pub(crate) counters_run: u64,
    /// The `rfebb`, at which the stack holds nothing of the entry any more.
    pub(crate) rfebb: u64,
    /// The code that aborts a restartable sequence. It is placed after all other code, which
    /// branches to it before the handler is called.
    pub(crate) abort: u64,
    /// The first byte after that code.
    pub(crate) abort_end: u64,
    /// The first byte after the entry.
    end: u64,
}

unsafe extern "C" {
    safe static ebb_entry_gprs_places: Places;
    safe static ebb_entry_all_gprs_places: Places;
    safe static ebb_entry_full_places: Places;
}

/// Returns the entry that contains `address`, and its offsets.
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

/// Defines an entry: its name, its frame, and the code that saves registers beyond r0-r12, runs
/// before and after the handler, and restores them. That code must not use r9 and r11.
macro_rules! entry {
    (
        $name:literal, $frame:ty,
        [$($save:tt)*], [$($align:tt)*], [$($realign:tt)*], [$($restore:tt)*]
    ) => {
        core::arch::global_asm!(
            ".pushsection .text.ebb_entry, \"ax\", @progbits",
            // Within one page, so that one address translation is enough, and because QEMU's
            // counters miss instructions where a translation block ends with its page.
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
            // Must come first after the frame: `progress.rs` finds an EBB by this word.
            "mfspr 0, 805",
            "std 0, {nip}(1)",
            ".cfi_offset 67, {nip} - {whole}",
            // Reads `rseq_cs` as early as possible: the kernel may clear it at any time before.
            ".irp n, 10, 11, 12",
            "std \\n, {gpr} + 8 * \\n(1)",
            ".cfi_offset \\n, {gpr} + 8 * \\n - {whole}",
            ".endr",
            "mflr 11",
            "std 11, {lr}(1)",
            ".cfi_offset 65, {lr} - {whole}",
            // Return predictors ignore bcl only in the form bcl 20,31,$+4.
            "bcl 20, 31, 2f",
            "2: mflr 11",
            "addis 10, 11, ebb_rseq_cs_offset - 2b@ha",
            // LLVM does not accept an offset from a label in an `ld`.
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
            // Sets MMCR0 to FC, which clears PMAE and PMAO. Hardware has frozen the counters at the
            // overflow (the kernel sets FCECE), but QEMU freezes them only once; without FC a
            // second counter could overflow unnoticed after the handler read it. PMAE is clear
            // after an overflow; it is set only after `inject`, where the counters shall keep
            // counting.
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
            // Tests a bit that Rearm::Keep and Rearm::Stop have: the counters are not reloaded
            // then.
            "andi. 9, 9, 2",
            "bne- 9f",
            "ld 12, {reload}(11)",
            "mtctr 12",
            "bctrl",
            // Sets BESCR with PMEO off, PME on unless EBBs are to stop, and GE still off. From here
            // r9 is the word that MMCR0 gets at the end. Until then the counters stay frozen, or
            // keep counting after `inject`.
            "4: mfspr 10, 806",
            "clrrdi 10, 10, 1",
            "ld 9, {rearm}(11)",
            "rldimi 10, 9, 32, 31",
            "mtspr 806, 10",
            // Clears a reservation: stores the word read above, if it stores at all. `rearm` is the
            // block's first field, so r11 is its address.
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
            // The saved registers are below the red zone now, where a signal's frame may overwrite
            // them.
            ".cfi_remember_state",
            ".cfi_def_cfa_offset 0",
            ".cfi_undefined 67",
            ".irp n, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 31, 65, 66, 70, 76",
            ".cfi_same_value \\n",
            ".endr",
            "6: rfebb 1",
            ".cfi_restore_state",
            // PMEO is clear, so the performance monitor did not cause this EBB: return and change
            // nothing.
            "8:",
            fixed_up!("mfspr 9, 779"),
            "ld 10, {spurious}(11)",
            "addi 10, 10, 1",
            "std 10, {spurious}(11)",
            "ld 0, {rearm}(11)",
            "stdcx. 0, 0, 11",
            "b 5b",
            // The thread is in a restartable sequence, or near one; r12 is its descriptor's
            // address.
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
            // The counters are not reloaded. Rearm::Keep, an odd number, applies to this EBB only.
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
            // The offsets of `Places`.
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
            // Names the operands that some entries do not use, since unused operands are errors.
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
        // Default floating-point control for the handler, as a signal handler gets, in all 64 bits
        // (DRN is in the upper half). VSCR keeps the program's value, as for a signal handler.
        "xxlxor 0, 0, 0",
        "mtfsf 255, 0, 1, 0",
    ],
    [
        // An aligned frame for vectors, whatever the alignment of r1.
        "mr 31, 1",
        ".cfi_def_cfa_register 31",
        "clrrdi 5, 1, {align_bits}",
        // Must be chained to the `Link`, whose return address is the interrupted one, before r1
        // points there: an unwinder may follow the chain at any instruction.
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
