// SPDX-License-Identifier: GPL-2.0
//! Context switches preserve a task's view of the PMU: FC and PMAE of MMCR0, its bits of MMCR2
//! (ORed with the kernel's), its counters and sampled registers. No task sees values of another.

use ebb::Attr;
use ebb::EbbContext;
use ebb::Pmc;
use ebb::pmc;
use ebb::reg::Mmcr0;
use ebb::reg::Mmcr2;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use ktap::process;
use ktap::process::Link;
use ktap::process::Peer;
use pmu_selftests::machine;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const TURNS: usize = 50;

/// Runs two bodies in turns on one CPU, each until it calls [`next_turn`].
fn in_turns(first: fn(&mut Link) -> Outcome, second: fn(&mut Link) -> Outcome) -> Outcome {
    cpu::pin()?;
    let mut peers = [Peer::spawn(first)?, Peer::spawn(second)?];
    for _ in 0..TURNS {
        for peer in &mut peers {
            peer.tell()?;
            peer.listen()?;
        }
    }
    peers.into_iter().try_for_each(Peer::tell_and_join)
}

/// Waits for this side's next turn.
fn next_turn(parent: &mut Link) -> Outcome {
    parent.tell()?;
    parent.listen()
}

/// Values that one side writes to its registers and must find again.
struct Values {
    code: u64,
    mmcr0: Mmcr0,
    mmcr2: Mmcr2,
    counters: u32,
}

/// Writes the side's values to every register, and checks them at each turn.
fn keep(parent: &mut Link, own: &Values) -> Outcome {
    let own_pmc = session::pmc_of(own.code)?;
    parent.listen()?;
    let event = session::prepare(own.code, session::count_only)?;
    let sampled = [pmc::siar(), pmc::sdar(), pmc::sier()];
    for turn in 0..TURNS {
        own.mmcr0.write();
        own.mmcr2.write();
        for (n, pmc) in (0..).zip(Pmc::ALL) {
            pmc.write(own.counters + n);
        }
        next_turn(parent)?;
        let (mmcr0, mmcr2) = (Mmcr0::read(), Mmcr2::read());
        check!(mmcr0 == own.mmcr0, "turn {turn}: {mmcr0:?}");
        check!(mmcr2 == own.mmcr2, "turn {turn}: {mmcr2:?}");
        let now = [pmc::siar(), pmc::sdar(), pmc::sier()];
        check!(now == sampled, "SIAR, SDAR, SIER: {sampled:x?} {now:x?}");
        for (n, pmc) in (0..).zip(Pmc::ALL) {
            let value = pmc.read();
            // The kernel may clear a counter that the event does not use.
            let kept = value == own.counters + n || (value == 0 && pmc != own_pmc);
            check!(kept, "turn {turn}: {pmc:?} is {value:#x}");
        }
    }
    session::end(event)
}

fn two_ebb_tasks() -> Outcome {
    const FIRST: Values = Values {
        code: CYCLES,
        mmcr0: Mmcr0::FC,
        mmcr2: Mmcr2(Mmcr2::freeze_problem(Pmc::Pmc1).0 | Mmcr2::freeze_problem(Pmc::Pmc4).0),
        counters: 0x1111_1100,
    };
    const SECOND: Values = Values {
        code: 0x2001e,
        mmcr0: Mmcr0(Mmcr0::FC.0 | Mmcr0::PMAE.0),
        mmcr2: Mmcr2(Mmcr2::freeze_problem(Pmc::Pmc2).0 | Mmcr2::freeze_problem(Pmc::Pmc6).0),
        counters: 0x2222_2200,
    };
    in_turns(
        |parent| keep(parent, &FIRST),
        |parent| keep(parent, &SECOND),
    )
}

