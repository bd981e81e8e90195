// SPDX-License-Identifier: GPL-2.0

//! Branch stacks. Each must have the last branches of the program that runs, of the types that the
//! event wants and without a gap. Branches of the kernel may be among them if the event wants
//! these.

use super::{
    super::program_code::{Kind, branch_at},
    *,
};
use crate::machine::KERNEL_TEXT;
use pmu_model::{BHRB_ENTRIES, Branch, BranchForm, Context, Isa};

/// Address of a branch of a hypervisor in real mode. It looks like that of a program.
pub const REAL_MODE: u64 = 0x3000;

/// Branches of the kernel: source and target.
const DIRECT: (u64, u64) = (KERNEL_TEXT + 0x20, KERNEL_TEXT + 0x40);
const INDIRECT: (u64, u64) = (KERNEL_TEXT + 0x60, KERNEL_TEXT + 0x80);

/// The types of branches that events may request, with the kinds of instructions of each type.
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

/// Further requests of an event: branches of the kernel, no branches of the program, branches of a
/// hypervisor (of which there are none), and for each branch the privilege, the type, or no
/// prediction.
const FLAGS: [u32; 6] = [
    perf_branch_sample_type_PERF_SAMPLE_BRANCH_KERNEL,
    perf_branch_sample_type_PERF_SAMPLE_BRANCH_USER,
    perf_branch_sample_type_PERF_SAMPLE_BRANCH_HV,
    perf_branch_sample_type_PERF_SAMPLE_BRANCH_PRIV_SAVE,
    perf_branch_sample_type_PERF_SAMPLE_BRANCH_TYPE_SAVE,
    perf_branch_sample_type_PERF_SAMPLE_BRANCH_NO_FLAGS,
];

/// Returns the `branch_sample_type` of an event with these types and flags, a bit each.
pub(super) fn sample_type(types: u8, flags: u8) -> u64 {
    let wanted = TYPES
        .iter()
        .enumerate()
        .filter(|(bit, _)| types >> bit & 1 != 0);
    let types = wanted.fold(0, |all, (_, (one, _))| all | one);
    let set = FLAGS.iter().enumerate();
    let set = set.filter(|(bit, _)| flags >> bit & 1 != 0);
    let flags = set.fold(0, |all, (_, flag)| all | flag);
    // Branches of the program are included unless only those of the kernel are requested.
    let user = perf_branch_sample_type_PERF_SAMPLE_BRANCH_USER;
    let kernel = perf_branch_sample_type_PERF_SAMPLE_BRANCH_KERNEL;
    let is_kernel_alone = flags & (user | kernel) == user | kernel;
    u64::from(
        types
            | if is_kernel_alone {
                flags & !user
            } else {
                flags | user
            },
    )
}

fn asks(event: &Event, flag: u32) -> bool {
    event.attr().branch_sample_type & u64::from(flag) != 0
}

/// Returns the fields of an entry after its addresses, as in `struct perf_branch_entry`: the
/// prediction, the type from bit 20, the privilege from bit 30.
fn fields(event: &Event, mispredicted: bool, kind: Option<Kind>, privilege: u32) -> u64 {
    let mut fields = 0;
    if !asks(event, perf_branch_sample_type_PERF_SAMPLE_BRANCH_NO_FLAGS) {
        fields |= if mispredicted { 1 } else { 2 };
    }
    if asks(event, perf_branch_sample_type_PERF_SAMPLE_BRANCH_TYPE_SAVE) {
        fields |= u64::from(kind.map_or(0, |kind| match kind {
            Kind::Jump => PERF_BR_UNCOND,
            Kind::Call => PERF_BR_CALL,
            Kind::Conditional => PERF_BR_COND,
            Kind::Return => PERF_BR_RET,
            Kind::IndirectCall => PERF_BR_IND_CALL,
            Kind::IndirectJump => PERF_BR_IND,
        })) << 20;
    }
    if asks(event, perf_branch_sample_type_PERF_SAMPLE_BRANCH_PRIV_SAVE) {
        fields |= u64::from(privilege) << 30;
    }
    fields
}

/// Returns whether an entry is a branch of the kernel, which the event must have requested. The
/// driver cannot read its instruction, so the entry has no type, and the target only if the BHRB
/// has it.
fn is_of_kernel(event: &Event, entry: &perf_branch_entry) -> bool {
    if entry.from >> 63 == 0 {
        return false;
    }
    let is_asked_for = asks(event, perf_branch_sample_type_PERF_SAMPLE_BRANCH_KERNEL)
        && asks(event, perf_branch_sample_type_PERF_SAMPLE_BRANCH_ANY);
    let right = [(DIRECT.0, 0), INDIRECT].contains(&(entry.from, entry.to))
        && entry.fields == fields(event, false, None, PERF_BR_PRIV_KERNEL);
    assert!(is_asked_for && right, "event {}: {entry:x?}", event.id);
    true
}

