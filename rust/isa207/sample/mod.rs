// SPDX-License-Identifier: GPL-2.0

//! What a sample's registers say about the sampled instruction.

pub(super) mod instruction;
pub(super) mod memory_access;
