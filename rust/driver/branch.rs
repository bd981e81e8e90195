// SPDX-License-Identifier: GPL-2.0

//! Branch stacks: which are taken, and how one is made of the BHRB when an event is sampled.
//!
//! Hardware has one filter at a time and knows few types of branches. It gets the one that leaves
//! out most of what the events on a CPU do not want; the rest is left out here, for each event by
//! itself, by a look at the instruction. So events with different filters go together.
//!
//! # What an event's owner may see
//!
//! An event's branches are those of its privilege levels, which perf core has checked. Without the
//! kernel's there is no address of the kernel in a stack, neither as source nor as target.
//!
//! Nothing in the BHRB says whose program an entry is of. So it is cleared when a task switch comes
//! ([`sched_in`]), and when an event with a stack comes to a CPU, which may not have had one before
//! ([`begin`]).
//!
//! # Limitations
//!
//! On ISA v3.1 the BHRB records no branches of the kernel. A branch whose instruction cannot be read
//! is without target or type (see [`Wanted::entry`]).

use super::{
    local_pmu,
    refuse::Refusal,
    Driver,
    Here, //
};
use crate::{
    isa207::{
        self,
        Branch,
        BranchKind,
        BranchTypes,
        HardwareFilter,
        Mmcr,
        Record, //
    },
    perf::{
        BranchEntry,
        BranchFields,
        BranchSample,
        BranchStack,
        Event,
        NewEvent, //
    },
    power::{
        bhrb::Bhrb,
        code::Code,
        machine,
        pmu::LocalPmu, //
    },
};
use core::ops::RangeInclusive;

// Flags of ours in `struct hw_perf_event`, beside that of `ebb.rs`.
/// The hardware filter that the event wants, two bits.
const IFM: u32 = 0b11 << 8;
const IFM_SHIFT: u32 = 8;
/// With that filter the BHRB has what is wanted, and nothing else.
const EXACT: u32 = 1 << 10;

/// The types of branches that an event asks for.
fn types(wanted: BranchSample) -> BranchTypes {
    BranchTypes {
        any: wanted.any(),
        any_call: wanted.any_call(),
        any_return: wanted.any_return(),
        indirect_call: wanted.indirect_call(),
        conditional: wanted.conditional(),
        call: wanted.call(),
        indirect_jump: wanted.indirect_jump(),
    }
}

/// Checks what an event wants of its branch stack, and keeps the hardware filter for it.
pub(super) fn check(driver: &Driver, event: &NewEvent<'_>) -> Result<(), Refusal> {
    if !event.attr().samples_branches() {
        return Ok(());
    }
    let wanted = event.attr().branch_sample();
    let types = types(wanted);
    let transactions =
        wanted.transaction_abort() || wanted.in_transaction() || wanted.no_transaction();
    let rules = [
        (!machine::has_bhrb(), Refusal::BranchNoBhrb),
        (wanted.call_stack(), Refusal::BranchCallStack),
        (wanted.counters(), Refusal::BranchCounters),
        (transactions, Refusal::BranchTransactions),
        (types == BranchTypes::default(), Refusal::BranchNoTypes),
    ];
    if let Some(&(_, refusal)) = rules.iter().find(|(broken, _)| *broken) {
        return Err(refusal);
    }
    let filter = if !driver.machine.strict_branch_filters {
        driver.model.branch_filter(types)
    } else if wanted.count() == 1 {
        driver.model.strict_branch_filter(types)?
    } else {
        return Err(isa207::Refusal::NoHardwareBranchFilter.into());
    };
    let ifm = u32::from(filter.ifm) << IFM_SHIFT & IFM;
    let exact = if filter.exact { EXACT } else { 0 };
    let others = event.hw().flags() & !(IFM | EXACT);
    event.hw().set_flags(event, others | ifm | exact);
    Ok(())
}

