// SPDX-License-Identifier: GPL-2.0

//! The Branch History Rolling Buffer (BHRB): the branches that this CPU took last.
//!
//! Power ISA, Book III, chapter "Performance Monitor Facility", section "Branch History Rolling
//! Buffer"; what an entry says is a matter of pure logic.

use super::spr::{
    self,
    BHRB_ENTRIES, //
};
use core::mem::MaybeUninit;

/// Room for a copy of the buffer.
pub(crate) struct Bhrb([MaybeUninit<u64>; BHRB_ENTRIES]);

impl Bhrb {
    /// Nothing yet.
    #[inline]
    pub(crate) fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; BHRB_ENTRIES])
    }

    /// Reads the buffer of this CPU: its entries, the newest first.
    ///
    /// It must not be recording meanwhile: an alert stops it (MMCR0\[PMAE\] is 0).
    #[inline]
    pub(crate) fn read(&mut self) -> &[u64] {
        let len = spr::read_bhrb(&mut self.0);
        // SAFETY: So many entries were written just now.
        unsafe { core::slice::from_raw_parts(self.0.as_ptr().cast(), len) }
    }
}
