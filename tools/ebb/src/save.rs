// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers that an EBB saves; they determine the entry.

use crate::entry;

/// The registers of the program that a handler cannot change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Save {
    /// GPRs, CR, LR, CTR, XER and TAR. The handler and everything that it calls must be compiled
    /// without vector and floating-point instructions: in C with `-mno-altivec -mno-vsx
    /// -msoft-float`, in Rust with `-C target-feature=-altivec,-vsx,-hard-float` or after checking
    /// the compiled code. Costs about 110 instructions per EBB.
    Gprs,
    /// Saves as [`Gprs`](Self::Gprs) does, and stores r14 to r31 for the handler to read. The
    /// handler preserves these itself, as any function does. Costs 18 stores.
    AllGprs,
    /// In addition FPSCR, VSCR and VSR 0-51: all that a function of the ELFv2 ABI may change.
    Full,
}

impl Save {
    pub(crate) fn entry(self) -> u64 {
        match self {
            Self::Gprs => entry::ebb_entry_gprs as *const () as u64,
            Self::AllGprs => entry::ebb_entry_all_gprs as *const () as u64,
            Self::Full => entry::ebb_entry_full as *const () as u64,
        }
    }
}
