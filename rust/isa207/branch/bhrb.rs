// SPDX-License-Identifier: GPL-2.0

//! Decodes the entries of the BHRB (branch history rolling buffer).
//!
//! `mfbhrbe` reads the most recent entry first. An I-form or B-form branch has one entry: the
//! address of the instruction. The target of an XL-form branch is in a register, so the branch has
//! two entries: the target (T set) is written last and therefore read first, then comes the
//! address. The BHRB records only branches that were taken.
//!
//! Sources: Power ISA v3.1 Book III, "Branch History Rolling Buffer" and "BHRB Entry";
//! `power_pmu_bhrb_read()` in the kernel's `arch/powerpc/perf/core-book3s.c`.

use super::super::codes::field::Field;

/// One entry of the BHRB as `mfbhrbe` reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BhrbEntry(pub u64);

impl BhrbEntry {
    /// BHRBE\[62\] T: the address is the target of an XL-form branch.
    const TARGET: Field = Field::ibm(62, 62);
    /// BHRBE\[63\] P: mispredicted. In a target entry this is about the target, in any other entry
    /// about whether the branch is taken.
    const MISPREDICTED: Field = Field::ibm(63, 63);

    /// Returns whether this entry and all after it are empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns bits 0 to 61 of the address of an instruction; `None` for an entry without one.
    pub const fn address(self) -> Option<u64> {
        let flags = Self::TARGET.mask() | Self::MISPREDICTED.mask();
        match self.0 & !flags {
            0 => None,
            address => Some(address),
        }
    }

    /// Returns whether the address is the target of the branch in the next entry.
    pub const fn is_target(self) -> bool {
        Self::TARGET.is_set(self.0)
    }

    /// Returns whether the processor mispredicted the branch.
    pub const fn is_mispredicted(self) -> bool {
        Self::MISPREDICTED.is_set(self.0)
    }
}

/// A branch that was taken, from one or two entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BhrbRecord {
    /// Address of the branch instruction.
    pub from: u64,
    /// Its target; `None` if the instruction itself holds the target
    /// ([`Branch::target`](super::super::Branch::target)).
    pub to: Option<u64>,
    /// Whether the direction or the target was mispredicted.
    pub mispredicted: bool,
}

/// Returns the branches in the BHRB, most recent first, from its entries in the order of `mfbhrbe`.
///
/// Stops at the first empty entry. Drops a target that is not followed by a branch address: the
/// address may have been overwritten.
pub fn bhrb_records(entries: impl Iterator<Item = u64>) -> impl Iterator<Item = BhrbRecord> {
    let recorded = entries.map(BhrbEntry).take_while(|entry| !entry.is_empty());
    Records(recorded)
}

struct Records<I>(I);

impl<I: Iterator<Item = BhrbEntry>> Iterator for Records<I> {
    type Item = BhrbRecord;

    #[inline]
    fn next(&mut self) -> Option<BhrbRecord> {
        // The previous entry if it is a target, otherwise an entry without an address.
        let mut target = BhrbEntry(0);
        loop {
            let entry = self.0.next()?;
            target = match entry.address() {
                None => BhrbEntry(0),
                Some(_) if entry.is_target() => entry,
                Some(from) => {
                    return Some(BhrbRecord {
                        from,
                        to: target.address(),
                        mispredicted: BhrbEntry(entry.0 | target.0).is_mispredicted(),
                    });
                }
            };
        }
    }
}
