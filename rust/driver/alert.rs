// SPDX-License-Identifier: GPL-2.0

//! Alerts that a program cannot take at once, on machines that do not keep them for it.
//!
//! The architecture keeps an alert in MMCR0\[PMAO\] until the program has EBBs on, and raises no
//! interrupt for it while MMCR0\[EBE\] is set. Hardware does so, and nothing here has an effect there.
//! QEMU (8.1 and later) differs:
//!
//! - an alert raises a PM interrupt too, from a line that is up as long as PMAO is set;
//! - it looks at BESCR when the alert happens, and never again: a program that has EBBs off then
//!   (its handler runs) gets none when they are on;
//! - with EBBs on, in a program, it branches; in the kernel it sets BESCR\[PMEO\] and remembers, *for
//!   the CPU*, to branch when a program with GE on is entered next, whichever that is; with PMEO off
//!   by then it forgets instead;
//! - an instruction counter that overflows in a block that ends in a direct branch has the branch to
//!   the handler overwritten: BESCR and EBBRR say that it was taken, and the program goes on.
//!
//! So this keeps alerts, one at most for a program, as PMAO is one bit:
//!
//! - **It begins** with a PM interrupt that comes with EBE set ([`interrupt`]), which shows what
//!   machine this is, and goes on from there on all CPUs. The first EBB event of all tries it
//!   ([`probe`]).
//! - **State** is kept for the CPU while the program's events are on its PMU ([`Alert`]). When they
//!   leave it for whatever reason, what is due goes to PMAO of the program's saved MMCR0
//!   ([`leave`]), and comes back from there ([`enter`]); so it moves with the task, is not inherited,
//!   and is forgotten with the first event of a new group.
//! - **It lets go** when the program has got its EBB or has turned alerts on again (PMAE), as that
//!   takes PMAO away ([`look`]).
//!
//! What is due is delivered by raising the alert anew, in the kernel and with BESCR\[GE\] and
//! \[PME\] on ([`raise`]): then the machine itself branches as soon as the program goes on, whatever
//! way it came into the kernel. As it remembers one bit, doing so twice does no harm. So that it is
//! not somebody else who gets it, PMEO is turned off in a program that leaves the PMU with GE on.
//! (It says nothing then: it tells a handler, which runs with GE off, why it was called.)
//!
//! EBBRR has no meaning either while GE and PME are on, as the next EBB overwrites it. It is set to
//! [`MARK`], and if it differs the machine has made an EBB since.
//!
//! QEMU before 8.1 raises no interrupts ([`is_silent`]), but remembers EBBs for the CPU as well.
//!
//! What cannot be had is told in `Documentation/internals.md`, "Under EBE".

use super::{
    local_pmu,
    Here, //
};
use crate::power::{
    interrupt::program_nip,
    machine,
    pmu,
    regs::{
        Bescr,
        Ebbhr,
        Ebbrr,
        Mmcr0, //
    },
    timer::look_within, //
};
use core::cell::Cell;
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// Whether this machine raises PM interrupts under EBE, known after the first.
static INTERRUPTS: Atomic<bool> = Atomic::new(false);

/// Whether that has been tried.
static PROBED: Atomic<bool> = Atomic::new(false);

/// What EBBRR never holds after an EBB: instructions are at multiples of four.
const MARK: u64 = 1;

/// When to look at an alert that is due, in nanoseconds. Less would slow down the handler that is
/// waited for.
const SOON: u64 = 20_000;

/// When to look again, at the earliest, when the kernel was interrupted. Where an interrupt takes
/// longer than [`SOON`], as on a debug kernel, a long system call would get nowhere.
const KERNEL: u64 = 80_000;

/// When to look again at the latest. Pauses double up to that.
const LATE: u64 = 640_000;

/// How often something is looked at that is due at the next instructions: more than a block of them.
const PATIENCE: usize = 64;

/// What is known of the alerts of the program whose events are on this CPU's PMU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Alert {
    /// None is due. The program may be in its handler.
    #[default]
    None,
    /// None is due, and EBBRR is marked.
    Marked,
    /// One is due. The machine is going to branch when the program goes on; EBBRR is marked.
    Held,
    /// One is due, and the program cannot take it.
    Due,
}

/// What a CPU keeps: see [`Alert`].
#[derive(Default)]
pub(super) struct Keeper {
    alert: Cell<Alert>,
    /// How long the last pause between two looks was.
    pause: Cell<u64>,
}

/// What a PM interrupt under EBE is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The program is at the start of its handler.
    Taken,
    /// The machine branches when the program goes on.
    Held,
    /// The program cannot take it now.
    Due,
    /// The machine made the EBB, but for the branch.
    Lost,
}

