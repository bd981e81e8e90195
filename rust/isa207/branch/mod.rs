// SPDX-License-Identifier: GPL-2.0

//! Branches: what the BHRB recorded, what the instructions do, and which of them are wanted.

pub(super) mod bhrb;
pub(super) mod decode;
pub(super) mod filter;
