// SPDX-License-Identifier: MIT OR Apache-2.0
//! The branches of a sample: which are recorded, and where those led that the BHRB has without their
//! targets. That is in their instructions.

use ebb::bhrb::Branches;
use ebb::config::Ifm;

use crate::Failure;
use crate::instruction::target;
use crate::perfdata::Branch;

/// Which branches are recorded, by the names that perf has for them.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Filter {
    /// All that were taken
    Any,
    /// Calls
    #[value(alias = "any_call")]
    Call,
    /// Indirect ones
    IndCall,
    /// Conditional ones
    Cond,
}

impl Filter {
    /// As the hardware has it.
    pub fn mode(self) -> Result<Ifm, Failure> {
        /// `PPC_FEATURE2_ARCH_3_1`
        const ARCH_3_1: u64 = 0x0004_0000;
        // SAFETY: asks for a number.
        let since_power10 = unsafe { libc::getauxval(libc::AT_HWCAP2) } & ARCH_3_1 != 0;
        match self {
            Self::Any => Ok(Ifm::All),
            Self::Call => Ok(Ifm::Calls),
            _ if !since_power10 => Err("this processor records any or call branches only".into()),
            Self::IndCall => Ok(Ifm::Indirect),
            Self::Cond => Ok(Ifm::Conditional),
        }
    }

    /// `PERF_SAMPLE_BRANCH_ANY` and so on.
    pub fn as_perf(self) -> u64 {
        match self {
            Self::Any => 1 << 3,
            Self::Call => 1 << 4,
            Self::IndCall => 1 << 6,
            Self::Cond => 1 << 10,
        }
    }
}

/// What the entries of the BHRB say. `instruction` finds that at an address.
pub fn decode(entries: &[u64], mut instruction: impl FnMut(u64) -> Option<u32>) -> Vec<Branch> {
    let mut known = |branch: ebb::bhrb::Branch| {
        let mut target = || target(branch.from, instruction(branch.from)?);
        Branch {
            from: branch.from,
            to: branch.to.or_else(&mut target).unwrap_or(0),
            mispredicted: branch.mispredicted,
        }
    };
    Branches::decode(entries).map(&mut known).collect()
}
