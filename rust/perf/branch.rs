// SPDX-License-Identifier: GPL-2.0

//! Branch stacks: which branches an event's samples are to hold, and the entries themselves.
//!
//! C header: [`include/uapi/linux/perf_event.h`](srctree/include/uapi/linux/perf_event.h),
//! `enum perf_branch_sample_type`, `struct perf_branch_entry`

use super::bindings;
use core::{
    mem::MaybeUninit,
    ptr::NonNull, //
};

/// `PERF_SAMPLE_BRANCH_*`: which branches a stack is to hold, and what of each.
///
/// perf core checks that the caller may see the privilege levels that are asked for, and fills in
/// those of the event when none are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BranchSample(pub(super) u64);

/// The tests for single bits.
macro_rules! bits {
    ($($(#[$doc:meta])* $name:ident: $bit:ident),* $(,)?) => { $(
        $(#[$doc])*
        pub(crate) fn $name(self) -> bool {
            // CAST: bindgen gives the constants of the enumeration as 32-bit values.
            self.0 & u64::from(bindings::$bit) != 0
        }
    )* };
}

impl BranchSample {
    /// As user space says it.
    #[cfg(EBB_KUNIT)]
    pub(crate) fn new(bits: u32) -> Self {
        Self(bits.into())
    }

    bits! {
        /// Branches of programs.
        user: perf_branch_sample_type_PERF_SAMPLE_BRANCH_USER,
        /// Branches of the kernel.
        kernel: perf_branch_sample_type_PERF_SAMPLE_BRANCH_KERNEL,
        /// Every branch.
        any: perf_branch_sample_type_PERF_SAMPLE_BRANCH_ANY,
        /// Every call, whether direct or indirect.
        any_call: perf_branch_sample_type_PERF_SAMPLE_BRANCH_ANY_CALL,
        /// Every return.
        any_return: perf_branch_sample_type_PERF_SAMPLE_BRANCH_ANY_RETURN,
        /// Indirect calls.
        indirect_call: perf_branch_sample_type_PERF_SAMPLE_BRANCH_IND_CALL,
        /// Conditional branches.
        conditional: perf_branch_sample_type_PERF_SAMPLE_BRANCH_COND,
        /// Indirect jumps.
        indirect_jump: perf_branch_sample_type_PERF_SAMPLE_BRANCH_IND_JUMP,
        /// Direct calls.
        call: perf_branch_sample_type_PERF_SAMPLE_BRANCH_CALL,
        /// Aborts of transactions.
        transaction_abort: perf_branch_sample_type_PERF_SAMPLE_BRANCH_ABORT_TX,
        /// Branches inside transactions.
        in_transaction: perf_branch_sample_type_PERF_SAMPLE_BRANCH_IN_TX,
        /// Branches outside transactions.
        no_transaction: perf_branch_sample_type_PERF_SAMPLE_BRANCH_NO_TX,
        /// The calls that have not returned yet, instead of the last branches.
        call_stack: perf_branch_sample_type_PERF_SAMPLE_BRANCH_CALL_STACK,
        /// Without what is known of the prediction.
        no_flags: perf_branch_sample_type_PERF_SAMPLE_BRANCH_NO_FLAGS,
        /// With the type of each branch.
        save_type: perf_branch_sample_type_PERF_SAMPLE_BRANCH_TYPE_SAVE,
        /// With the index of the newest entry in the hardware's buffer.
        hw_index: perf_branch_sample_type_PERF_SAMPLE_BRANCH_HW_INDEX,
        /// With the privilege level of each branch.
        save_privilege: perf_branch_sample_type_PERF_SAMPLE_BRANCH_PRIV_SAVE,
        /// With counts of events at each branch.
        counters: perf_branch_sample_type_PERF_SAMPLE_BRANCH_COUNTERS,
    }

    /// Number of wishes other than privilege levels.
    pub(crate) fn count(self) -> u32 {
        // CAST: As above.
        let levels = bindings::perf_branch_sample_type_PERF_SAMPLE_BRANCH_USER
            | bindings::perf_branch_sample_type_PERF_SAMPLE_BRANCH_KERNEL
            | bindings::perf_branch_sample_type_PERF_SAMPLE_BRANCH_HV;
        (self.0 & !u64::from(levels)).count_ones()
    }
}

/// What is said of a branch beside where it went: the bit fields of `struct perf_branch_entry`, on a
/// little-endian machine from the least significant bit up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct BranchFields(u64);

impl BranchFields {
    /// Nothing.
    pub(crate) const NONE: Self = Self(0);
    /// It was predicted wrongly.
    pub(crate) const MISPREDICTED: Self = Self(1 << 0);
    /// It was predicted rightly.
    pub(crate) const PREDICTED: Self = Self(1 << 1);

    /// A conditional branch to a fixed target.
    pub(crate) const CONDITIONAL: Self = Self::branch_type(bindings::PERF_BR_COND);
    /// A jump to a fixed target.
    pub(crate) const UNCONDITIONAL: Self = Self::branch_type(bindings::PERF_BR_UNCOND);
    /// A jump to a computed target.
    pub(crate) const INDIRECT: Self = Self::branch_type(bindings::PERF_BR_IND);
    /// A call of a fixed target.
    pub(crate) const CALL: Self = Self::branch_type(bindings::PERF_BR_CALL);
    /// A call of a computed target.
    pub(crate) const INDIRECT_CALL: Self = Self::branch_type(bindings::PERF_BR_IND_CALL);
    /// A return.
    pub(crate) const RETURN: Self = Self::branch_type(bindings::PERF_BR_RET);
    /// A call that depends on a condition.
    pub(crate) const CONDITIONAL_CALL: Self = Self::branch_type(bindings::PERF_BR_COND_CALL);
    /// A return that depends on a condition.
    pub(crate) const CONDITIONAL_RETURN: Self = Self::branch_type(bindings::PERF_BR_COND_RET);

    /// A program took it.
    pub(crate) const USER: Self = Self::privilege(bindings::PERF_BR_PRIV_USER);
    /// The kernel took it.
    pub(crate) const KERNEL: Self = Self::privilege(bindings::PERF_BR_PRIV_KERNEL);

    /// The field `type`.
    const fn branch_type(value: u32) -> Self {
        // CAST: To a wider type, for which `From` is not constant.
        Self((value as u64) << 20)
    }

    /// The field `priv`.
    const fn privilege(value: u32) -> Self {
        // CAST: As above.
        Self((value as u64) << 30)
    }

    /// Both of what is said, which must be of different things.
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
    /// A branch of the instruction at `from` to `to`, 0 for a target that is not known.
    #[inline]
    pub(crate) fn new(from: u64, to: u64, fields: BranchFields) -> Self {
        Self { from, to, fields }
    }
}

/// The index of the newest entry where the hardware has none (`hw_idx`).
const NO_INDEX: u64 = u64::MAX;

/// A stack of branches, the newest first: `struct perf_branch_stack` with room for its entries.
///
/// # Invariants
///
/// `nr` is at most [`BranchStack::CAPACITY`], and so many of the entries are initialised.
#[repr(C)]
pub(crate) struct BranchStack {
    nr: u64,
    hw_idx: u64,
    entries: [MaybeUninit<BranchEntry>; BranchStack::CAPACITY],
}

const _: () = assert!(
    core::mem::offset_of!(BranchStack, entries)
        == core::mem::offset_of!(bindings::perf_branch_stack, entries)
);

impl BranchStack {
    /// Most entries that a stack holds.
    pub(crate) const CAPACITY: usize = 32;

    /// A stack without branches.
    #[inline]
    pub(crate) fn new() -> Self {
        // INVARIANT: No entry is claimed.
        Self {
            nr: 0,
            hw_idx: NO_INDEX,
            entries: [const { MaybeUninit::uninit() }; Self::CAPACITY],
        }
    }

    /// Appends a branch, older than those that are there; without effect when there is no room.
    #[inline]
    pub(crate) fn push(&mut self, entry: BranchEntry) {
        // CAST: At most `CAPACITY` by the type invariants.
        if let Some(free) = self.entries.get_mut(self.nr as usize) {
            free.write(entry);
            // INVARIANT: One more is initialised.
            self.nr += 1;
        }
    }

    /// Number of branches.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.nr
    }

    /// Leaves out all branches but the newest `max`.
    pub(super) fn truncate(&mut self, max: u64) {
        // INVARIANT: No more than before.
        self.nr = self.nr.min(max);
    }

    /// The stack as C takes it, valid as long as the borrow.
    pub(super) fn as_raw(&mut self) -> NonNull<bindings::perf_branch_stack> {
        // The layout is that of the C structure, with the entries behind it.
        NonNull::from(self).cast()
    }
}