/// Judges an alert by BESCR, whether the program is `at_handler`, and whether the mark that EBBRR had
/// is gone.
pub(super) fn judge(bescr: Bescr, at_handler: bool, mark_gone: bool) -> Verdict {
    if bescr.pme() == 0 {
        Verdict::Due
    } else if bescr.ge() == 1 {
        Verdict::Held
    } else if bescr.pmeo() == 0 {
        // The program itself turned EBBs off.
        Verdict::Due
    } else if at_handler {
        Verdict::Taken
    } else if mark_gone {
        Verdict::Lost
    } else {
        // The handler runs.
        Verdict::Due
    }
}

impl Keeper {
    /// Whether EBBRR had the mark when this CPU last looked, and has it no more.
    fn mark_gone(&self) -> bool {
        matches!(self.alert.get(), Alert::Marked) && Ebbrr::read() != MARK
    }

    /// Judges the alert that occurred.
    fn judge(&self, here: &Here<'_>) -> Verdict {
        let at_handler = program_nip(&local_pmu(here)) == Ebbhr::read();
        judge(Bescr::read(), at_handler, self.mark_gone())
    }

    /// Sets what is known; looks after the shortest pause.
    fn set(&self, alert: Alert) {
        self.alert.set(alert);
        self.pause.set(SOON);
        if alert != Alert::Marked {
            look_within(SOON);
        }
    }

    /// The next pause.
    fn wait(&self, in_program: bool) -> Option<u64> {
        let least = if in_program { SOON } else { KERNEL };
        let pause = self.pause.get().max(least);
        self.pause.set(LATE.min(2 * pause));
        Some(pause)
    }
}

/// Puts BESCR and EBBRR to what they were before the machine made an EBB without the branch.
fn undo() {
    Ebbrr::write(MARK);
    Bescr::read()
        .with_const_ge::<1>()
        .with_const_pmeo::<0>()
        .write();
}

/// Whether this machine raises no PM interrupts under EBE, but remembers EBBs for a CPU all the same
/// (QEMU before 8.1).
fn is_silent() -> bool {
    PROBED.load(Relaxed) && !INTERRUPTS.load(Relaxed) && machine::is_emulated()
}

/// Whether the program takes EBBs of the PMU now.
fn takes_ebbs(bescr: Bescr) -> bool {
    bescr.ge() == 1 && bescr.pme() == 1
}

/// Has the machine forget an EBB that it may keep for the CPU. GE must be on.
fn forget(bescr: Bescr) {
    bescr.with_const_pmeo::<0>().write();
}

/// Marks EBBRR and has the machine forget. The program must take EBBs.
fn mark(bescr: Bescr) {
    Ebbrr::write(MARK);
    forget(bescr);
}

/// Has the machine forget an EBB that it may keep for the CPU, as far as `bescr` lets it.
fn forget_any(bescr: Bescr) {
    if takes_ebbs(bescr) {
        mark(bescr);
    } else if bescr.ge() == 1 {
        forget(bescr);
    }
}

/// Raises an alert in the kernel, for the machine to branch when the program goes on, so that it is
/// [`Alert::Held`]. The program must take EBBs. Leaves the PMU frozen.
fn raise(here: &Here<'_>) {
    const PMC5: usize = 4;
    const PMC6: usize = 5;

    here.alert.alert.set(Alert::Held);
    Ebbrr::write(MARK);
    let local = local_pmu(here);
    local.freeze(false);
    let [instructions, cycles] = [PMC5, PMC6].map(pmu::read_pmc);
    pmu::write_pmc(PMC5, pmu::NEGATIVE - 1);
    pmu::write_pmc(PMC6, 0);
    // PMC5 counts the next instruction, and alerts. PMC6 counts beside it.
    Mmcr0::from(0)
        .alerting()
        .with_const_ebe::<1>()
        .with_const_pmcjce::<1>()
        .with_const_fc14::<1>()
        .write();
    for _ in 0..PATIENCE {
        if Mmcr0::read().fc() == 1 {
            break;
        }
    }
    local.freeze(false);
    pmu::write_pmc(PMC5, instructions);
    pmu::write_pmc(PMC6, cycles);
}

/// Deals with a PM interrupt that came although EBBs are enabled: it is not ours, and neither are
/// the counters.
pub(super) fn interrupt(here: &Here<'_>, mmcr0: Mmcr0) {
    if PROBED.load(Relaxed) && !INTERRUPTS.load(Relaxed) {
        // A stray one: this machine keeps alerts itself, and PMAO is the program's.
        return;
    }
    INTERRUPTS.store(true, Relaxed);
    // The interrupt's line is up as long as PMAO is set.
    let mmcr0 = mmcr0.with_const_pmao::<0>();

    let keeper = &here.alert;
    match keeper.judge(here) {
        Verdict::Taken => keeper.set(Alert::None),
        Verdict::Held => {
            Ebbrr::write(MARK);
            // That of `raise` is looked at already, at pauses that must grow.
            if keeper.alert.get() != Alert::Held {
                keeper.set(Alert::Held);
            }
        }
        Verdict::Due => keeper.set(Alert::Due),
        Verdict::Lost => {
            undo();
            raise(here);
            keeper.set(Alert::Held);
        }
    }
    mmcr0.write();
}

