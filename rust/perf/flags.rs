// SPDX-License-Identifier: GPL-2.0

//! The flag words of perf core's interface, and their single flags.
//!
//! C headers: [`include/linux/perf_event.h`](srctree/include/linux/perf_event.h) (`PERF_EF_*`,
//! `PERF_PMU_CAP_*`), [`include/uapi/linux/perf_event.h`](srctree/include/uapi/linux/perf_event.h)
//! (`PERF_SAMPLE_*`, `PERF_SAMPLE_BRANCH_*`)

// The macro makes every operator and method for every word, and some are not used.
#![allow(dead_code, unreachable_pub)]

use super::bindings;
use kernel::{
    impl_flags,
    prelude::*, //
};

impl_flags!(
    /// Flag of a callback that adds, starts, stops or deletes an event (`PERF_EF_*`).
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct EventFlags(u32);

    /// One of [`EventFlags`].
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum EventFlag {
        /// Start the counter of the added event (`PERF_EF_START`).
        Start = bindings::PERF_EF_START,
    }
);

impl EventFlags {
    pub(super) fn from_raw(flags: c_int) -> Self {
        // CAST: The value is a bit pattern, which C passes as a signed integer.
        Self(flags as u32)
    }
}

impl_flags!(
    /// Abilities of a PMU other than counting (`PERF_PMU_CAP_*`).
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Capabilities(u32);

    /// One of [`Capabilities`].
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Capability {
        /// Samples may contain the architecture's additional registers
        /// (`PERF_PMU_CAP_EXTENDED_REGS`).
        ExtendedRegs = bindings::PERF_PMU_CAP_EXTENDED_REGS,
    }
);

impl Capabilities {
    /// Returns the word in the type that `struct pmu` uses.
    pub(super) fn as_raw(self) -> c_int {
        // CAST: The value is a bit pattern, which C keeps as a signed integer.
        self.0 as c_int
    }
}

