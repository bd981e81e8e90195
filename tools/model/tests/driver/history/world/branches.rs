// SPDX-License-Identifier: GPL-2.0

//! Branch stacks: each has the last branches of the program that runs, those of the types that the
//! event wants, without a gap.

use super::{
    super::text::{Kind, branch_at},
    *,
};
use pmu_model::{BHRB_ENTRIES, Branch, BranchForm, Context, Isa};

/// Where a hypervisor in real mode branches. By its address it could be a program.
const REAL_MODE: u64 = 0x3000;

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
    /// The BHRB records in hypervisor state too, in which the kernel of a bare metal machine is.
    has_hypervisor: bool,
}

impl Recorded {
    /// A step begins, which may run the program undisturbed.
    pub(super) fn begin(&mut self) {
        self.before = self.from.len();
    }

    pub(super) fn push(&mut self, from: u64) {
        self.from.push(from);
    }

    /// Looks whether branches of hypervisor state are recorded. Returns whether they were all the
    /// time since the last call.
    fn look_for_hypervisor(&mut self, facility: &Facility) -> bool {
        let records =
            facility.processor().isa() < Isa::V31 && facility.mfspr(spr::MMCR0) & mmcr0::FCH == 0;
        let had = core::mem::replace(&mut self.has_hypervisor, records);
        // Those that were are cleared away, and others with them.
        self.is_sure &= records || !had;
        had && records
    }
}

/// A hypervisor, which may be the kernel, takes a branch.
pub(super) fn branch_in_real_mode() {
    with_cpu(|cpu| {
        let hypervisor = Context {
            hypervisor: true,
            problem: false,
            ..cpu.facility.context
        };
        let context = core::mem::replace(&mut cpu.facility.context, hypervisor);
        cpu.facility.record_branch(&Instruction {
            branch: Some(Branch::taken(BranchForm::I, REAL_MODE)),
            ..Instruction::at(REAL_MODE)
        });
        cpu.facility.context = context;
    });
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
        let has_hypervisor: Vec<_> = (0..CPUS as usize)
            .map(|cpu| {
                let recorded = &mut self.recorded[cpu];
                with_machine(|machine| recorded.look_for_hypervisor(&machine.cpus[cpu].facility))
            })
            .collect();
        let format = perf_event_sample_format_PERF_SAMPLE_BRANCH_STACK;
        for event in self.open.iter().filter(|event| event.samples_with(format)) {
            let (stack, Some(cpu)) = (event.branches.take(), event.oncpu.get()) else {
                continue;
            };
            let Some(stack) = stack else {
                continue;
            };
            if event.excludes_kernel() && self.recorded[cpu].has_hypervisor {
                assert!(
                    stack.is_empty() || !has_hypervisor[cpu],
                    "event {}: {stack:x?} may have branches of the hypervisor",
                    event.id
                );
                continue;
            }
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
            // Who may see the kernel may find the hypervisor.
            let found: Vec<_> = stack
                .iter()
                .map(|entry| (entry.from, entry.to))
                .filter(|(from, _)| *from != REAL_MODE || event.excludes_kernel())
                .collect();
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
                !recorded.is_sure || recorded.has_hypervisor || found.len() >= least,
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
