// SPDX-License-Identifier: GPL-2.0
//! Programs whose branches are all known: the address and the target of each, perf's type for it,
//! and the filters that select it. The tables come from the assembler's labels, so no code here
//! decodes instructions.
//!
//! A program is a loop. Each round takes every branch once, in the order of the table, and the last
//! branch leads back to the top. The program computes its targets from the address that it gets as
//! an argument, so a copy works at any address.

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

/// The filters by branch type, each with perf's name for it.
pub const FILTERS: [(&str, u64); 7] = [
    ("any", ANY),
    ("any_call", ANY_CALL),
    ("any_ret", ANY_RETURN),
    ("ind_call", IND_CALL),
    ("cond", COND),
    ("call", CALL),
    ("ind_jmp", IND_JUMP),
];

/// Returns perf's names of the type filters that are set in `filter`.
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
    /// The type filters that select it.
    pub filters: u64,
    /// Whether its target is in a register.
    pub indirect: bool,
}

// Both programs take the number of rounds in r3 and the address of `\name` in r4. They change r0,
// r3, r5 to r8, LR, CTR, TAR and the CR fields 0 and 6. The ABI allows that to a callee, except for
// TAR, which no compiled code uses. The macro `site` adds a branch to the program's table.
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
    // The addresses of the program, of the end of its code, and of its table, for Rust.
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
    // One branch of each type, none of which belongs to two types.
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
    // This branch is never taken.
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
    // Conditional calls, returns and indirect branches, bdnz, the target address register, and
    // `bcl 20,31,$+4`, which looks like a call and is none.
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
    // bctar. Some assemblers do not know it.
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

/// The addresses that the assembler stores for each program.
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

/// A program at an address in memory.
#[derive(Debug, Clone)]
pub struct Program {
    code: Range<u64>,
    sites: Vec<Site>,
}

impl Program {
    /// Returns the program with direct and indirect calls and jumps, returns, and conditional
    /// jumps.
    pub fn plain() -> Program {
        // SAFETY: The assembler source above defines this constant table.
        Program::of(unsafe { &branching_plain_parts })
    }

    /// Returns the program with branches of several types at once, such as conditional calls and
    /// returns.
    pub fn mixed() -> Program {
        // SAFETY: The assembler source above defines this constant table.
        Program::of(unsafe { &branching_mixed_parts })
    }

    fn of(parts: &Parts) -> Program {
        // SAFETY: The assembler source above puts both labels into one table, the program's.
        let count = unsafe { parts.sites_end.offset_from(parts.sites) } as usize;
        // SAFETY: The table has `count` entries between the two labels, and is never written.
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

    /// Returns a copy of the program in memory of its own, which is never unmapped.
    pub fn copy(&self) -> io::Result<Program> {
        let length = (self.code.end - self.code.start) as usize;
        // SAFETY: This makes a new mapping at an address that the kernel chooses.
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
        // SAFETY: The code is readable, and the new mapping is as long and not yet in use.
        unsafe { std::ptr::copy_nonoverlapping(source, base.cast(), length) };
        let start = base as u64;
        // Make the copied code visible to instruction fetch (Power ISA v3.1, Book II, "Instruction
        // Cache").
        for address in (start..start + length as u64).step_by(32) {
            // SAFETY: The addresses lie in the new mapping.
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

    /// Returns the addresses of the code.
    pub fn code(&self) -> Range<u64> {
        self.code.clone()
    }

    /// Returns the branches, in the order in which a round takes them.
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// Returns the branches that at least one of the type filters in `filter` selects.
    pub fn wanted(&self, filter: u64) -> Vec<Site> {
        let wanted = self.sites.iter().filter(|site| site.filters & filter != 0);
        wanted.copied().collect()
    }

    /// Runs the loop `rounds` times, at least once.
    pub fn run(&self, rounds: u64) {
        // SAFETY: `code` is one of the two programs or a copy of one. They use no TOC, so they have
        // a single entry point, and they change volatile registers only.
        let entry: extern "C" fn(u64, u64) = unsafe { std::mem::transmute(self.code.start) };
        entry(rounds.max(1), self.code.start);
    }

    /// Checks that `stack`, newest entry first, holds consecutive branches of this program, as far
    /// as `filter` selects them: no selected branch is missing between two entries.
    pub fn explains(&self, stack: &[Branch], filter: u64) -> Result<(), String> {
        let wanted = self.wanted(filter);
        let Some(newest) = stack.first() else {
            return Ok(());
        };
        let ends = |branch: &Branch| format!("{:#x} -> {:#x}", branch.from, branch.to);
        let Some(start) = wanted.iter().position(|site| site.from == newest.from) else {
            return Err(format!("{} is not wanted", ends(newest)));
        };
        // The expected order: backwards from the newest branch, around the loop again and again.
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
