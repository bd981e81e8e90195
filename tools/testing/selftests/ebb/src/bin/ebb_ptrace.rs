// SPDX-License-Identifier: GPL-2.0
//! Traces tasks that use EBBs. A tracer sees its tracee's state and no other task's, may stop it at
//! any instruction, and cannot give it more access than a program has. Core dumps contain the same
//! register sets.

use ebb::EbbContext;
use ebb::Pmc;
use ebb::pmc;
use ebb::reg::Bescr;
use ebb::reg::Mmcr0;
use ebb::reg::Mmcr2;
use ebb::spr;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ebb_selftests::tracee::EbbState;
use ebb_selftests::tracee::PERIOD;
use ebb_selftests::tracee::PmuState;
use ebb_selftests::tracee::Tracee;
use ebb_selftests::tracee::busy_peer;
use ebb_selftests::trap;
use ebb_selftests::trap::traps;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use ktap::process;
use ktap::process::Link;
use ktap::process::Peer;
use pmu_selftests::machine;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

const TAG: Mmcr2 = Mmcr2::freeze_problem(Pmc::Pmc3);
const OTHER_TAG: Mmcr2 = Mmcr2::freeze_problem(Pmc::Pmc4);

/// Returns whether the kernel reports that there is no EBB state.
fn has_no_data(state: std::io::Result<EbbState>) -> Result<bool, Failure> {
    match state {
        Ok(_) => Ok(false),
        Err(error) if error.raw_os_error() == Some(libc::ENODATA) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// A task that never had an EBB event has no EBB state, even if its parent and its neighbour on the
/// CPU have.
fn never_used() -> Outcome {
    cpu::pin()?;
    let neighbour = busy_peer(OTHER_TAG)?;
    let event = session::cycles(PERIOD)?;
    TAG.write();
    session::wait_for(5, PERIOD)?;
    let child = Peer::spawn(Link::listen)?;
    for _ in 0..50 {
        let tracee = Tracee::attach(child.pid())?;
        check!(has_no_data(tracee.ebb())?, "there is EBB state");
        let pmu = tracee.pmu()?;
        check!(pmu == PmuState::default(), "{pmu:x?}");
        tracee.detach()?;
        session::work_for(20_000);
    }
    session::end(event)?;
    child.tell_and_join()?;
    neighbour.tell_and_join()
}

/// Two tasks with EBBs on one CPU are stopped repeatedly while many EBBs come: each shows its own
/// tag, and loses no EBB.
fn shows_its_own() -> Outcome {
    cpu::pin()?;
    let entry = session::handler_address()?;
    let peers = [(busy_peer(TAG)?, TAG), (busy_peer(OTHER_TAG)?, OTHER_TAG)];
    for _ in 0..100 {
        for (peer, tag) in &peers {
            let tracee = Tracee::attach(peer.pid())?;
            tracee.ebb()?.check_own(entry)?;
            tracee.pmu()?.check_own(*tag)?;
            tracee.detach()?;
        }
        // Let the tasks run for a while.
        process::give_way();
    }
    peers
        .into_iter()
        .try_for_each(|(peer, _)| peer.tell_and_join())
}

/// One thread of a process has EBBs; the other has no EBB state.
fn of_another_thread() -> Outcome {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    let mut child = Peer::spawn(|parent| {
        std::thread::spawn(|| -> Outcome {
            let _event = session::cycles(PERIOD)?;
            TAG.write();
            session::wait_for(5, PERIOD)?;
            BEGUN.store(true, SeqCst);
            loop {
                session::work();
            }
        });
        while !BEGUN.load(SeqCst) {
            process::give_way();
        }
        parent.tell()?;
        parent.listen()
    })?;
    child.listen()?;
    let tracee = Tracee::attach(child.pid())?;
    check!(has_no_data(tracee.ebb())?, "there is EBB state");
    let pmu = tracee.pmu()?;
    check!(pmu == PmuState::default(), "{pmu:x?}");
    tracee.detach()?;
    child.tell_and_join()
}

/// A task that has closed its event shows its own state or none.
fn after_close() -> Outcome {
    cpu::pin()?;
    let entry = session::handler_address()?;
    let neighbour = busy_peer(OTHER_TAG)?;
    let mut child = Peer::spawn(|parent| {
        let event = session::cycles(PERIOD)?;
        TAG.write();
        session::wait_for(5, PERIOD)?;
        session::end(event)?;
        parent.tell()?;
        parent.listen()
    })?;
    child.listen()?;
    for _ in 0..50 {
        let tracee = Tracee::attach(child.pid())?;
        if !has_no_data(tracee.ebb())? {
            tracee.ebb()?.check_closed(entry)?;
        }
        tracee.pmu()?.check_closed(TAG)?;
        tracee.detach()?;
        process::give_way();
    }
    child.tell_and_join()?;
    neighbour.tell_and_join()
}

/// Whatever a tracer sets, the task gets only the bits that a program may set: it may use the PMU
/// as before, its counter counts and its EBBs come.
fn hostile_pmu_state() -> Outcome {
    let entry = session::handler_address()?;
    let mut child = Peer::spawn(|parent| {
        let event = session::cycles(PERIOD)?;
        session::wait_for(5, PERIOD)?;
        for _ in 0..20 {
            ebb::disable();
            pmc::freeze();
            parent.tell()?;
            parent.listen()?;
            let (mmcr0, mmcr2) = (Mmcr0::read(), Mmcr2::read());
            let user = Mmcr0::FC | Mmcr0::PMAE | Mmcr0::PMAO;
            check!(mmcr0.without(user) == Mmcr0(0), "{mmcr0:?}");
            check!(mmcr2.0 & !Mmcr2::USER.0 == 0, "{mmcr2:?}");
            // With valid values from the program itself, everything works again.
            Mmcr2(0).write();
            check!(!traps(trap::write_mmcr0)?, "MMCR0 is not writable");
            session::arm(PERIOD)?;
            session::wait_for(ebb::count() + 10, PERIOD)?;
        }
        session::end(event)?;
        check!(traps(trap::write_mmcr0)?, "MMCR0 is writable after close");
        Ok(())
    })?;
    let zeroes = PmuState {
        used_ebb: 1,
        ..PmuState::default()
    };
    for turn in 0..20 {
        child.listen()?;
        let tracee = Tracee::attach(child.pid())?;
        tracee.set_pmu(&if turn % 2 == 0 {
            PmuState::ones(1)
        } else {
            zeroes
        })?;
        tracee.ebb()?.check_own(entry)?;
        tracee.detach()?;
        child.tell()?;
    }
    child.join()
}

/// Values that a tracer sets in SIAR, SDAR and SIER are in the task's registers afterwards.
fn sampled_registers_are_set() -> Outcome {
    const SET: [u64; 3] = [0x1111_2224, 0x3333_4444, 0x5555_6666];
    // In an emulator a program always reads 0 from SIER; only the kernel shows the value.
    let sier_is_seen = !machine::is_emulated()?;
    let seen = move || [pmc::siar(), pmc::sdar(), pmc::sier()];
    let wanted = [SET[0], SET[1], if sier_is_seen { SET[2] } else { 0 }];
    let mut child = Peer::spawn(|parent| {
        let event = session::prepare(CYCLES, session::count_only)?;
        check!(seen() == [0; 3], "{:x?} before", seen());
        parent.tell()?;
        parent.listen()?;
        check!(seen() == wanted, "{:x?}, not {wanted:x?}", seen());
        event.disable()?;
        event.enable()?;
        check!(seen() == wanted, "{:x?}, back on the PMU", seen());
        parent.tell()?;
        parent.listen()?;
        session::end(event)
    })?;
    child.listen()?;
    let tracee = Tracee::attach(child.pid())?;
    let state = PmuState {
        siar: SET[0],
        sdar: SET[1],
        sier: SET[2],
        ..tracee.pmu()?
    };
    tracee.set_pmu(&state)?;
    tracee.detach()?;
    child.tell()?;
    child.listen()?;
    // The kernel shows them as they were on the PMU last.
    let tracee = Tracee::attach(child.pid())?;
    let after = tracee.pmu()?;
    check!(after == state, "set {state:x?}, is {after:x?}");
    tracee.detach()?;
    child.tell_and_join()
}

/// A tracer writes EBB registers and PMU state of a task that never used EBBs. The task's first
/// event starts from a clean state.
fn hostile_before_first_event() -> Outcome {
    let mut child = Peer::spawn(|parent| {
        parent.tell()?;
        parent.listen()?;
        check!(traps(trap::write_mmcr0)?, "MMCR0 is writable");
        session::work_for(100_000);
        let event = session::without_handler()?;
        session::check_fresh()?;
        // The library would take the value in EBBHR for another owner's.
        //
        // SAFETY: GE is off from the first write on, so nothing branches to the address.
        unsafe {
            Bescr(0).write();
            spr::write::<{ spr::EBBHR }>(0);
        }
        session::install(session::count_only)?;
        session::arm(PERIOD)?;
        session::wait_for(20, PERIOD)?;
        session::end(event)
    })?;
    child.listen()?;
    let tracee = Tracee::attach(child.pid())?;
    let all_ones = EbbState {
        ebbrr: u64::MAX,
        ebbhr: u64::MAX,
        bescr: u64::MAX,
    };
    // The kernel may refuse this for tasks without EBBs.
    if let Err(error) = tracee.set_ebb(&all_ones) {
        println!("EBB registers cannot be set: {error}");
    }
    tracee.set_pmu(&PmuState::ones(0))?;
    tracee.detach()?;
    child.tell_and_join()
}

/// A tracer may clear the flag that the task has used EBBs while the task has an event.
fn used_ebb_taken_away() -> Outcome {
    let child = busy_peer(TAG)?;
    let tracee = Tracee::attach(child.pid())?;
    let mut state = tracee.pmu()?;
    state.used_ebb = 0;
    tracee.set_pmu(&state)?;
    tracee.detach()?;
    child.tell_and_join()
}

fn stop_in_handler(context: &mut EbbContext<'_>) {
    if context.number() == 5 {
        // SAFETY: The system calls take no pointers.
        unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
    }
}

/// The instructions `rfebb 1` and `trap`.
const RFEBB: u32 = 0x4c00_0924;
const TRAP: u32 = 0x7fe0_0008;

/// Steps from inside a handler to its end, returns to the interrupted code, and steps on.
///
/// The return itself runs at full speed: QEMU (11) never gets beyond an `rfebb` that is
/// single-stepped.
fn steps_through_a_handler() -> Outcome {
    let child = Peer::spawn(|_| {
        let event = session::begin(CYCLES, PERIOD, stop_in_handler)?;
        session::wait_for(100, PERIOD)?;
        session::end(event)
    })?;
    let mut status = 0;
    // SAFETY: `status` lives through the call.
    unsafe { libc::waitpid(child.pid(), &mut status, libc::WUNTRACED) };
    check!(libc::WIFSTOPPED(status), "status {status:#x}");
    let tracee = Tracee::attach(child.pid())?;
    let text = tracee.memory()?;

    let before = tracee.ebb()?;
    check!(!Bescr(before.bescr).has(Bescr::GE), "{before:x?}");
    let mut steps = 0;
    while text.word(tracee.nip()?)? != RFEBB {
        tracee.step()?;
        steps += 1;
        let ebb = tracee.ebb()?;
        check!(ebb.ebbrr == before.ebbrr, "step {steps}: {ebb:x?}");
        check!(!Bescr(ebb.bescr).has(Bescr::GE), "step {steps}: {ebb:x?}");
        check!(steps < 5000, "no end of the handler");
    }
    println!("{steps} steps");

    let instruction = text.word(before.ebbrr)?;
    text.set_word(before.ebbrr, TRAP)?;
    tracee.go_on(0)?;
    while tracee.wait_stopped()? != libc::SIGTRAP {
        tracee.go_on(0)?;
    }
    let back = tracee.nip()?;
    check!(back == before.ebbrr, "back at {back:#x}, {before:x?}");
    text.set_word(before.ebbrr, instruction)?;
    // An EBB may be pending all the time. It must not change where the program continues.
    for _ in 0..200 {
        if text.word(tracee.nip()?)? == RFEBB {
            break;
        }
        tracee.step()?;
    }
    tracee.detach()?;
    // SAFETY: The system call takes no pointers.
    unsafe { libc::kill(child.pid(), libc::SIGCONT) };
    child.join()
}

/// The tracer dies, and its tracee continues.
fn tracer_dies() -> Outcome {
    let child = busy_peer(TAG)?;
    for _ in 0..10 {
        let tracer = Peer::spawn(|_| {
            let tracee = Tracee::attach(child.pid())?;
            tracee.pmu()?.check_own(TAG)?;
            std::mem::forget(tracee);
            Ok(())
        })?;
        tracer.join()?;
        process::give_way();
    }
    child.tell_and_join()
}

ktap::main! {
    first: session::require_ebb;
    never_used, of_another_thread, shows_its_own, after_close, hostile_pmu_state, sampled_registers_are_set,
    hostile_before_first_event, used_ebb_taken_away, steps_through_a_handler, tracer_dies,
}
