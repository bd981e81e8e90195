// SPDX-License-Identifier: GPL-2.0

//! The operations of a history.

use pmu_model::Chance;

/// A copy of a [`Wish`] with other values in some fields.
macro_rules! wish {
    ($other:expr, $($field:ident $(: $value:expr)?),+) => {
        Wish { $($field $(: $value)?,)+ ..$other }
    };
}
pub(super) use wish;

/// What an event asks for, as far as it is left to chance.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// Which of the codes.
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
    /// Its count is that of its task even if contexts are swapped (`attr.inherit_stat`).
    pub inherit_stat: bool,
    /// It samples data addresses.
    pub addr: bool,
    /// It samples registers of the PMU.
    pub registers: bool,
    /// It samples where data came from.
    pub data_src: bool,
    /// It samples weights: 1 as a number, 2 as a structure.
    pub weight: u8,
    /// It samples branches: which types, a bit each; none for 0.
    pub branches: u8,
    /// Whose branches, and what is told of each: see `world/branches.rs`.
    pub branch_flags: u8,
    /// It joins the group of the newest leader.
    pub member: bool,
    /// It follows the CPU.
    pub of_cpu: bool,
    /// It follows the task on this CPU alone.
    pub bound: Option<u8>,
}

/// A write of a program to its registers.
#[derive(Clone, Copy, Debug)]
pub enum UserWrite {
    /// PMCn, so that it becomes negative after so many events.
    Counter(u8, u32),
    /// MMCR0: FC, PMAE, PMAO by the low bits.
    Mmcr0(u8),
    /// MMCR2: FCnP of each counter.
    Mmcr2(u8),
    /// The threshold counter of MMCRA.
    Threshold(u16),
    /// BESCR: GE, PME by the low bits; PMEO is cleared.
    Bescr(u8),
    /// `rfebb` at the end of a handler that has reset everything.
    Return,
    ClearBhrb,
}

/// A step.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// A task runs on a CPU, or none.
    Switch(u8, u8),
    /// Instructions of the program on a CPU: how many, cycles of each, a branch every so many.
    Run(u8, u8, u8, u8),
    /// A program enters the kernel as a counter may overflow, and the PM interrupt comes after so
    /// many instructions there. The PMU may have sampled the kernel by then: 0 for none, 1 for its
    /// data, 2 for its instruction. Or the kernel masks PM interrupts meanwhile, and replays it.
    Syscall(u8, u8, u8, bool),
    /// A counter of a CPU may overflow right before the next step, if that is in the kernel, and
    /// the PM interrupt has to wait.
    Hold(u8),
    /// Instructions of the kernel on a CPU, with PM interrupts masked or not.
    Kernel(u8, u8, bool),
    /// Instructions of a CPU that idles with the run latch off. PM interrupts come as NMIs there, or
    /// as others, which turn the run latch on.
    Idle(u8, u8, bool),
    /// Instructions of the hypervisor, which the kernel of a CPU calls.
    Hypercall(u8, u8),
    Open(u8, Wish),
    /// An EBB event; a member of the task's first EBB group if it has one.
    OpenEbb(u8, u8),
    /// An EBB event that leads a group, beside those that the task has, on any CPU or on one only.
    OpenEbbGroup(u8, u8, Option<u8>),
    /// One that has the PMU sample at random, which random histories lack: nobody saves what MMCRA has
    /// of the threshold counter, and the last marked instruction may be the kernel's.
    OpenMarkedEbb(u8),
    /// One with a threshold, which random histories lack, too.
    OpenThresholdEbb(u8),
    Close(u8),
    Read(u8),
    Enable(u8),
    Disable(u8),
    Reset(u8),
    Period(u8, u16),
    /// perf core has another period for an event.
    Adjust(u8, u16),
    /// Groups take turns on a CPU.
    Rotate(u8),
    /// A CPU's events leave it while those of its task stay, and come back at once, or with the
    /// next such step.
    Cgroup(u8, bool),
    /// All flexible events of a CPU leave it and come back.
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
    /// It does in the middle of the kernel's work, after so many instructions.
    PreemptIn(u8, u8),
    /// A debugger has the program of a CPU execute some instructions, and stops it after each, or
    /// after each branch.
    Trace(u8, u8, bool),
    /// The kernel steps over a probe after so many of its instructions.
    ProbeIn(u8, u8),
    /// An idle CPU sleeps.
    Sleep(u8, bool),
    /// The partition is suspended and resumed on another machine: each PMU without an event then has
    /// another partition's registers, or is reset.
    Suspend(bool),
    /// The EBB groups of the task on a CPU take turns, or the task opens another one.
    Turn(u8, u8),
    /// The task on a CPU moves to another CPU.
    Migrate(u8, u8),
    /// A CPU switches to a task with a clone of its task's context. If there is none, its task closes
    /// the events that a child would not inherit, opens one if it has no other, and forks.
    Clone(u8, Wish),
    /// The task on a CPU exits.
    Exit(u8),
    /// The module goes and comes again, beside the built-in driver, under the events of that one.
    Reload,
    /// So much time passes that the counters that count for nobody are about to overflow.
    Elapse(u8),
}

impl Op {
    pub fn random(random: &mut Chance) -> Self {
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

    /// The program of a CPU runs.
    pub fn run(random: &mut Chance, cpu: u8) -> Self {
        let (count, cycles) = (random.below(24) as u8, random.below(4) as u8);
        Self::Run(cpu, 1 + count, 1 + cycles, 1 + random.below(6) as u8)
    }

    pub fn wish(random: &mut Chance) -> Wish {
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

    pub fn write(random: &mut Chance) -> UserWrite {
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
