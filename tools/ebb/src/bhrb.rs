// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries of the Branch History Rolling Buffer (BHRB) and how to decode them.
//!
//! Power ISA Book II, chapter "Branch History Rolling Buffer".

use crate::fixup::fixed_up_in_handler;

/// The largest number of entries of any processor (POWER8 to Power11 have 32).
pub const ENTRIES: usize = 32;

/// Entry bit 62: the address is the target of the branch in the next entry.
const TARGET: u64 = 2;
/// Entry bit 63: mispredicted; the target if `TARGET` is set, else whether the branch is taken.
const MISPREDICTED: u64 = 1;

/// A branch recorded in the BHRB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Address of the branch; 0 if the buffer has only its target.
    pub from: u64,
    /// Target of an indirect branch, if the buffer has it. The target of a direct branch is
    /// encoded in the instruction.
    pub to: Option<u64>,
    /// Whether the processor mispredicted the branch's direction or target.
    pub mispredicted: bool,
}

/// The branches in a sequence of BHRB entries, the most recent first.
#[derive(Clone, Debug)]
pub struct Branches<'a> {
    entries: &'a [u64],
}

impl<'a> Branches<'a> {
    /// Reads the buffer into `entries`: up to [`ENTRIES`], or up to the first entry that is 0.
    pub fn read(entries: &'a mut [u64]) -> Self {
        let mut length = 0;
        for (n, entry) in entries.iter_mut().take(ENTRIES).enumerate() {
            *entry = read_entry(n);
            if *entry == 0 {
                break;
            }
            length = n + 1;
        }
        Self::decode(&entries[..length])
    }

    /// Decodes entries that were read before.
    #[must_use]
    pub fn decode(entries: &'a [u64]) -> Self {
        Self { entries }
    }

    /// Returns the undecoded entries.
    #[must_use]
    pub fn as_entries(&self) -> &'a [u64] {
        self.entries
    }
}

impl Iterator for Branches<'_> {
    type Item = Branch;

    fn next(&mut self) -> Option<Branch> {
        let address = |entry: u64| entry & !(TARGET | MISPREDICTED);
        loop {
            let (&entry, rest) = self.entries.split_first()?;
            self.entries = rest;
            if entry == 0 {
                self.entries = &[];
                return None;
            }
            if address(entry) == 0 {
                // The entry has no address, so it is no branch.
                continue;
            }
            let (mut branch, mut to) = (entry, None);
            if entry & TARGET != 0 {
                (branch, to) = (0, Some(address(entry)));
                // The branch itself is in the next entry, unless the buffer ends here or has lost
                // it.
                if let Some((&next, rest)) = rest.split_first()
                    && next & TARGET == 0
                    && address(next) != 0
                {
                    self.entries = rest;
                    branch = next;
                }
            }
            return Some(Branch {
                from: address(branch),
                to,
                mispredicted: (entry | branch) & MISPREDICTED != 0,
            });
        }
    }
}

/// Returns entry `n` of the buffer, or 0 if `n` is not below [`ENTRIES`]. mfbhrbe encodes the
/// entry's number in the instruction, hence one instruction for each.
fn read_entry(n: usize) -> u64 {
    macro_rules! of {
        ($($n:literal)*) => {
            match n {
                $($n => entry::<$n>(),)*
                _ => 0,
            }
        };
    }
    of!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
}

/// Reads entry `N` (0-1023, the most recent first). 0 means that it is empty.
#[inline(always)]
#[must_use]
pub(crate) fn entry<const N: u16>() -> u64 {
    let value: u64;
    // SAFETY: mfbhrbe changes only its target register, and if it traps the fixup skips it.
    unsafe {
        core::arch::asm!(fixed_up_in_handler!("mfbhrbe {0}, {n}"), out(reg) value, n = const N,
            options(nostack, preserves_flags));
    }
    value
}
