// SPDX-License-Identifier: GPL-2.0

//! Branch stacks: each has the last branches of the program that runs, those of the types that the
//! event wants, without a gap.

use super::{
    super::text::{Kind, branch_at},
    *,
};
use pmu_model::{BHRB_ENTRIES, BranchForm};

/// The types of branches that events may want, and the kinds of instructions that are of each.
const TYPES: [(u32, &[Kind]); 7] = {
    use Kind::*;
    [
        (
            perf_branch_sample_type_PERF_SAMPLE_BRANCH_ANY,
            &[Jump, Call, Conditional, Return, IndirectCall, IndirectJump],
        ),
        (
            perf_branch_sample_type_PERF_SAMPLE_BRANCH_ANY_CALL,
            &[Call, IndirectCall],
        ),
        (
            perf_branch_sample_type_PERF_SAMPLE_BRANCH_ANY_RETURN,
            &[Return],
        ),
        (
            perf_branch_sample_type_PERF_SAMPLE_BRANCH_COND,
            &[Conditional],
        ),
        (
            perf_branch_sample_type_PERF_SAMPLE_BRANCH_IND_CALL,
            &[IndirectCall],
        ),
        (perf_branch_sample_type_PERF_SAMPLE_BRANCH_CALL, &[Call]),
        (
            perf_branch_sample_type_PERF_SAMPLE_BRANCH_IND_JUMP,
            &[IndirectJump],
        ),
    ]
};

/// `branch_sample_type` of an event that wants these types, a bit each.
pub(super) fn sample_type(types: u8) -> u64 {
    let wanted = TYPES
        .iter()
        .enumerate()
        .filter(|(bit, _)| types >> bit & 1 != 0);
    let user = perf_branch_sample_type_PERF_SAMPLE_BRANCH_USER;
    wanted.fold(user, |all, (_, (one, _))| all | one).into()
}

fn wants(event: &Event, kind: Kind) -> bool {
    let wanted = event.attr().branch_sample_type;
    let mut types = TYPES
        .iter()
        .filter(|(one, _)| wanted & u64::from(*one) != 0);
    types.any(|(_, kinds)| kinds.contains(&kind))
}

/// The branches of a CPU's program since it was switched in.
#[derive(Default)]
pub(super) struct Recorded {
    /// Where they are, the oldest first.
    from: Vec<u64>,
    /// As many were taken before this step.
    before: usize,
    /// The hypervisor has not taken the CPU away since the last stack that had branches.
    pub(super) is_sure: bool,
}

impl Recorded {
    /// A step begins, which may run the program undisturbed.
    pub(super) fn begin(&mut self) {
        self.before = self.from.len();
    }

    pub(super) fn push(&mut self, from: u64) {
        self.from.push(from);
    }
}

impl World {
    /// Another program runs on a CPU. The branches of the one before are nobody else's. Samples
    /// that were taken on the way, in the kernel, may be of either.
    pub(super) fn forget_branches(&mut self, cpu: usize) {
        let recorded = &mut self.recorded[cpu];
        (recorded.from, recorded.before) = (Vec::new(), 0);
        for event in &self.open {
            event.branches.take();
        }
    }

    /// Compares the branch stacks of samples that were taken since the last call.
    pub(super) fn check_branches(&mut self) {
        let format = perf_event_sample_format_PERF_SAMPLE_BRANCH_STACK;
        for event in self.open.iter().filter(|event| event.samples_with(format)) {
            let (stack, Some(cpu)) = (event.branches.take(), event.oncpu.get()) else {
                continue;
            };
            let Some(stack) = stack else {
                continue;
            };
            let recorded = &mut self.recorded[cpu];
            let newest = recorded
                .from
                .iter()
                .rev()
                .map(|from| (*from, branch_at(*from)));
            let wanted = newest.clone().filter(|(_, (kind, ..))| wants(event, *kind));
            let expected: Vec<_> = wanted
                .map(|(from, (_, _, branch))| (from, branch.target))
                .collect();
            let found: Vec<_> = stack.iter().map(|entry| (entry.from, entry.to)).collect();
            assert!(
                expected.starts_with(&found),
                "event {}: branches {found:x?}, not the first of {expected:x?}",
                event.id
            );
            let mut entries = 0;
            let fitting = newest
                .take(recorded.from.len() - recorded.before)
                .take_while(|(_, (_, _, branch))| {
                    entries += if branch.form == BranchForm::Xl { 2 } else { 1 };
                    entries <= BHRB_ENTRIES
                });
            let least = fitting
                .filter(|(_, (kind, ..))| wants(event, *kind))
                .count();
            assert!(
                !recorded.is_sure || found.len() >= least,
                "event {}: branches {found:x?} of {expected:x?}",
                event.id
            );
            if found.is_empty() && !recorded.is_sure {
                // The driver has cleared the BHRB with this sample.
                recorded.before = recorded.from.len();
            }
            recorded.is_sure |= !found.is_empty();
        }
    }
}
