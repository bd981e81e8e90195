// SPDX-License-Identifier: GPL-2.0

//! Makes a sample's branch stack from the BHRB.
//!
//! The hardware has one filter for all events on a CPU and distinguishes few types of branches, so
//! the BHRB may hold branches that an event does not want. This file removes them separately for
//! each event, so events with different filters can count together. The type of a branch follows
//! from the instruction at its address.
//!
//! # What an event's owner may see
//!
//! A stack has branches of the privilege levels that the event asks for; perf core has checked that
//! the owner may see these levels. If the kernel is excluded, no entry has a kernel address,
//! neither as source nor as target. Bare-metal kernels and hypervisors use addresses like those of
//! programs while in real mode. While the BHRB may hold such branches, because another event on the
//! CPU counts in hypervisor state, the stacks of events that exclude the kernel are empty.
//!
//! # Limitations
//!
//! A branch whose instruction cannot be read has no type, and no target unless the BHRB holds it
//! (see [`StackSpec::entry`]).

use super::event::Event;
use super::{
    branch,
    cpu_state::{
        local_pmu,
        ThisCpu, //
    }, //
};
use crate::{
    isa207::{
        self,
        BhrbRecord,
        Branch,
        BranchKind,
        BranchTypes, //
    },
    perf::{
        BranchEntry,
        BranchFields,
        BranchSample,
        BranchSampleType,
        BranchStack, //
    },
    power::{
        bhrb::Bhrb,
        instructions::Instructions,
        machine, //
    }, //
};

/// MMCRA\[IFM\]: the BHRB records branches that set the link register. These are calls, except for
/// the direct branch that code uses to find its own address (`bcl 20,31,$+4`).
const IFM_CALLS: u8 = 1;

/// The treatment of a branch in the BHRB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum EntryDecision {
    /// Leave the branch out.
    Skip,
    /// Enter the branch with the data in the BHRB.
    Enter,
    /// Enter the branch with the target or the type from its instruction.
    EnterDecoded,
    /// Do the same if the instruction is of a wanted type, otherwise leave the branch out.
    EnterIfWanted,
}

/// The contents of a branch stack. `attr.branch_sample_type` is converted to tables once for a
/// stack, because an interrupt then decides about up to 32 branches.
pub(super) struct StackSpec {
    /// The lowest source address of the branches to enter. It is above `last` if no branch is to be
    /// entered.
    first_source: u64,
    /// The highest source or target address of the branches to enter.
    last: u64,
    /// The treatment of branches whose target is in the instruction, and of branches whose target
    /// is in the BHRB.
    decisions: [EntryDecision; 2],
    /// The types that [`EntryDecision::EnterIfWanted`] enters.
    types: BranchTypes,
    /// Whether entries have the branch's type.
    save_type: bool,
    /// The fields of a branch that was predicted correctly, and of a mispredicted one.
    prediction: [BranchFields; 2],
    /// The fields of a user branch, and of a kernel branch.
    privilege: [BranchFields; 2],
}

impl StackSpec {
    /// Returns the specification for `event` and a BHRB that was recorded with the filter `ifm`.
    fn of(event: &Event, ifm: u8) -> Self {
        let exact = event
            .data()
            .branch_filter
            .is_some_and(|filter| filter.exact && filter.ifm == ifm);
        Self::new(event.attr().branch_sample_type(), ifm, exact)
    }

    /// Returns the specification for `wanted` and a BHRB that was recorded with the filter `ifm`.
    /// `exact` is whether this filter left out all branches of other types.
    pub(super) fn new(wanted: BranchSampleType, ifm: u8, exact: bool) -> Self {
        let types = branch::types(wanted);
        let mut decisions = if exact || types.is_all() {
            [EntryDecision::EnterDecoded, EntryDecision::Enter]
        } else {
            decide_by_types(types, ifm)
        };
        if wanted.contains(BranchSample::TypeSave) && decisions[1] == EntryDecision::Enter {
            decisions[1] = EntryDecision::EnterDecoded;
        }
        let (user, kernel) = (
            wanted.contains(BranchSample::User),
            wanted.contains(BranchSample::Kernel),
        );
        let first = if user { 0 } else { machine::KERNEL_START };
        let last = if kernel {
            u64::MAX
        } else {
            machine::KERNEL_START - 1
        };
        Self {
            first_source: first,
            last,
            decisions,
            types,
            save_type: wanted.contains(BranchSample::TypeSave),
            prediction: if wanted.contains(BranchSample::NoFlags) {
                [BranchFields::NONE; 2]
            } else {
                [BranchFields::PREDICTED, BranchFields::MISPRED]
            },
            privilege: if wanted.contains(BranchSample::PrivSave) {
                [BranchFields::PRIV_USER, BranchFields::PRIV_KERNEL]
            } else {
                [BranchFields::NONE; 2]
            },
        }
    }

