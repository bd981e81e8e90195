// SPDX-License-Identifier: MIT OR Apache-2.0
//! The branches of a sample: which are recorded, and where those led that the BHRB has without their
//! targets. That is in their instructions.

use std::collections::HashMap;
use std::path::Path;

use ebb::bhrb::Branches;
use ebb::config::Ifm;

use crate::Failure;
use crate::image::Image;
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

/// The code of files that were asked for before.
#[derive(Default)]
pub struct Code(HashMap<String, Option<Image>>);

impl Code {
    /// What the entries of the BHRB say. `place` finds the file of an address, and where it is there.
    pub fn branches<'a>(
        &mut self,
        entries: &[u64],
        place: impl Fn(u64) -> Option<(&'a str, u64)>,
    ) -> Vec<Branch> {
        let known = |branch: ebb::bhrb::Branch| {
            let target = || place(branch.from).and_then(|at| self.target(branch.from, at));
            Branch {
                from: branch.from,
                to: branch.to.or_else(target).unwrap_or(0),
                mispredicted: branch.mispredicted,
            }
        };
        Branches::decode(entries).map(known).collect()
    }

    /// The target of the branch at `from`, which is at `offset` in `path`.
    fn target(&mut self, from: u64, (path, offset): (&str, u64)) -> Option<u64> {
        if !self.0.contains_key(path) {
            self.0.insert(path.to_string(), Image::open(Path::new(path)));
        }
        let image = self.0.get(path)?.as_ref()?;
        let start = usize::try_from(offset).ok()?;
        let bytes = image.get(start..)?.first_chunk()?;
        target(from, u32::from_le_bytes(*bytes))
    }
}
