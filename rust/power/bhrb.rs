// SPDX-License-Identifier: GPL-2.0

//! The Branch History Rolling Buffer (BHRB): the last branches that this CPU took.
//!
//! Power ISA, Book III, chapter "Performance Monitor Facility", section "Branch History Rolling
//! Buffer". `isa207` decodes the entries.

use super::{
    machine,
    spr::{
        self,
        BHRB_ENTRIES, //
    }, //
};
use core::mem::MaybeUninit;

/// A copy of the buffer.
pub(crate) struct Bhrb([MaybeUninit<u64>; BHRB_ENTRIES]);

impl Bhrb {
    /// Makes room for a copy of the buffer.
    #[inline]
    pub(crate) fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; BHRB_ENTRIES])
    }

    /// Copies the buffer of this CPU and returns its entries, the newest first.
    ///
    /// The BHRB must not be recording. It does not record while MMCR0\[PMAE\] is 0, and so not
    /// after an alert. There are no entries on a machine without a BHRB, where its instructions are
    /// illegal.
    ///
    /// Returns `None` if another partition may have had the CPU since [`LocalPmu::clear_bhrb`]
    /// cleared the BHRB and returned `dispatches` (see [`machine::dispatches`]). No hypervisor
    /// saves the BHRB, so it may hold branches of that partition.
    ///
    /// [`LocalPmu::clear_bhrb`]: super::pmu::LocalPmu::clear_bhrb
    #[inline]
    pub(crate) fn read(&mut self, dispatches: u32) -> Option<&[u64]> {
        if !machine::has_bhrb() {
            return Some(&[]);
        }
        let len = spr::read_bhrb(&mut self.0);
        // Check after the read: a partition that ran during the read has left its branches, too.
        if machine::dispatches() != dispatches {
            return None;
        }
        // SAFETY: `read_bhrb` wrote the first `len` entries.
        Some(unsafe { core::slice::from_raw_parts(self.0.as_ptr().cast(), len) })
    }
}