/// The hardware filter for an opened event; `None` for an event without a branch stack.
pub(super) fn hardware_filter(event: &Event) -> Option<HardwareFilter> {
    let flags = event.hw().flags();
    event.attr().samples_branches().then_some(HardwareFilter {
        // CAST: Two bits.
        ifm: ((flags & IFM) >> IFM_SHIFT) as u8,
        exact: flags & EXACT != 0,
    })
}

/// Deals with an event that comes to this CPU, whose PMU is not programmed with it yet.
pub(super) fn begin(here: &Here<'_>, event: &Event) {
    if event.attr().samples_branches() {
        here.stale_branches.set(true);
    }
}

/// Discards, before the PMU is programmed with `mmcr`, what new events must not see, and what was
/// recorded with another filter.
pub(super) fn discard_stale(here: &Here<'_>, local: &LocalPmu, mmcr: &Mmcr) {
    if here.stale_branches.replace(false) || here.mmcr.get().ifm() != mmcr.ifm() {
        local.clear_bhrb();
    }
}

/// See [`crate::perf::Pmu::sched_task`].
pub(super) fn sched_in(here: &Here<'_>) {
    local_pmu(here).clear_bhrb();
}

/// The filter with which the BHRB records only what sets the link register: calls, but for one form
/// of direct branch.
const CALLS: u8 = 1;

/// What is to be done with a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Deal {
    /// It is not wanted.
    Leave,
    /// It is wanted, and what the BHRB says of it is enough.
    Take,
    /// It is wanted, and its instruction says more.
    Look,
    /// Its instruction says whether it is wanted.
    Choose,
}

/// What a stack is to hold, in the form of tables, as there is one of these decisions for each of
/// many branches in an interrupt.
pub(super) struct Wanted {
    /// The addresses that branches come from; the first is none if there are not any.
    sources: RangeInclusive<u64>,
    /// The addresses up to this one are those they may go to.
    last_target: u64,
    /// What to do with a branch whose target is in its instruction, and in a register.
    deal: [Deal; 2],
    /// What to choose.
    types: BranchTypes,
    save_type: bool,
    /// What is said of a branch that was predicted, and not.
    prediction: [BranchFields; 2],
    /// What is said of a branch of a program, and of the kernel.
    privilege: [BranchFields; 2],
}

impl Wanted {
    /// What `event` wants of a BHRB that has been recorded with the filter `ifm`.
    fn of(event: &Event, ifm: u8) -> Self {
        let exact = hardware_filter(event).is_some_and(|own| own.exact && own.ifm == ifm);
        Self::new(event.attr().branch_sample(), ifm, exact)
    }

    /// As `of`, for what is `wanted`; `exact` says that the hardware has chosen the types already.
    pub(super) fn new(wanted: BranchSample, ifm: u8, exact: bool) -> Self {
        let types = types(wanted);
        let mut deal = if exact || types.is_all() {
            [Deal::Look, Deal::Take]
        } else {
            deal_by_types(types, ifm)
        };
        if wanted.save_type() && deal[1] == Deal::Take {
            deal[1] = Deal::Look;
        }
        let (user, kernel) = (wanted.user(), wanted.kernel());
        let first = if user { 0 } else { machine::KERNEL_START };
        let last = if kernel {
            u64::MAX
        } else {
            machine::KERNEL_START - 1
        };
        Self {
            sources: first..=last,
            last_target: last,
            deal,
            types,
            save_type: wanted.save_type(),
            prediction: if wanted.no_flags() {
                [BranchFields::NONE; 2]
            } else {
                [BranchFields::PREDICTED, BranchFields::MISPREDICTED]
            },
            privilege: if wanted.save_privilege() {
                [BranchFields::USER, BranchFields::KERNEL]
            } else {
                [BranchFields::NONE; 2]
            },
        }
    }

