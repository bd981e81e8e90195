// SPDX-License-Identifier: GPL-2.0

//! Making a sample's branch stack from the BHRB.
//!
//! The hardware has one filter for all events on a CPU and knows few types of branches, so the BHRB
//! may hold branches that an event does not want. They are left out here, for each event by itself,
//! so events with different filters can count together. The instruction at a branch's address tells
//! its type.
//!
//! # What an event's owner may see
//!
//! Branches from the privilege levels that the event asks for; perf core has checked that its owner
//! may see them. Without those of the kernel no entry has an address of the kernel, neither as
//! source nor as target. In real mode the kernel of a bare metal machine, and a hypervisor, have
//! addresses like those of programs: while the BHRB may hold such branches, as another event on the
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
/// the direct branch by which code learns its own address (`bcl 20,31,$+4`).
const IFM_CALLS: u8 = 1;

/// What to do with a branch in the BHRB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum EntryDecision {
    /// Leave it out.
    Skip,
    /// Enter it with what the BHRB holds.
    Enter,
    /// Enter it with the target or the type that its instruction tells.
    EnterDecoded,
    /// Enter it likewise if its instruction is of a type that is wanted.
    EnterIfWanted,
}

/// What a branch stack is to hold. `attr.branch_sample_type` is turned into tables once for a
/// stack, as an interrupt takes these decisions for up to 32 branches.
pub(super) struct StackSpec {
    /// The lowest source address of the branches to enter, above the highest if there are none.
    first_source: u64,
    /// The highest address of the branches to enter, source or target.
    last: u64,
    /// What to do with a branch whose target is in its instruction, and with one whose target is in
    /// the BHRB.
    decisions: [EntryDecision; 2],
    /// The types that [`EntryDecision::EnterIfWanted`] is about.
    types: BranchTypes,
    /// Entries hold the branch's type.
    save_type: bool,
    /// The fields of a branch that was predicted rightly, and wrongly.
    prediction: [BranchFields; 2],
    /// The fields of a branch of a program, and of the kernel.
    privilege: [BranchFields; 2],
}

impl StackSpec {
    /// For `event` and a BHRB that was recorded with the filter `ifm`.
    fn of(event: &Event, ifm: u8) -> Self {
        let exact = event
            .data()
            .branch_filter
            .is_some_and(|filter| filter.exact && filter.ifm == ifm);
        Self::new(event.attr().branch_sample_type(), ifm, exact)
    }

    /// For `wanted` and a BHRB that was recorded with the filter `ifm`; `exact` says that this
    /// filter has left out all branches of other types.
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

    /// The stack's entry for a branch; `None` if the event does not want the branch or its owner
    /// must not see it.
    ///
    /// If the instruction cannot be read, the branch has no type: it is left out if only some types
    /// are wanted, else entered, with target 0 unless the BHRB holds the target.
    ///
    /// Without `TYPES` instructions are read for their targets only, which is faster.
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
        // A boolean is an index of two.
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

    /// Whether a branch's instruction may decide that the branch is left out.
    fn filters_by_instruction(&self) -> bool {
        self.decisions.contains(&EntryDecision::EnterIfWanted)
    }

    /// Whether instructions are read.
    fn reads_instructions(&self) -> bool {
        self.decisions.contains(&EntryDecision::EnterDecoded) || self.filters_by_instruction()
    }
}

/// What to do with branches when only `types` are wanted, and the BHRB was recorded with the filter
/// `ifm`: see [`StackSpec::decisions`].
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

/// perf's type of a branch.
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

/// Fills `stack`, which is empty, with the branches that `event` wants. Must be called in a PMI.
pub(super) fn fill(this_cpu: &ThisCpu, event: &Event, stack: &mut BranchStack) {
    if event.attr().exclude_kernel() && this_cpu.hypervisor_branches.get() {
        return;
    }
    let local = local_pmu(this_cpu.irqs_off());
    let mut bhrb = Bhrb::new();
    let Some(entries) = bhrb.read(this_cpu.bhrb_dispatches.get()) else {
        // This sample has no branches. The next one has, unless the CPU is taken away again.
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

/// Enters the branches that the `entries` of the BHRB hold, up to `max` in all.
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
