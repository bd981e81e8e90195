// SPDX-License-Identifier: GPL-2.0

//! Branches: entries of the BHRB, branch instructions, and filters.

pub(super) mod bhrb;
pub(super) mod decode;
pub(super) mod filter;
