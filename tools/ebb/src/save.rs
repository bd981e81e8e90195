// SPDX-License-Identifier: MIT OR Apache-2.0
//! The choice of registers that an EBB keeps, and so of the entry.

use crate::entry;

/// Which registers of the program are safe from the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Save {
    /// GPRs, CR, LR, CTR, XER and TAR. The handler and all that it calls must be compiled
    /// without vector and floating-point instructions: in C by `-mno-altivec -mno-vsx
    /// -msoft-float`, in Rust by `-C target-feature=-altivec,-vsx,-hard-float` or by a look at
    /// what became of it. Costs some hundred instructions an EBB.
    Gprs,
    /// [`Gprs`](Self::Gprs), and the handler can read r14 to r31, which it keeps itself as any
    /// function does. Costs 18 stores.
    AllGprs,
    /// Also FPSCR, VSCR and VSR 0-51: all that a function of the ELFv2 ABI may change.
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