fn wants(event: &Event, kind: Kind) -> bool {
    if !asks(event, perf_branch_sample_type_PERF_SAMPLE_BRANCH_USER) {
        return false;
    }
    let wanted = event.attr().branch_sample_type;
    let mut types = TYPES
        .iter()
        .filter(|(one, _)| wanted & u64::from(*one) != 0);
    types.any(|(_, kinds)| kinds.contains(&kind))
}

/// The branches of a CPU's program since it was switched in.
#[derive(Default)]
pub(super) struct Recorded {
    /// Addresses of the branches, the oldest first.
    from: Vec<u64>,
    /// Number of branches before this step.
    before: usize,
    /// The next stack may lack branches: the hypervisor has taken the CPU away since the last
    /// stack, or other kinds of branches are recorded since.
    pub(super) may_lack: bool,
    /// The BHRB also records in hypervisor state, which is the state of a kernel on bare metal.
    has_hypervisor: bool,
}

impl Recorded {
    /// Begins a step, in which the program may run undisturbed.
    pub(super) fn begin(&mut self) {
        self.before = self.from.len();
    }

    pub(super) fn push(&mut self, from: u64) {
        self.from.push(from);
    }

    /// Checks whether branches of hypervisor state are recorded. Returns whether they have been all
    /// the time since the last call.
    fn look_for_hypervisor(&mut self, facility: &Facility) -> bool {
        let records =
            facility.processor().isa() < Isa::V31 && facility.mfspr(spr::MMCR0) & mmcr0::FCH == 0;
        let had = core::mem::replace(&mut self.has_hypervisor, records);
        // The driver has cleared such branches from the BHRB, and with them all others.
        self.may_lack |= had && !records;
        had && records
    }
}

/// Takes a branch in a hypervisor, which may be the kernel.
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

/// Takes branches in the kernel.
pub(super) fn branch_in_kernel() {
    let branches = [(BranchForm::I, DIRECT), (BranchForm::Xl, INDIRECT)];
    with_cpu(|cpu| {
        for (form, (from, to)) in branches {
            cpu.facility.record_branch(&Instruction {
                branch: Some(Branch::taken(form, to)),
                ..Instruction::at(from)
            });
        }
    });
}

impl World {
    /// Forgets the branches of a CPU, on which another program runs now and must not see them.
    /// Samples that were taken in the kernel, during the switch, may belong to either program.
    pub(super) fn forget_branches(&mut self, cpu: usize) {
        let recorded = &mut self.recorded[cpu];
        (recorded.from, recorded.before) = (Vec::new(), 0);
        for event in &self.open {
            event.branches.take();
        }
    }

    /// Checks the branch stacks of samples that were taken since the last call.
    pub(super) fn check_branches(&mut self) {
        let has_hypervisor: Vec<_> = (0..CPUS as usize)
            .map(|cpu| {
                let recorded = &mut self.recorded[cpu];
                with_machine(|machine| recorded.look_for_hypervisor(&machine.cpus[cpu].facility))
            })
            .collect();
        let format = perf_event_sample_format_PERF_SAMPLE_BRANCH_STACK;
        // CPUs whose driver has made a stack since the last call. Events that share a PMI may get
        // different stacks, because the hypervisor may take the CPU away between two of them.
        let mut checked = [false; CPUS as usize];
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
                .map(|(from, (kind, _, branch))| perf_branch_entry {
                    from,
                    to: branch.target,
                    fields: fields(event, branch.mispredicted, Some(kind), PERF_BR_PRIV_USER),
                })
                .collect();
            // An event that may see the kernel may also have branches of the hypervisor.
            let found: Vec<_> = stack
                .iter()
                .filter(|entry| !is_of_kernel(event, entry))
                .filter(|entry| entry.from != REAL_MODE || event.excludes_kernel())
                .copied()
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
                recorded.may_lack || recorded.has_hypervisor || found.len() >= least,
                "event {}: branches {found:x?} of {expected:x?}",
                event.id
            );
            if found.is_empty() && recorded.may_lack {
                // The driver cleared the BHRB with this sample.
                recorded.before = recorded.from.len();
            }
            checked[cpu] = true;
        }
        for (recorded, _) in self
            .recorded
            .iter_mut()
            .zip(checked)
            .filter(|(_, checked)| *checked)
        {
            recorded.may_lack = false;
        }
    }
}
