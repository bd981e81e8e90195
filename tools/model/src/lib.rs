// SPDX-License-Identifier: GPL-2.0

//! A model of the performance monitor facility of POWER8 to Power11, after the Power ISA, for one
//! thread of a core. With it, tests on the host cover what QEMU lacks or does differently.
//!
//! | file | subject |
//! |---|---|
//! | `processor.rs` | the processors and their differences |
//! | `fields.rs` | numbers of the registers (SPR), bits of their fields |
//! | `context.rs` | the state that a thread runs in, and the instructions it executes |
//! | `freeze.rs` | the states in which each counter counts |
//! | `events.rs` | the events that counters count |
//! | `alert.rs` | alerts: when they occur and what they change |
//! | `ebb.rs` | alerts that become interrupts or event-based branches |
//! | `sampling.rs` | SIAR, SDAR and SIER |
//! | `trace.rs` | trace interrupts, which write SIAR and SDAR, too |
//! | `bhrb.rs` | the branch history rolling buffer |
//! | `access.rs` | reads and writes in problem state, and their traps |
//! | `loss.rs` | idle states and hypervisors that drop registers |
//! | `random.rs` | random choices where hardware may act in different ways |
//! | `delays.rs` | delays of alerts and of writes to control registers |
//! | `facility.rs` | the facility with all of these parts |
//! | `fault.rs` | rules that tests break |
//!
//! # Sources
//!
//! The documentation of each rule names its source, and a test bears the rule's name:
//!
//! - \[ISA\] with a section: the Power ISA, as quoted by one of the sources below. The documents
//!   themselves were not at hand, so a rule that is only remembered from them has \[memory\];
//! - \[kernel\]: Linux, drivers, headers and selftests, which run on hardware;
//! - \[KVM\]: Linux, `arch/powerpc/kvm/`, which works around faults of the hardware;
//! - \[OPAL\]: skiboot, the firmware of bare metal machines;
//! - \[microwatt\]: `pmu.vhdl` of the microwatt core, made after ISA v3.0B. `tests/rtl` compares
//!   the model with it;
//! - \[AIX\]: IBM's manual of `pm_enable_bhrb()`;
//! - \[QEMU\]: an emulator, the weakest source, used only where no other one has the rule.
//!
//! Bits are numbered as in the Power ISA: bit 0 is the most significant of 64.
//!
//! # Not modelled
//!
//! - Thresholds; only the threshold counter counts.
//! - The sharing of a core by threads, MMCRC, MMCRH and MMCRS.
//! - FSCR and HFSCR, with which kernel and hypervisor withhold whole facilities.
//! - Bits 57, 60 and 61 of MMCR0 (the kernel's `MMCR0_SHRFC`, `MMCR0_FCTI`, `MMCR0_FCTA`), which
//!   the kernel never sets.
//! - MMCR0\[TBSEL\]: the caller calls [`Facility::time_base_event`] when the selected bit changes.
//! - Parts of instructions: an instruction completes as a whole, with all its cycles, and nothing
//!   is counted ahead of time.
//! - The cause of MMCR0\[PMAQ\] (the kernel's `MMCR0_PMAO_SYNC`): an alert clears it, and no source
//!   describes what sets it.

mod access;
mod alert;
mod bhrb;
mod context;
mod delays;
mod ebb;
mod events;
mod facility;
mod fault;
mod fields;
mod freeze;
mod loss;
mod processor;
mod random;
mod sampling;
mod trace;

pub use access::Trap;
pub use bhrb::{BHRB_ENTRIES, Branch, BranchForm};
pub use context::{Context, Instruction, Mark, Transaction};
pub use facility::{Executed, Facility};
pub use fault::{Fault, break_rule};
pub use fields::{bescr, mmcr0, mmcr2, mmcra, sier, spr};
pub use loss::{DROPPED, Guest, Idle, Lppaca};
pub use processor::{Isa, Processor};
pub use random::Random;
pub use sampling::identifying_bits;
pub use trace::Trace;
