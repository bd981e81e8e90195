// SPDX-License-Identifier: GPL-2.0

//! Decodes a sample's registers, which describe the sampled instruction.

pub(super) mod instruction;
pub(super) mod memory_access;
