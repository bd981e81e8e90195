// SPDX-License-Identifier: GPL-2.0

//! The operations of a history.

use pmu_model::Random;

/// Copies a [`Wish`] with other values in some fields.
macro_rules! wish {
    ($other:expr, $($field:ident $(: $value:expr)?),+) => {
        Wish { $($field $(: $value)?,)+ ..$other }
    };
}
pub(super) use wish;

/// The random part of an event's attributes.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// Index of the event code.
    pub code: u8,
    /// 0 for an event that only counts.
    pub period: u64,
    pub exclude_kernel: bool,
    pub exclude_user: bool,
    pub exclude_hv: bool,
    pub exclude_idle: bool,
    pub exclude_host: bool,
    pub disabled: bool,
    pub pinned: bool,
    pub exclusive: bool,
    pub inherit: bool,
    /// The event keeps its count with its task even if contexts are swapped (`attr.inherit_stat`).
    pub inherit_stat: bool,
    /// The event samples data addresses.
    pub addr: bool,
    /// The event samples registers of the PMU.
    pub registers: bool,
    /// The event samples where data came from.
    pub data_src: bool,
    /// The event samples weights: 1 as a number, 2 as a structure.
    pub weight: u8,
    /// Branch types that the event samples, a bit each; 0 for no branch stack.
    pub branches: u8,
    /// Privilege levels and details of the sampled branches: see `world/branches.rs`.
    pub branch_flags: u8,
    /// The event joins the group of the newest leader.
    pub member: bool,
    /// The event follows the CPU.
    pub of_cpu: bool,
    /// The event follows the task, but only on this CPU.
    pub bound: Option<u8>,
}

/// A program's write to its registers.
#[derive(Clone, Copy, Debug)]
pub enum UserWrite {
    /// PMCn, set so that it becomes negative after this number of events.
    Counter(u8, u32),
    /// MMCR0: FC, PMAE, PMAO from the low bits.
    Mmcr0(u8),
    /// MMCR2: FCnP of each counter, a bit each.
    Mmcr2(u8),
    /// The threshold counter of MMCRA.
    Threshold(u16),
    /// BESCR: GE, PME from the low bits; PMEO is cleared.
    Bescr(u8),
    /// `rfebb` at the end of a handler that has reset all registers.
    Return,
    ClearBhrb,
}

/// A step of a history.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// A CPU switches to a task, or to the idle task.
    Switch(u8, u8),
    /// The program on a CPU executes instructions: their number, the cycles of each, and the
    /// distance between branches.
    Run(u8, u8, u8, u8),
    /// A program enters the kernel just as a counter may overflow, and the PM interrupt comes after
    /// a number of instructions there. By then the PMU may have sampled the kernel: 0 for no, 1 for
    /// its data, 2 for its instruction. If the flag is set, the kernel masks PM interrupts in the
    /// meantime, and replays the interrupt.
    Syscall(u8, u8, u8, bool),
    /// A counter of a CPU may overflow right before the next step. If that step is in the kernel,
    /// the PM interrupt has to wait.
    Hold(u8),
    /// The kernel executes instructions on a CPU, with PM interrupts masked if the flag is set.
    Kernel(u8, u8, bool),
    /// An idle CPU executes instructions with the run latch off. PM interrupts come as NMIs, or as
    /// normal interrupts, which turn the run latch on.
    Idle(u8, u8, bool),
    /// The kernel of a CPU calls the hypervisor, which executes instructions.
    Hypercall(u8, u8),
    Open(u8, Wish),
    /// Opens an EBB event; it joins the task's first EBB group if there is one.
    OpenEbb(u8, u8),
    /// Opens an EBB event that leads a further group of the task, on any CPU or only on one.
    OpenEbbGroup(u8, u8, Option<u8>),
    /// Opens an EBB event with random sampling. Random histories lack it: no code saves the
    /// threshold counter in MMCRA, and the last marked instruction may be one of the kernel.
    OpenMarkedEbb(u8),
    /// Opens an EBB event with a threshold. Random histories lack it, too.
    OpenThresholdEbb(u8),
    Close(u8),
    Read(u8),
    Enable(u8),
    Disable(u8),
    Reset(u8),
    Period(u8, u16),
    /// perf core changes the period of an event with a frequency.
    Adjust(u8, u16),
    /// The groups on a CPU take turns.
    Rotate(u8),
    /// The events of a CPU are removed from it while those of its task remain. They are added again
    /// at once, or by the next such step.
    Cgroup(u8, bool),
    /// All flexible events of a CPU are removed and added again.
    Reschedule(u8),
    User(u8, UserWrite),
    Tick(u8),
    Throttle(u8),
    Fork(u8),
    Exec(u8),
    Offline(u8),
    Online(u8),
    /// The hypervisor runs another partition on the CPU; on bare metal KVM runs a guest.
    Preempt(u8),
    /// The hypervisor runs another partition in the middle of the kernel's work, after a number of
    /// its instructions.
    PreemptIn(u8, u8),
    /// A debugger lets the program of a CPU execute some instructions, and stops it after each one,
    /// or after each branch.
    Trace(u8, u8, bool),
    /// The kernel steps over a probe after this number of its instructions.
    ProbeIn(u8, u8),
    /// An idle CPU sleeps.
    Sleep(u8, bool),
    /// The partition is suspended and resumed on another machine: each PMU without an event then
    /// has the registers of another partition, or is reset.
    Suspend(bool),
    /// The EBB groups of the task on a CPU take turns, or the task opens another one.
    Turn(u8, u8),
    /// The task on a CPU moves to another CPU.
    Migrate(u8, u8),
    /// A CPU switches to a task with a clone of its task's context. If there is none, its task
    /// closes the events that a child would not inherit, opens one if it has no other, and forks.
    Clone(u8, Wish),
    /// The task on a CPU exits.
    Exit(u8),
    /// The module is removed and inserted again, beside the built-in driver, whose events remain.
    Reload,
    /// Time passes until unused counters, which count although no event uses them, are about to
    /// overflow.
    Elapse(u8),
}

