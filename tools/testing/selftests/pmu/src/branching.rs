// SPDX-License-Identifier: GPL-2.0
//! Programs whose branches are all known: where each is, where it goes, what perf
//! calls it, and which filters want it. The tables come from the assembler's
//! labels, so nothing here decodes an instruction.
//!
//! A program is a loop that takes each of its branches once a round, in the order
//! of its table, the last one back to the top. It finds its targets from the
//! address it is given, so a copy of it works anywhere.

use std::arch::asm;
use std::arch::global_asm;
use std::io;
use std::ops::Range;
use std::slice;

use perf_event::sys;

use crate::fields::branch::ANY;
use crate::fields::branch::ANY_CALL;
use crate::fields::branch::ANY_RETURN;
use crate::fields::branch::CALL;
use crate::fields::branch::COND;
use crate::fields::branch::IND_CALL;
use crate::fields::branch::IND_JUMP;
use crate::sample::Branch;

/// The filters by type, each with perf's name for it.
pub const FILTERS: [(&str, u64); 7] = [
    ("any", ANY),
    ("any_call", ANY_CALL),
    ("any_ret", ANY_RETURN),
    ("ind_call", IND_CALL),
    ("cond", COND),
    ("call", CALL),
    ("ind_jmp", IND_JUMP),
];

/// perf's names of the filters by type that are set.
pub fn filter_names(filter: u64) -> String {
    let set = FILTERS.iter().filter(|(_, bit)| filter & bit != 0);
    set.map(|(name, _)| *name).collect::<Vec<_>>().join(",")
}

/// A branch that a program takes once a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    /// Address of the branch.
    pub from: u64,
    /// Address of its target.
    pub to: u64,
    /// PERF_BR_ number.
    pub kind: u64,
    /// Filters by type that want it.
    pub filters: u64,
    /// Whether its target is in a register.
    pub indirect: bool,
}