/// Runs an ordinary counting task on the same counter, and checks its count.
fn count(parent: &mut Link) -> Outcome {
    parent.listen()?;
    let event = session::schedule(&Attr::raw(CYCLES).user_only())?;
    let mut previous = event.read()?.value;
    let (mut least, mut most) = (u64::MAX, 0);
    for _ in 0..TURNS {
        session::work_for(machine::sampled_work(100_000));
        next_turn(parent)?;
        let times = event.read()?;
        check!(times.running == times.enabled, "{times:?}");
        least = least.min(times.value - previous);
        most = most.max(times.value - previous);
        previous = times.value;
    }
    println!("cycles in a turn: {least} to {most}");
    // The emulator also counts the kernel, which sometimes takes longer if it checks itself.
    let times = if machine::is_debug_kernel() { 4 } else { 2 };
    check!(
        least > 50_000 && most < times * least,
        "not the same each turn"
    );
    Ok(())
}

fn ebb_and_ordinary_task() -> Outcome {
    const OWN: Values = Values {
        code: CYCLES,
        mmcr0: Mmcr0(Mmcr0::FC.0 | Mmcr0::PMAE.0),
        mmcr2: Mmcr2::USER,
        counters: 0x7fff_ff00,
    };
    in_turns(|parent| keep(parent, &OWN), count)
}

/// The kernel freezes PMC1 for `exclude_user`. The program may clear the bit, but at the next task
/// switch the kernel sets its bits again.
fn mmcr2_is_ored() -> Outcome {
    let _event = session::schedule(&ebb::event(CYCLES).exclude_user(true))?;
    let (kernels, tasks) = (
        Mmcr2::freeze_problem(Pmc::Pmc1),
        Mmcr2::freeze_problem(Pmc::Pmc3),
    );
    check!(Mmcr2::read() == kernels, "at first: {:?}", Mmcr2::read());
    tasks.write();
    check!(Mmcr2::read() == tasks, "as written: {:?}", Mmcr2::read());
    let switches = process::switches();
    // Such a short sleep may be over before the task switch, for example on a debug kernel.
    for _ in 0..100 {
        process::give_way();
        if process::switches() > switches {
            break;
        }
    }
    check!(process::switches() > switches, "no switch happened");
    let now = Mmcr2::read();
    check!(now == kernels | tasks, "after a switch: {now:?}");
    Ok(())
}

/// A counter that the kernel froze for `exclude_user` counts for the program's other group.
fn mmcr2_is_the_groups() -> Outcome {
    let counting = session::schedule(&ebb::event(CYCLES))?;
    counting.disable()?;
    let frozen = session::schedule(&ebb::event(CYCLES).exclude_user(true))?;
    frozen.disable()?;
    counting.enable()?;
    let now = Mmcr2::read();
    check!(now == Mmcr2(0), "bits of the other group: {now:?}");
    Ok(())
}

/// EBBs in whose handler a task switch changed MMCR0.
static CHANGED: AtomicU64 = AtomicU64::new(0);

fn sleep_in_handler(_: &mut EbbContext<'_>) {
    let before = Mmcr0::read();
    process::give_way();
    let after = Mmcr0::read();
    // The switch may record a pending alert in PMAO.
    if before.without(Mmcr0::PMAO) != after.without(Mmcr0::PMAO) {
        CHANGED.fetch_add(1, Relaxed);
    }
}

/// PMAE is off in a handler and stays off over a task switch. Otherwise an EBB would be pending as
/// soon as the handler returns, and an EBB in the handler would be lost.
fn switch_in_handler() -> Outcome {
    const PERIOD: u32 = 20_000;
    let _hog = session::hog()?;
    let event = session::begin(CYCLES, PERIOD, sleep_in_handler)?;
    session::wait_for(100, PERIOD)?;
    session::end(event)?;
    // On a debug kernel such a short sleep may be over before the task switch.
    let fewest = if machine::is_debug_kernel() { 20 } else { 100 };
    let switches = process::switches();
    check!(switches >= fewest, "the handler slept {switches} times");
    let changed = CHANGED.load(Relaxed);
    check!(changed == 0, "MMCR0 changed in {changed} handlers");
    Ok(())
}

ktap::main! {
    first: session::require_ebb;
    two_ebb_tasks, ebb_and_ordinary_task, mmcr2_is_ored, mmcr2_is_the_groups, switch_in_handler,
}