    /// Returns the stack's entry for a branch; `None` if the event does not want the branch or its
    /// owner must not see it.
    ///
    /// If the instruction cannot be read, the branch has no type. It is left out if only some types
    /// are wanted. Otherwise it is entered, with target 0 unless the BHRB holds the target.
    ///
    /// Without `TYPES`, instructions are read only for their targets, which is faster.
    #[inline]
    pub(super) fn entry<const TYPES: bool>(
        &self,
        record: &BhrbRecord,
        read_instruction: impl Fn(u64) -> Option<u32>,
    ) -> Option<BranchEntry> {
        if record.from < self.first_source || record.from > self.last {
            return None;
        }
        let from_kernel = machine::is_kernel_address(record.from);
        // `bool` converts to an index into two elements.
        let mut fields = self.prediction[usize::from(record.mispredicted)]
            .with(self.privilege[usize::from(from_kernel)]);
        let decision = self.decisions[usize::from(record.to.is_some())];
        let to = match decision {
            EntryDecision::Skip => return None,
            EntryDecision::Enter => record.to,
            EntryDecision::EnterDecoded | EntryDecision::EnterIfWanted => {
                let instruction = read_instruction(record.from);
                let fixed = if TYPES {
                    let branch = instruction.and_then(|word| Branch::decode(word, record.from));
                    let is_wanted = branch.is_some_and(|branch| self.types.contains(branch));
                    if decision == EntryDecision::EnterIfWanted && !is_wanted {
                        return None;
                    }
                    if self.save_type {
                        fields = fields.with(branch.map_or(BranchFields::NONE, branch_type));
                    }
                    branch.and_then(|branch| branch.target())
                } else {
                    instruction.and_then(|word| isa207::fixed_target(word, record.from))
                };
                record.to.or(fixed)
            }
        };
        let to = to.unwrap_or(0);
        (to <= self.last).then_some(BranchEntry::new(record.from, to, fields))
    }

    /// Returns whether a branch may be left out because of its instruction.
    fn filters_by_instruction(&self) -> bool {
        self.decisions.contains(&EntryDecision::EnterIfWanted)
    }

    /// Returns whether any instruction is read.
    fn reads_instructions(&self) -> bool {
        self.decisions.contains(&EntryDecision::EnterDecoded) || self.filters_by_instruction()
    }
}

/// Returns [`StackSpec::decisions`] if only `types` are wanted and the BHRB was recorded with the
/// filter `ifm`.
pub(super) fn decide_by_types(types: BranchTypes, ifm: u8) -> [EntryDecision; 2] {
    let enter_if = |possible| {
        if possible {
            EntryDecision::EnterIfWanted
        } else {
            EntryDecision::Skip
        }
    };
    let direct = types.any_call || types.call || types.conditional;
    let indirect_call = types.any_call || types.indirect_call;
    let indirect_jump = types.any_return || types.indirect_jump || types.conditional;
    let indirect = if indirect_call && ifm == IFM_CALLS {
        EntryDecision::Enter
    } else {
        enter_if(indirect_call || indirect_jump)
    };
    [enter_if(direct), indirect]
}

/// Returns perf's type of a branch.
fn branch_type(branch: Branch) -> BranchFields {
    match branch.kind() {
        BranchKind::Conditional => BranchFields::COND,
        BranchKind::Unconditional => BranchFields::UNCOND,
        BranchKind::IndirectJump => BranchFields::IND,
        BranchKind::Call => BranchFields::CALL,
        BranchKind::IndirectCall => BranchFields::IND_CALL,
        BranchKind::Return => BranchFields::RET,
        BranchKind::ConditionalCall => BranchFields::COND_CALL,
        BranchKind::ConditionalReturn => BranchFields::COND_RET,
    }
}

/// Fills `stack`, which must be empty, with the branches that `event` wants. Must be called in a
/// PMI.
pub(super) fn fill(this_cpu: &ThisCpu, event: &Event, stack: &mut BranchStack) {
    if event.attr().exclude_kernel() && this_cpu.hypervisor_branches.get() {
        return;
    }
    let local = local_pmu(this_cpu.irqs_off());
    let mut bhrb = Bhrb::new();
    let Some(entries) = bhrb.read(this_cpu.bhrb_dispatches.get()) else {
        // This sample has no branches. The next sample has branches unless the CPU is dispatched
        // elsewhere again.
        branch::clear_bhrb(this_cpu, &local);
        return;
    };
    let spec = StackSpec::of(event, this_cpu.ifm.get());
    let max = event.attr().sample_max_stack();
    if !spec.reads_instructions() {
        return enter::<false>(entries, &spec, max, |_| None, stack);
    }
    Instructions::open(&local, |instructions| {
        let read = |address| instructions.at(address);
        if spec.save_type || spec.filters_by_instruction() {
            enter::<true>(entries, &spec, max, read, stack);
        } else {
            enter::<false>(entries, &spec, max, read, stack);
        }
    });
}

/// Adds the wanted branches in the `entries` of the BHRB to `stack`, up to `max`.
#[inline]
fn enter<const TYPES: bool>(
    entries: &[u64],
    spec: &StackSpec,
    max: u16,
    read_instruction: impl Fn(u64) -> Option<u32>,
    stack: &mut BranchStack,
) {
    let records = isa207::bhrb_records(entries.iter().copied());
    let wanted = records.filter_map(|record| spec.entry::<TYPES>(&record, &read_instruction));
    stack.fill(max, wanted);
}