// Both programs: r3 rounds, r4 the address that `\name` has. They change r0, r3,
// r5 to r8, LK, CTR, TAR and CR fields 0, 6, which a callee may (TAR is nobody's).
// `site` adds a branch to the table of the program.
global_asm!(
    ".macro site name, from, to, kind, filters, indirect=0",
    ".pushsection .rodata.\\name, \"a\", @progbits",
    ".8byte \\from - \\name, \\to - \\name, \\kind, {any} | \\filters, \\indirect",
    ".popsection",
    ".endm",
    ".macro program name",
    ".pushsection .rodata.\\name, \"a\", @progbits",
    ".p2align 3",
    "\\name\\()_sites:",
    ".popsection",
    ".globl \\name",
    ".type \\name, @function",
    ".p2align 12",
    "\\name:",
    "mflr 0",
    "cmpd 6, 3, 3",
    ".endm",
    ".macro program_end name",
    "mtlr 0",
    "blr",
    "\\name\\()_end:",
    ".size \\name, . - \\name",
    // Where the program, its code's end and its table are, for Rust.
    ".pushsection .data.rel.ro.\\name, \"aw\", @progbits",
    ".p2align 3",
    ".globl \\name\\()_parts",
    "\\name\\()_parts:",
    ".8byte \\name, \\name\\()_end, \\name\\()_sites, \\name\\()_sites_end",
    ".popsection",
    ".pushsection .rodata.\\name, \"a\", @progbits",
    "\\name\\()_sites_end:",
    ".popsection",
    ".endm",
    // One branch of each kind that is of one kind only.
    "program branching_plain",
    "addi 5, 4, 15f - branching_plain",
    "addi 6, 4, 16f - branching_plain",
    "10:",
    "1: bl 14f",
    "site branching_plain, 1b, 14f, {br_call}, {any_call} | {call}",
    "site branching_plain, 14f, 2f, {br_ret}, {any_return}, 1",
    "2: mtctr 5",
    "3: bctrl",
    "site branching_plain, 3b, 15f, {br_ind_call}, {any_call} | {ind_call}, 1",
    "site branching_plain, 15f, 4f, {br_ret}, {any_return}, 1",
    "4: beq 6, 6f",
    "site branching_plain, 4b, 6f, {br_cond}, {cond}",
    "nop",
    // Never taken.
    "6: bne 6, 16f",
    "7: b 8f",
    "site branching_plain, 7b, 8f, {br_uncond}, 0",
    "nop",
    "8: mtctr 6",
    "9: bctr",
    "site branching_plain, 9b, 16f, {br_ind}, {ind_jump}, 1",
    "nop",
    "14: blr",
    "15: blr",
    "16: addic. 3, 3, -1",
    "17: bne 10b",
    "site branching_plain, 17b, 10b, {br_cond}, {cond}",
    "program_end branching_plain",
    // Conditional calls, returns and indirect branches, bdnz, the target address
    // register, and `bcl 20,31,$+4`, which is no call though it looks like one.
    "program branching_mixed",
    "addi 5, 4, 15f - branching_mixed",
    "addi 6, 4, 7f - branching_mixed",
    "addi 7, 4, 12f - branching_mixed",
    "10:",
    "1: bcl 12, 26, 14f",
    "site branching_mixed, 1b, 14f, {br_cond_call}, {any_call} | {call} | {cond}",
    "site branching_mixed, 14f, 2f, {br_cond_ret}, {any_return} | {cond}, 1",
    "2: mtctr 5",
    "3: beqctrl 6",
    "site branching_mixed, 3b, 15f, {br_ind_call}, {any_call} | {ind_call} | {cond}, 1",
    "site branching_mixed, 15f, 4f, {br_ret}, {any_return}, 1",
    "4: bcl 20, 31, 5f",
    "site branching_mixed, 4b, 5f, {br_uncond}, 0",
    "5: mtctr 6",
    "6: beqctr 6",
    "site branching_mixed, 6b, 7f, {br_ind}, {ind_jump} | {cond}, 1",
    "nop",
    "7: li 8, 2",
    "mtctr 8",
    "8: bdnz 9f",
    "site branching_mixed, 8b, 9f, {br_cond}, {cond}",
    "nop",
    "9: mtspr 815, 7",
    // bctar, which not every assembler knows.
    "11: .long 0x4e800460",
    "site branching_mixed, 11b, 12f, {br_ind}, {ind_jump}, 1",
    "nop",
    "14: beqlr 6",
    "15: blr",
    "18: blr",
    "12: addi 8, 4, 18b - branching_mixed",
    "mtspr 815, 8",
    // bctarl.
    "13: .long 0x4e800461",
    "site branching_mixed, 13b, 18b, {br_ind_call}, {any_call} | {ind_call}, 1",
    "site branching_mixed, 18b, 16f, {br_ret}, {any_return}, 1",
    "16: addic. 3, 3, -1",
    "17: bne 10b",
    "site branching_mixed, 17b, 10b, {br_cond}, {cond}",
    "program_end branching_mixed",
    ".purgem site",
    ".purgem program",
    ".purgem program_end",
    any = const ANY,
    any_call = const ANY_CALL,
    any_return = const ANY_RETURN,
    ind_call = const IND_CALL,
    cond = const COND,
    call = const CALL,
    ind_jump = const IND_JUMP,
    br_cond = const sys::PERF_BR_COND,
    br_uncond = const sys::PERF_BR_UNCOND,
    br_ind = const sys::PERF_BR_IND,
    br_call = const sys::PERF_BR_CALL,
    br_ind_call = const sys::PERF_BR_IND_CALL,
    br_ret = const sys::PERF_BR_RET,
    br_cond_call = const sys::PERF_BR_COND_CALL,
    br_cond_ret = const sys::PERF_BR_COND_RET,
);

/// What the assembler left behind each program.
#[repr(C)]
struct Parts {
    start: u64,
    end: u64,
    sites: *const [u64; 5],
    sites_end: *const [u64; 5],
}

unsafe extern "C" {
    static branching_plain_parts: Parts;
    static branching_mixed_parts: Parts;
}