/// Declares a word of 64 flags, whose constants bindgen gives as 32-bit values.
macro_rules! flags_u64 {
    (
        $(#[$word_meta:meta])* $word:ident;
        $(#[$flag_meta:meta])* $flag:ident { $($(#[$doc:meta])* $name:ident = $bit:ident,)+ }
    ) => {
        impl_flags!(
            $(#[$word_meta])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub(crate) struct $word(u64);

            $(#[$flag_meta])*
            #[derive(Clone, Copy, Debug)]
            pub(crate) enum $flag {
                // CAST: `u64` is wider than the constant's type.
                $($(#[$doc])* $name = bindings::$bit as u64,)+
            }
        );

        impl $word {
            /// Makes a word from the value that user space wrote.
            pub(crate) const fn from_raw(word: u64) -> Self {
                Self(word)
            }
        }
    };
}

flags_u64! {
    /// The contents of each sample: `sample_type` of `struct perf_event_attr`.
    SampleType;
    /// One flag of [`SampleType`], `enum perf_event_sample_format` (those that concern a driver).
    SampleFormat {
        /// The instruction's address.
        Ip = perf_event_sample_format_PERF_SAMPLE_IP,
        /// The address of the data that the instruction accessed.
        Addr = perf_event_sample_format_PERF_SAMPLE_ADDR,
        /// The physical address of the data, which perf core derives from `Addr`.
        PhysAddr = perf_event_sample_format_PERF_SAMPLE_PHYS_ADDR,
        /// The size of the data's page, which perf core derives from `Addr`.
        DataPageSize = perf_event_sample_format_PERF_SAMPLE_DATA_PAGE_SIZE,
        /// The source of the data.
        DataSrc = perf_event_sample_format_PERF_SAMPLE_DATA_SRC,
        /// A weight, as one number.
        Weight = perf_event_sample_format_PERF_SAMPLE_WEIGHT,
        /// A weight, as three numbers.
        WeightStruct = perf_event_sample_format_PERF_SAMPLE_WEIGHT_STRUCT,
        /// A stack of taken branches.
        BranchStack = perf_event_sample_format_PERF_SAMPLE_BRANCH_STACK,
        /// Registers of the program.
        RegsUser = perf_event_sample_format_PERF_SAMPLE_REGS_USER,
        /// The interrupted registers.
        RegsIntr = perf_event_sample_format_PERF_SAMPLE_REGS_INTR,
    }
}

impl SampleType {
    /// The flags that need the address of data.
    pub(crate) const DATA_ADDRESS: Self = Self(
        SampleFormat::Addr as u64
            | SampleFormat::PhysAddr as u64
            | SampleFormat::DataPageSize as u64,
    );

    /// The flags for which a driver must find or prepare data in addition to the instruction's
    /// address.
    pub(crate) const BEYOND_IP: Self = Self(
        Self::DATA_ADDRESS.0
            | SampleFormat::DataSrc as u64
            | SampleFormat::Weight as u64
            | SampleFormat::WeightStruct as u64
            | SampleFormat::BranchStack as u64
            | Self::REGISTERS.0,
    );

    /// The flags for registers, the interrupted ones or the program's.
    pub(crate) const REGISTERS: Self =
        Self(SampleFormat::RegsUser as u64 | SampleFormat::RegsIntr as u64);
}

flags_u64! {
    /// The branches in a branch stack, and the data about each: `branch_sample_type` of `struct
    /// perf_event_attr`.
    ///
    /// perf core has checked that the caller may see the requested privilege levels. If none was
    /// requested, it has set those of the event.
    BranchSampleType;
    /// One flag of [`BranchSampleType`], `enum perf_branch_sample_type`.
    BranchSample {
        /// Branches in problem state.
        User = perf_branch_sample_type_PERF_SAMPLE_BRANCH_USER,
        /// Branches in the kernel.
        Kernel = perf_branch_sample_type_PERF_SAMPLE_BRANCH_KERNEL,
        /// Branches in the hypervisor.
        Hv = perf_branch_sample_type_PERF_SAMPLE_BRANCH_HV,
        /// Every branch.
        Any = perf_branch_sample_type_PERF_SAMPLE_BRANCH_ANY,
        /// Every call, direct or indirect.
        AnyCall = perf_branch_sample_type_PERF_SAMPLE_BRANCH_ANY_CALL,
        /// Every return.
        AnyReturn = perf_branch_sample_type_PERF_SAMPLE_BRANCH_ANY_RETURN,
        /// Indirect calls.
        IndCall = perf_branch_sample_type_PERF_SAMPLE_BRANCH_IND_CALL,
        /// Aborts of transactions.
        AbortTx = perf_branch_sample_type_PERF_SAMPLE_BRANCH_ABORT_TX,
        /// Branches inside transactions.
        InTx = perf_branch_sample_type_PERF_SAMPLE_BRANCH_IN_TX,
        /// Branches outside transactions.
        NoTx = perf_branch_sample_type_PERF_SAMPLE_BRANCH_NO_TX,
        /// Conditional branches.
        Cond = perf_branch_sample_type_PERF_SAMPLE_BRANCH_COND,
        /// The calls that have not returned yet, instead of the last branches.
        CallStack = perf_branch_sample_type_PERF_SAMPLE_BRANCH_CALL_STACK,
        /// Indirect jumps.
        IndJump = perf_branch_sample_type_PERF_SAMPLE_BRANCH_IND_JUMP,
        /// Direct calls.
        Call = perf_branch_sample_type_PERF_SAMPLE_BRANCH_CALL,
        /// Entries do not show how the branch was predicted.
        NoFlags = perf_branch_sample_type_PERF_SAMPLE_BRANCH_NO_FLAGS,
        /// Entries show the type of the branch.
        TypeSave = perf_branch_sample_type_PERF_SAMPLE_BRANCH_TYPE_SAVE,
        /// The stack has the position of its newest entry in the hardware's buffer.
        HwIndex = perf_branch_sample_type_PERF_SAMPLE_BRANCH_HW_INDEX,
        /// Entries show the privilege level of the branch.
        PrivSave = perf_branch_sample_type_PERF_SAMPLE_BRANCH_PRIV_SAVE,
        /// Entries have counts of events.
        Counters = perf_branch_sample_type_PERF_SAMPLE_BRANCH_COUNTERS,
    }
}

impl BranchSampleType {
    /// Returns the number of flags other than privilege levels.
    pub(crate) fn count_without_levels(self) -> u32 {
        let levels = BranchSample::User | BranchSample::Kernel | BranchSample::Hv;
        (self.0 & !levels.0).count_ones()
    }
}
