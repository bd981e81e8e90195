// SPDX-License-Identifier: GPL-2.0

//! Branch stacks: `struct perf_branch_stack` and its entries.
//!
//! C headers: [`include/uapi/linux/perf_event.h`](srctree/include/uapi/linux/perf_event.h)
//! (`struct perf_branch_entry`), [`include/linux/perf_event.h`](srctree/include/linux/perf_event.h)

use super::bindings;
use core::{
    mem::{
        offset_of,
        MaybeUninit, //
    },
    ptr::NonNull, //
};
use kernel::prelude::*;

/// The data in a branch entry other than the addresses: the bit fields of `struct
/// perf_branch_entry`. A little-endian machine starts with the least significant bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct BranchFields(u64);

impl BranchFields {
    /// No field is set.
    pub(crate) const NONE: Self = Self(0);
    /// `mispred`: the processor predicted a different target or direction.
    pub(crate) const MISPRED: Self = Self(1 << 0);
    /// `predicted`: the processor predicted the branch correctly.
    pub(crate) const PREDICTED: Self = Self(1 << 1);

    /// A conditional branch to a fixed target.
    pub(crate) const COND: Self = Self::branch_type(bindings::PERF_BR_COND);
    /// A jump to a fixed target.
    pub(crate) const UNCOND: Self = Self::branch_type(bindings::PERF_BR_UNCOND);
    /// A jump to a computed target.
    pub(crate) const IND: Self = Self::branch_type(bindings::PERF_BR_IND);
    /// A call of a fixed target.
    pub(crate) const CALL: Self = Self::branch_type(bindings::PERF_BR_CALL);
    /// A call of a computed target.
    pub(crate) const IND_CALL: Self = Self::branch_type(bindings::PERF_BR_IND_CALL);
    /// A return.
    pub(crate) const RET: Self = Self::branch_type(bindings::PERF_BR_RET);
    /// A conditional call.
    pub(crate) const COND_CALL: Self = Self::branch_type(bindings::PERF_BR_COND_CALL);
    /// A conditional return.
    pub(crate) const COND_RET: Self = Self::branch_type(bindings::PERF_BR_COND_RET);

    /// The branch was in problem state.
    pub(crate) const PRIV_USER: Self = Self::privilege(bindings::PERF_BR_PRIV_USER);
    /// The branch was in the kernel.
    pub(crate) const PRIV_KERNEL: Self = Self::privilege(bindings::PERF_BR_PRIV_KERNEL);

    /// Returns the field `type`.
    const fn branch_type(value: u32) -> Self {
        // CAST: `u64` is wider than `u32`, and `From` is not const.
        Self((value as u64) << 20)
    }

    /// Returns the field `priv`.
    const fn privilege(value: u32) -> Self {
        // CAST: `u64` is wider than `u32`, and `From` is not const.
        Self((value as u64) << 30)
    }

    /// Returns the fields of both. They must not both set the type, or both the privilege level.
    #[inline]
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A taken branch: `struct perf_branch_entry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct BranchEntry {
    from: u64,
    to: u64,
    fields: BranchFields,
}

const _: () = assert!(size_of::<BranchEntry>() == size_of::<bindings::perf_branch_entry>());

impl BranchEntry {
    /// Makes the branch from the instruction at `from` to the one at `to`, which is 0 if the target
    /// is unknown.
    #[inline]
    pub(crate) fn new(from: u64, to: u64, fields: BranchFields) -> Self {
        Self { from, to, fields }
    }
}

/// `hw_idx` of a stack if the hardware has no index of the newest entry.
const NO_HW_IDX: u64 = u64::MAX;

/// A branch stack, the newest branch first: `struct perf_branch_stack` with room for its entries.
///
/// # Invariants
///
/// `nr` is at most [`BranchStack::CAPACITY`], and the first `nr` entries are initialised.
#[repr(C)]
pub(crate) struct BranchStack {
    nr: u64,
    hw_idx: u64,
    entries: [MaybeUninit<BranchEntry>; BranchStack::CAPACITY],
}

const _: () =
    assert!(offset_of!(BranchStack, entries) == offset_of!(bindings::perf_branch_stack, entries));

impl BranchStack {
    /// The largest number of entries in a stack.
    pub(crate) const CAPACITY: usize = 32;

    /// Makes an empty stack.
    #[inline]
    pub(crate) fn new() -> Self {
        // INVARIANT: `nr` is 0.
        Self {
            nr: 0,
            hw_idx: NO_HW_IDX,
            entries: [const { MaybeUninit::uninit() }; Self::CAPACITY],
        }
    }

    /// Replaces the contents by the newest `max` of these branches, which come newest first, or by
    /// fewer if the stack has no room for them.
    #[inline]
    pub(crate) fn fill(&mut self, max: u16, branches: impl Iterator<Item = BranchEntry>) {
        let mut nr = 0;
        for (free, branch) in self.entries.iter_mut().take(max.into()).zip(branches) {
            free.write(branch);
            nr += 1;
        }
        // INVARIANT: The first `nr` entries were initialised, and there are at most `CAPACITY`.
        self.nr = nr;
    }

    /// Returns the number of branches.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.nr
    }

    /// Drops all branches except the newest `max`.
    pub(super) fn truncate(&mut self, max: u64) {
        // INVARIANT: `nr` does not grow.
        self.nr = self.nr.min(max);
    }

    /// Returns the stack as a pointer for C, valid as long as the borrow.
    pub(super) fn as_raw(&mut self) -> NonNull<bindings::perf_branch_stack> {
        // The layout is that of the C structure, followed by the entries.
        NonNull::from(self).cast()
    }
}