impl Op {
    pub fn random(random: &mut Random) -> Self {
        let a = random.below(256) as u8;
        let b = random.below(256) as u8;
        match random.below(133) {
            0..=24 => Self::Switch(a, b),
            25..=54 => Self::run(random, a),
            55..=57 => Self::Kernel(a, 1 + b % 8, random.one_in(2)),
            58..=65 => Self::Open(a, Self::wish(random)),
            66..=68 => Self::OpenEbb(a, b),
            69 => {
                let bound = random.one_in(2);
                Self::OpenEbbGroup(a, b, bound.then(|| random.below(256) as u8))
            }
            70..=75 => Self::Close(a),
            76..=78 => Self::Read(a),
            79..=80 => Self::Enable(a),
            81..=82 => Self::Disable(a),
            83 => Self::Reset(a),
            84..=85 => Self::Period(a, 1 + random.below(60) as u16),
            86..=93 => Self::User(a, Self::write(random)),
            94 => Self::Tick(a),
            95 => Self::Throttle(a),
            96 if random.one_in(2) => Self::Fork(a),
            96 => Self::Exec(a),
            97 if random.one_in(2) => Self::Offline(a),
            97 => Self::Online(a),
            98 if random.one_in(4) => Self::Suspend(random.one_in(2)),
            98 => Self::Preempt(a),
            99 => Self::Sleep(a, random.one_in(2)),
            100..=103 => Self::Syscall(a, b % 4, random.below(3) as u8, random.one_in(2)),
            104..=105 => Self::Rotate(a),
            106 => Self::Elapse(a),
            107 => Self::Exec(a),
            108..=113 => Self::Hold(a),
            116..=117 => Self::Cgroup(a, random.one_in(2)),
            114 => Self::Reschedule(a),
            118..=120 => Self::Idle(a, 1 + b % 16, random.one_in(2)),
            123..=124 => Self::PreemptIn(a, b % 64),
            121..=122 => Self::Hypercall(a, 1 + b % 8),
            125..=126 => Self::Trace(a, 1 + b % 8, random.one_in(4)),
            127..=129 => Self::ProbeIn(a, b % 64),
            130 => Self::Turn(a, b),
            131 => Self::Migrate(a, b),
            132 => Self::Exit(a),
            _ => Self::Adjust(a, 1 + random.below(60) as u16),
        }
    }

    /// Creates an operation that runs the program of a CPU.
    pub fn run(random: &mut Random, cpu: u8) -> Self {
        let (count, cycles) = (random.below(24) as u8, random.below(4) as u8);
        Self::Run(cpu, 1 + count, 1 + cycles, 1 + random.below(6) as u8)
    }

    pub fn wish(random: &mut Random) -> Wish {
        Wish {
            code: random.below(256) as u8,
            period: if random.one_in(2) {
                0
            } else {
                8 + random.below(60)
            },
            exclude_kernel: !random.one_in(4),
            exclude_user: random.one_in(6),
            exclude_hv: random.one_in(3),
            exclude_idle: random.one_in(4),
            exclude_host: random.one_in(16),
            disabled: random.one_in(4),
            pinned: random.one_in(5),
            exclusive: random.one_in(8),
            inherit: random.one_in(4),
            inherit_stat: random.one_in(4),
            addr: random.one_in(4),
            registers: random.one_in(4),
            data_src: random.one_in(4),
            weight: random.below(6) as u8,
            branches: if random.one_in(3) {
                1 << random.below(7) | 1 << random.below(7)
            } else {
                0
            },
            branch_flags: if random.one_in(2) {
                random.below(64) as u8
            } else {
                0
            },
            member: random.one_in(2),
            of_cpu: random.one_in(5),
            bound: random.one_in(6).then(|| random.below(256) as u8),
        }
    }

    pub fn write(random: &mut Random) -> UserWrite {
        match random.below(13) {
            12 => UserWrite::Threshold(random.below(1 << 11) as u16),
            0..=3 => UserWrite::Counter(random.below(6) as u8, 1 + random.below(40) as u32),
            4 => UserWrite::Mmcr0(random.below(8) as u8),
            5 => UserWrite::Mmcr2(random.below(64) as u8),
            6..=7 => UserWrite::Bescr(random.below(4) as u8),
            8..=10 => UserWrite::Return,
            _ => UserWrite::ClearBhrb,
        }
    }
}