/// Looks at what is known of the current program, which was interrupted `in_program` or in the
/// kernel. Returns when to look again, in nanoseconds.
pub(super) fn look(here: &Here<'_>, in_program: bool) -> Option<u64> {
    let mmcr0 = Mmcr0::read();
    if mmcr0.ebe() == 0 || mmcr0.pmao() == 1 {
        // The program left the PMU, or there is an interrupt to come, which tells more.
        return None;
    }
    let keeper = &here.alert;
    let bescr = Bescr::read();
    let taken = keeper.alert.get() == Alert::Held && Ebbrr::read() != MARK;
    let off = mmcr0.pmae() == 1 && keeper.alert.get() != Alert::Marked;
    if taken || off {
        keeper.alert.set(Alert::None);
    }
    match keeper.alert.get() {
        Alert::Marked => return None,
        Alert::None if takes_ebbs(bescr) => {
            mark(bescr);
            keeper.alert.set(Alert::Marked);
            return None;
        }
        Alert::Held | Alert::Due if takes_ebbs(bescr) => {
            raise(here);
            keeper.alert.set(Alert::Held);
            mmcr0.write();
        }
        _ => {}
    }
    keeper.wait(in_program)
}

/// Finds out, once, whether an alert under EBE interrupts. The PMU must be stopped.
pub(super) fn probe(here: &Here<'_>) {
    if PROBED.load(Relaxed) || !machine::interrupts_come() {
        return;
    }
    let stopped = Mmcr0::read();
    // The program may have EBBs on already. None of this is an event of its.
    let bescr = Bescr::read();
    Bescr::from(0).write();
    stopped.with_const_ebe::<1>().with_const_pmao::<1>().write();
    // An interrupt comes before this is over. An EBB does not, with EBBs off.
    for _ in 0..PATIENCE {
        pmu::synchronize();
        if INTERRUPTS.load(Relaxed) {
            break;
        }
    }
    stopped.write();
    if local_pmu(here).clear_pending_interrupt() {
        // It came, and found PM interrupts masked.
        INTERRUPTS.store(true, Relaxed);
    }
    bescr.write();
    here.alert.alert.set(Alert::None);
    PROBED.store(true, Relaxed);
}

/// Keeps programs from the registers of a PMU that is stopped, v3.1, and has no events.
///
/// QEMU, the machine with these interrupts, has no PMCCEXT, by which v3.1 does so.
pub(super) fn close() {
    if INTERRUPTS.load(Relaxed) {
        Mmcr0::read().closed().write();
    }
}

/// The current program leaves this CPU's PMU, which is stopped and had `mmcr0` before. Returns that
/// with what is due in PMAO.
pub(super) fn leave(here: &Here<'_>, mmcr0: Mmcr0) -> Mmcr0 {
    if !INTERRUPTS.load(Relaxed) {
        if is_silent() {
            forget_any(Bescr::read());
        }
        return mmcr0;
    }
    let keeper = &here.alert;
    let due = if mmcr0.pmao() == 1 {
        // The interrupt has not come, and does not any more.
        match keeper.judge(here) {
            Verdict::Taken => false,
            Verdict::Held | Verdict::Due => true,
            Verdict::Lost => {
                undo();
                true
            }
        }
    } else {
        let due = match keeper.alert.get() {
            Alert::None | Alert::Marked => false,
            Alert::Held => Ebbrr::read() == MARK,
            Alert::Due => true,
        };
        due && mmcr0.pmae() == 0
    };
    keeper.alert.set(Alert::None);
    forget_any(Bescr::read());
    mmcr0.with_pmao(due)
}

/// The current program, whose own bits of MMCR0 are `user`, enters this CPU's PMU, which is stopped.
/// Returns the bits that are to be set.
pub(super) fn enter(here: &Here<'_>, user: Mmcr0) -> Mmcr0 {
    let keeper = &here.alert;
    let bescr = Bescr::read();
    if !INTERRUPTS.load(Relaxed) {
        if is_silent() {
            if user.pmao() == 1 && takes_ebbs(bescr) {
                raise(here);
            } else {
                forget_any(bescr);
            }
        }
        return user;
    }
    if user.pmao() == 1 {
        if takes_ebbs(bescr) {
            raise(here);
            keeper.set(Alert::Held);
        } else {
            keeper.set(Alert::Due);
        }
    } else if takes_ebbs(bescr) {
        mark(bescr);
        keeper.set(Alert::Marked);
    } else {
        keeper.set(Alert::None);
    }
    user.with_const_pmao::<0>()
}