    /// The entry for a branch, `None` if it is not wanted or not for the event's owner.
    ///
    /// A branch whose instruction cannot be read has no type. It is left out if types are chosen;
    /// else it is there, with the target 0 if the instruction would tell. Without `TYPES` nothing
    /// but targets is taken from instructions, which is faster.
    #[inline(always)]
    pub(super) fn entry<const TYPES: bool>(
        &self,
        record: &Record,
        code: Option<&Code<'_>>,
    ) -> Option<BranchEntry> {
        if !self.sources.contains(&record.from) {
            return None;
        }
        let from_kernel = machine::is_kernel_address(record.from);
        // A boolean is an index of two.
        let mut fields = self.prediction[usize::from(record.mispredicted)]
            .with(self.privilege[usize::from(from_kernel)]);
        let deal = self.deal[usize::from(record.to.is_some())];
        let to = match deal {
            Deal::Leave => return None,
            Deal::Take => record.to,
            Deal::Look | Deal::Choose => {
                let branch = code
                    .and_then(|code| code.at(record.from))
                    .and_then(|instruction| Branch::decode(instruction, record.from));
                let chosen = || branch.is_some_and(|branch| self.types.contains(branch));
                if TYPES && deal == Deal::Choose && !chosen() {
                    return None;
                }
                if TYPES && self.save_type {
                    fields = fields.with(branch.map_or(BranchFields::NONE, branch_type));
                }
                record
                    .to
                    .or_else(|| branch.as_ref().and_then(Branch::target))
            }
        };
        let to = to.unwrap_or(0);
        (to <= self.last_target).then_some(BranchEntry::new(record.from, to, fields))
    }
}

/// What to do with branches when types are chosen of what was recorded with the filter `ifm`.
pub(super) fn deal_by_types(types: BranchTypes, ifm: u8) -> [Deal; 2] {
    let choose_if = |wanted| if wanted { Deal::Choose } else { Deal::Leave };
    let direct = types.any_call || types.call || types.conditional;
    let indirect_call = types.any_call || types.indirect_call;
    let indirect_jump = types.any_return || types.indirect_jump || types.conditional;
    let indirect = if indirect_call && ifm == CALLS {
        Deal::Take
    } else {
        choose_if(indirect_call || indirect_jump)
    };
    [choose_if(direct), indirect]
}

/// perf's name for what a branch does.
fn branch_type(branch: Branch) -> BranchFields {
    match branch.kind() {
        BranchKind::Conditional => BranchFields::CONDITIONAL,
        BranchKind::Unconditional => BranchFields::UNCONDITIONAL,
        BranchKind::IndirectJump => BranchFields::INDIRECT,
        BranchKind::Call => BranchFields::CALL,
        BranchKind::IndirectCall => BranchFields::INDIRECT_CALL,
        BranchKind::Return => BranchFields::RETURN,
        BranchKind::ConditionalCall => BranchFields::CONDITIONAL_CALL,
        BranchKind::ConditionalReturn => BranchFields::CONDITIONAL_RETURN,
    }
}

/// Fills `stack`, which is empty, with the branches that `event` wants. To be called in the PMU's
/// interrupt.
#[inline(never)]
pub(super) fn read(here: &Here<'_>, event: &Event, stack: &mut BranchStack) {
    let wanted = Wanted::of(event, here.mmcr.get().ifm());
    let max = event.attr().max_stack().into();
    if !wanted.deal.contains(&Deal::Look) && !wanted.deal.contains(&Deal::Choose) {
        return fill::<false>(&wanted, max, None, stack);
    }
    let local = local_pmu(here);
    let code = Code::open(&local);
    if wanted.save_type || wanted.deal.contains(&Deal::Choose) {
        fill::<true>(&wanted, max, Some(&code), stack);
    } else {
        fill::<false>(&wanted, max, Some(&code), stack);
    }
}

/// Fills `stack` with the branches in the BHRB, up to `max` in all.
#[inline(always)]
fn fill<const TYPES: bool>(
    wanted: &Wanted,
    max: u64,
    code: Option<&Code<'_>>,
    stack: &mut BranchStack,
) {
    let mut bhrb = Bhrb::new();
    for record in isa207::records(bhrb.read().iter().copied()) {
        if stack.len() >= max {
            break;
        }
        if let Some(entry) = wanted.entry::<TYPES>(&record, code) {
            stack.push(entry);
        }
    }
}
