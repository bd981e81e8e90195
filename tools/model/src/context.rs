// SPDX-License-Identifier: GPL-2.0

//! The state that a thread runs in, and the instructions that it executes.

use crate::{Branch, Trace};

/// MSR\[TS\]: the thread's transaction, before v3.1. \[kernel\] `MSR_TS_S`, `MSR_TS_T` in `asm/reg.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transaction {
    /// The thread has no transaction.
    #[default]
    None = 0b00,
    /// The transaction is suspended.
    Suspended = 0b01,
    /// The thread is in transactional state.
    Transactional = 0b10,
}

/// The state of the thread that the facility depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// MSR\[PR\]: problem state.
    pub problem: bool,
    /// MSR\[HV\].
    pub hypervisor: bool,
    /// MSR\[PMM\]: the program is marked.
    pub pmm: bool,
    /// MSR\[EE\]: external interrupts are enabled.
    pub ee: bool,
    /// CTRL\[RUN\], the run latch: the thread has work.
    pub run: bool,
    /// MSR\[TS\].
    pub transaction: Transaction,
    /// MSR\[SE\] and MSR\[BE\].
    pub trace: Trace,
}

impl Context {
    /// A program in a partition.
    pub const PROGRAM: Self = Self {
        problem: true,
        hypervisor: false,
        pmm: false,
        ee: true,
        run: true,
        transaction: Transaction::None,
        trace: Trace::Off,
    };

    /// The kernel in a partition, with interrupts off.
    pub const KERNEL: Self = Self {
        problem: false,
        ee: false,
        ..Self::PROGRAM
    };

    /// The kernel on bare metal, or a hypervisor, with interrupts off.
    pub const HYPERVISOR: Self = Self {
        hypervisor: true,
        ..Self::KERNEL
    };

    /// Privileged, non-hypervisor state (MSR\[HV PR\] = 0b00).
    pub(crate) fn is_supervisor(self) -> bool {
        !self.problem && !self.hypervisor
    }

    /// Hypervisor state (MSR\[HV PR\] = 0b10).
    pub(crate) fn is_hypervisor(self) -> bool {
        !self.problem && self.hypervisor
    }
}

/// The facility's description of a marked instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// SIER\[TYPE\].
    pub kind: u8,
    /// SIER\[LDST\].
    pub level: u8,
    /// SIER\[DATA_SRC\].
    pub source: u8,
    /// MMCRA\[THR_CTR\]: mantissa, and exponent to the base 4.
    pub latency: (u8, u8),
    /// SIER2 (v3.1): cycles to dispatch.
    pub dispatch: u16,
    /// SIER2 (v3.1): cycles to finish.
    pub finish: u16,
}

/// An instruction that completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Address of the instruction.
    pub address: u64,
    /// Number of cycles that the instruction takes.
    pub cycles: u32,
    /// Address of the instruction's data, if it accesses any.
    pub data: Option<u64>,
    /// The branch that the instruction takes.
    pub branch: Option<Branch>,
    /// The facility's description of the instruction if random sampling is on, which then marks it.
    pub marked: Option<Mark>,
    /// Number of occurrences of each event without a name in the model, during the instruction.
    pub others: u32,
}

impl Instruction {
    /// Creates an instruction at `address` that takes one cycle and does nothing else.
    pub fn at(address: u64) -> Self {
        Self {
            address,
            cycles: 1,
            data: None,
            branch: None,
            marked: None,
            others: 0,
        }
    }

    /// Returns the address of the next instruction.
    pub fn next(&self) -> u64 {
        self.branch
            .map_or(self.address.wrapping_add(4), |branch| branch.target)
    }
}