/// A program at some place in memory.
#[derive(Debug, Clone)]
pub struct Program {
    code: Range<u64>,
    sites: Vec<Site>,
}

impl Program {
    /// Calls, returns, jumps, each direct and indirect, and conditional jumps.
    pub fn plain() -> Program {
        // SAFETY: the table that the assembler made.
        Program::of(unsafe { &branching_plain_parts })
    }

    /// What is of several kinds at once: conditional calls and returns, and so on.
    pub fn mixed() -> Program {
        // SAFETY: the table that the assembler made.
        Program::of(unsafe { &branching_mixed_parts })
    }

    fn of(parts: &Parts) -> Program {
        // SAFETY: both point into one table, of the program's branches.
        let count = unsafe { parts.sites_end.offset_from(parts.sites) } as usize;
        // SAFETY: as above.
        let table = unsafe { slice::from_raw_parts(parts.sites, count) };
        let sites = table
            .iter()
            .map(|&[from, to, kind, filters, indirect]| Site {
                from: parts.start + from,
                to: parts.start + to,
                kind,
                filters,
                indirect: indirect != 0,
            });
        Program {
            code: parts.start..parts.end,
            sites: sites.collect(),
        }
    }

    /// The same program in memory of its own, which stays mapped.
    pub fn copy(&self) -> io::Result<Program> {
        let length = (self.code.end - self.code.start) as usize;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let source = self.code.start as *const u8;
        // SAFETY: the code is readable, the mapping as long and not in use yet.
        unsafe { std::ptr::copy_nonoverlapping(source, base.cast(), length) };
        let start = base as u64;
        // As a processor's book has it: Power ISA v3.1 Book II, "Instruction Cache".
        for address in (start..start + length as u64).step_by(32) {
            // SAFETY: the addresses are those of the mapping.
            unsafe { asm!("dcbst 0, {0}", "sync", "icbi 0, {0}", "isync", in(reg) address) };
        }
        let moved = |address: u64| address - self.code.start + start;
        let sites = self.sites.iter().map(|site| Site {
            from: moved(site.from),
            to: moved(site.to),
            ..*site
        });
        Ok(Program {
            code: start..moved(self.code.end),
            sites: sites.collect(),
        })
    }

    /// Where its code is.
    pub fn code(&self) -> Range<u64> {
        self.code.clone()
    }

    /// Its branches, in the order in which a round takes them.
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// Its branches that one of the filters by type wants.
    pub fn wanted(&self, filter: u64) -> Vec<Site> {
        let wanted = self.sites.iter().filter(|site| site.filters & filter != 0);
        wanted.copied().collect()
    }

    /// Goes through the loop `rounds` times (at least once).
    pub fn run(&self, rounds: u64) {
        // SAFETY: `code` is one of the two programs, or a copy of one; they use no
        // TOC, so there is one entry point, and change volatile registers only.
        let entry: extern "C" fn(u64, u64) = unsafe { std::mem::transmute(self.code.start) };
        entry(rounds.max(1), self.code.start);
    }

    /// Whether `stack`, newest first, has what this program's last branches were,
    /// as far as the filter wants them: none missing between two of them.
    pub fn explains(&self, stack: &[Branch], filter: u64) -> Result<(), String> {
        let wanted = self.wanted(filter);
        let Some(newest) = stack.first() else {
            return Ok(());
        };
        let ends = |branch: &Branch| format!("{:#x} -> {:#x}", branch.from, branch.to);
        let Some(start) = wanted.iter().position(|site| site.from == newest.from) else {
            return Err(format!("{} is not wanted", ends(newest)));
        };
        // Backwards from there, around and around.
        let order = wanted[..=start]
            .iter()
            .rev()
            .chain(wanted.iter().rev().cycle().take(stack.len()));
        for (index, (branch, site)) in stack.iter().zip(order).enumerate() {
            if (branch.from, branch.to) != (site.from, site.to) {
                return Err(format!(
                    "entry {index} is {}, not {:#x} -> {:#x}",
                    ends(branch),
                    site.from,
                    site.to
                ));
            }
        }
        Ok(())
    }
}
