// SPDX-License-Identifier: GPL-2.0

//! The performance monitor facility of POWER8 to Power11 as the Power ISA has it, one thread of a
//! core at a time: what QEMU leaves out or does in another way can be tested with it on the host.
//!
//! | file | subject |
//! |---|---|
//! | `processor.rs` | the processors, and by what they differ |
//! | `fields.rs` | numbers of the registers (SPR), bits of their fields |
//! | `context.rs` | the state that a thread runs in, and the instructions it executes |
//! | `freeze.rs` | in which state each counter counts |
//! | `events.rs` | what each counter counts |
//! | `alert.rs` | when an alert occurs, and what it changes |
//! | `ebb.rs` | which alerts are interrupts, and event-based branches |
//! | `sampling.rs` | SIAR, SDAR and SIER |
//! | `trace.rs` | trace interrupts, which write SIAR and SDAR too |
//! | `bhrb.rs` | the branch history rolling buffer |
//! | `access.rs` | what problem state may read and write, and the traps otherwise |
//! | `loss.rs` | idle states and hypervisors that drop registers |
//! | `chance.rs` | what hardware may do in one way or another |
//! | `late.rs` | when a write of a control register takes effect, and an alert occurs |
//! | `facility.rs` | all of that together |
//! | `fault.rs` | rules that tests break |
//!
//! # Sources
//!
//! Each rule names its source in its documentation, and has a test that bears its name:
//!
//! - \[ISA\] with a section: the Power ISA, as quoted by one of the sources below. The documents
//!   themselves were not at hand, so what is known of them from memory alone says \[memory\];
//! - \[kernel\]: Linux, drivers, headers and selftests, which run on hardware;
//! - \[KVM\]: Linux, `arch/powerpc/kvm/`, which meets the hardware's faults;
//! - \[OPAL\]: skiboot, the firmware of bare metal machines;
//! - \[microwatt\]: `pmu.vhdl` of the microwatt core, made after ISA v3.0B. `tests/rtl` compares
//!   the model with it;
//! - \[AIX\]: IBM's manual of `pm_enable_bhrb()`;
//! - \[QEMU\]: an emulator, the weakest; where nothing else tells.
//!
//! Bits are numbered as in the Power ISA: bit 0 is the most significant of 64.
//!
//! # What it leaves out
//!
//! Thresholds, but that their counter counts; the sharing of a core by threads, MMCRC, MMCRH and MMCRS; FSCR and HFSCR, by which
//! kernel and hypervisor withhold whole facilities; bits 57, 60 and 61 of MMCR0 (the kernel's
//! `MMCR0_SHRFC`, `MMCR0_FCTI`, `MMCR0_FCTA`), which it never sets; MMCR0\[TBSEL\], as whoever calls
//! [`Facility::time_base_event`] tells when its bit changes. An instruction completes
//! as a whole: cycles are those it took, and nothing is counted ahead of time. An alert clears
//! MMCR0\[PMAQ\] (the kernel's `MMCR0_PMAO_SYNC`); what sets it no source tells.

mod access;
mod alert;
mod bhrb;
mod chance;
mod context;
mod ebb;
mod events;
mod facility;
mod fault;
mod fields;
mod freeze;
mod late;
mod loss;
mod processor;
mod sampling;
mod trace;

pub use access::Trap;
pub use bhrb::{BHRB_ENTRIES, Branch, BranchForm};
pub use chance::Chance;
pub use context::{Context, Instruction, Mark, Transaction};
pub use facility::{Executed, Facility};
pub use fault::{Fault, break_rule};
pub use fields::{bescr, mmcr0, mmcr2, mmcra, sier, spr};
pub use loss::{FOREIGN, Guest, Idle, Lppaca};
pub use processor::{Isa, Processor};
pub use sampling::told_of;
pub use trace::Trace;
