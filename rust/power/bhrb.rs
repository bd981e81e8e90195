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
    /// Makes room for a copy.
    #[inline]
    pub(crate) fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; BHRB_ENTRIES])
    }

    /// Copies the buffer of this CPU and returns its entries, the newest first.
    ///
    /// The BHRB must not be recording. It does not while MMCR0\[PMAE\] is 0, thus after an alert.
    /// There are none on a machine without BHRB, where its instructions are illegal.
    #[inline]
    pub(crate) fn read(&mut self) -> &[u64] {
        if !machine::has_bhrb() {
            return &[];
        }
        let len = spr::read_bhrb(&mut self.0);
        // SAFETY: `read_bhrb` has written `len` entries.
        unsafe { core::slice::from_raw_parts(self.0.as_ptr().cast(), len) }
    }
}
