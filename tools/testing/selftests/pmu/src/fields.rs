// SPDX-License-Identifier: GPL-2.0
//! Bits of perf_event_open(2)'s `sample_type` and `branch_sample_type` as 64-bit constants. (The
//! bindings have them with the width of the C compiler's `unsigned int`.)

/// Defines constants named as in the bindings, without the prefix that all of them share.
macro_rules! wide {
    ($($name:ident = $bit:ident),* $(,)?) => {
        $(
            #[doc = concat!("`", stringify!($bit), "`")]
            pub const $name: u64 = perf_event::sys::$bit as u64;
        )*
    };
}

/// Fields of a sample.
pub mod sample {
    wide! {
        IP = PERF_SAMPLE_IP,
        TID = PERF_SAMPLE_TID,
        TIME = PERF_SAMPLE_TIME,
        ADDR = PERF_SAMPLE_ADDR,
        READ = PERF_SAMPLE_READ,
        CALLCHAIN = PERF_SAMPLE_CALLCHAIN,
        BRANCH_STACK = PERF_SAMPLE_BRANCH_STACK,
        REGS_USER = PERF_SAMPLE_REGS_USER,
        REGS_INTR = PERF_SAMPLE_REGS_INTR,
        STACK_USER = PERF_SAMPLE_STACK_USER,
        WEIGHT = PERF_SAMPLE_WEIGHT,
        DATA_SRC = PERF_SAMPLE_DATA_SRC,
        WEIGHT_STRUCT = PERF_SAMPLE_WEIGHT_STRUCT,
    }
}

/// Branches that a stack holds, and fields of each.
pub mod branch {
    wide! {
        USER = PERF_SAMPLE_BRANCH_USER,
        KERNEL = PERF_SAMPLE_BRANCH_KERNEL,
        HV = PERF_SAMPLE_BRANCH_HV,
        ANY = PERF_SAMPLE_BRANCH_ANY,
        ANY_CALL = PERF_SAMPLE_BRANCH_ANY_CALL,
        ANY_RETURN = PERF_SAMPLE_BRANCH_ANY_RETURN,
        IND_CALL = PERF_SAMPLE_BRANCH_IND_CALL,
        COND = PERF_SAMPLE_BRANCH_COND,
        IND_JUMP = PERF_SAMPLE_BRANCH_IND_JUMP,
        CALL = PERF_SAMPLE_BRANCH_CALL,
        NO_FLAGS = PERF_SAMPLE_BRANCH_NO_FLAGS,
        NO_CYCLES = PERF_SAMPLE_BRANCH_NO_CYCLES,
        TYPE_SAVE = PERF_SAMPLE_BRANCH_TYPE_SAVE,
        HW_INDEX = PERF_SAMPLE_BRANCH_HW_INDEX,
        PRIV_SAVE = PERF_SAMPLE_BRANCH_PRIV_SAVE,
    }
}
