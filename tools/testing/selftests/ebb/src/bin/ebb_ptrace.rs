// SPDX-License-Identifier: GPL-2.0
//! Tracing a task that uses EBB: a tracer sees its state and nobody else's, may
//! stop it anywhere, and cannot give it more than a program has.

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
use ebb_selftests::tracee::PmuState;
use ebb_selftests::tracee::Tracee;
use ebb_selftests::trap;
use ebb_selftests::trap::traps;
use ktap::Failure;
use ktap::OrFail;
use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use ktap::process;
use ktap::process::Link;
use ktap::process::Peer;

const PERIOD: u32 = 5000;
const MARK: Mmcr2 = Mmcr2::freeze_problem(3);
const OTHER_MARK: Mmcr2 = Mmcr2::freeze_problem(4);

/// The handler that every process of this program installs.
fn handler_address() -> Result<u64, Failure> {
    // SAFETY: the handler does nothing; EBBs stay off.
    unsafe { ebb::install(session::count_only) }.or_fail("install")?;
    // SAFETY: EBBHR is always readable.
    Ok(unsafe { spr::read::<{ spr::EBBHR }>() })
}

/// Whether there is no EBB state to be seen.
fn has_no_data(state: std::io::Result<EbbState>) -> Result<bool, Failure> {
    match state {
        Ok(_) => Ok(false),
        Err(error) if error.raw_os_error() == Some(libc::ENODATA) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Has EBBs every `PERIOD` cycles with `mark` in MMCR2, until told to end; all
/// must have come by then.
fn busy(parent: &mut Link, mark: Mmcr2) -> Outcome {
    let event = session::begin(CYCLES, PERIOD, session::count_only)?;
    mark.write();
    session::wait_for(5, PERIOD)?;
    parent.tell()?;
    // Nothing is told before the tracer is done, and it tells again for the end.
    while !parent.is_told() {
        for _ in 0..50 {
            session::work();
        }
        check!(Mmcr2::read() == mark, "{:?}", Mmcr2::read());
    }
    parent.listen()?;
    session::wait_for(ebb::count() + 100, PERIOD)?;
    check!(ebb::spurious() == 0, "{} spurious EBBs", ebb::spurious());
    session::end(event);
    Ok(())
}

/// A task that had no EBB event has none of the state, even if its parent and its
/// neighbour on the CPU have.
fn never_used() -> Outcome {
    cpu::pin()?;
    let mut neighbour = Peer::spawn(|parent| busy(parent, OTHER_MARK))?;
    neighbour.listen()?;
    let event = session::begin(CYCLES, PERIOD, session::count_only)?;
    MARK.write();
    session::wait_for(5, PERIOD)?;
    let mut child = Peer::spawn(|parent| parent.listen())?;
    for _ in 0..50 {
        let tracee = Tracee::attach(child.pid())?;
        check!(has_no_data(tracee.ebb())?, "there is EBB state");
        let pmu = tracee.pmu().or_fail("PMU")?;
        check!(pmu == PmuState::default(), "{pmu:x?}");
        tracee.detach()?;
        for _ in 0..20 {
            session::work();
        }
    }
    session::end(event);
    child.tell()?;
    child.join()?;
    neighbour.tell()?;
    neighbour.join()
}

/// Two tasks with EBBs on one CPU, stopped again and again while many EBBs come:
/// each shows its own mark, and loses no EBB.
fn shows_its_own() -> Outcome {
    cpu::pin()?;
    let entry = handler_address()?;
    let mut peers = [
        (Peer::spawn(|parent| busy(parent, MARK))?, MARK),
        (Peer::spawn(|parent| busy(parent, OTHER_MARK))?, OTHER_MARK),
    ];
    for (peer, _) in &mut peers {
        peer.listen()?;
    }
    for _ in 0..100 {
        for (peer, mark) in &peers {
            let tracee = Tracee::attach(peer.pid())?;
            let (ebb, pmu) = (tracee.ebb().or_fail("EBB")?, tracee.pmu().or_fail("PMU")?);
            check!(ebb.ebbhr == entry, "handler {entry:#x}: {ebb:x?}");
            let known = Bescr::GE | Bescr::PME | Bescr::PMEO;
            check!(Bescr(ebb.bescr).without(known).0 == 0, "{ebb:x?}");
            check!(pmu.mmcr2 == mark.0, "mark {mark:?}: {pmu:x?}");
            check!(pmu.used_ebb == 1, "{pmu:x?}");
            pmu.check_user_bits()?;
            tracee.detach()?;
        }
        // Some time for them to run.
        process::give_way();
    }
    for (mut peer, _) in peers {
        peer.tell()?;
        peer.join()?;
    }
    Ok(())
}

/// The state of a task that has closed its event is its own or none.
fn after_close() -> Outcome {
    cpu::pin()?;
    let entry = handler_address()?;
    let mut neighbour = Peer::spawn(|parent| busy(parent, OTHER_MARK))?;
    neighbour.listen()?;
    let mut child = Peer::spawn(|parent| {
        let event = session::begin(CYCLES, PERIOD, session::count_only)?;
        MARK.write();
        session::wait_for(5, PERIOD)?;
        session::end(event);
        parent.tell()?;
        parent.listen()
    })?;
    child.listen()?;
    for _ in 0..50 {
        let tracee = Tracee::attach(child.pid())?;
        if !has_no_data(tracee.ebb())? {
            let ebb = tracee.ebb().or_fail("EBB")?;
            check!(ebb.ebbhr == entry || ebb.ebbhr == 0, "{ebb:x?}");
            check!(!Bescr(ebb.bescr).has(Bescr::GE), "{ebb:x?}");
        }
        let pmu = tracee.pmu().or_fail("PMU")?;
        check!(pmu.mmcr2 == MARK.0 || pmu.mmcr2 == 0, "{pmu:x?}");
        pmu.check_user_bits()?;
        tracee.detach()?;
        process::give_way();
    }
    child.tell()?;
    child.join()?;
    neighbour.tell()?;
    neighbour.join()
}

/// Whatever a tracer sets, the task gets the bits of a program: it may use the PMU
/// as before, its counter counts and its EBBs come.
fn hostile_pmu_state() -> Outcome {
    let entry = handler_address()?;
    let mut child = Peer::spawn(|parent| {
        let event = session::begin(CYCLES, PERIOD, session::count_only)?;
        session::wait_for(5, PERIOD)?;
        ebb::disable();
        pmc::freeze();
        for _ in 0..20 {
            parent.tell()?;
            parent.listen()?;
            let (mmcr0, mmcr2) = (Mmcr0::read(), Mmcr2::read());
            let user = Mmcr0::FC | Mmcr0::PMAE | Mmcr0::PMAO;
            check!(mmcr0.without(user) == Mmcr0(0), "{mmcr0:?}");
            check!(mmcr2.0 & !Mmcr2::USER.0 == 0, "{mmcr2:?}");
            // Set right by the program itself, everything is as ever.
            Mmcr2(0).write();
            check!(!traps(trap::write_mmcr0)?, "MMCR0 is not writable");
            ebb::start(Pmc::Pmc1, PERIOD).or_fail("start")?;
            Mmcr0::PMAE.write();
            ebb::enable().or_fail("enable")?;
            session::wait_for(ebb::count() + 10, PERIOD)?;
            ebb::disable();
            pmc::freeze();
        }
        session::end(event);
        check!(traps(trap::write_mmcr0)?, "MMCR0 is writable after close");
        Ok(())
    })?;
    let all_ones = PmuState {
        siar: u64::MAX,
        sdar: u64::MAX,
        sier: u64::MAX,
        mmcr2: u64::MAX,
        mmcr0: u32::MAX,
        used_ebb: 1,
    };
    let zeroes = PmuState {
        used_ebb: 1,
        ..PmuState::default()
    };
    for turn in 0..20 {
        child.listen()?;
        let tracee = Tracee::attach(child.pid())?;
        let state = if turn % 2 == 0 { &all_ones } else { &zeroes };
        tracee.set_pmu(state).or_fail("set")?;
        let ebb = tracee.ebb().or_fail("EBB")?;
        check!(ebb.ebbhr == entry, "{ebb:x?}");
        tracee.detach()?;
        child.tell()?;
    }
    child.join()
}

/// A task into which a tracer has written EBB registers and PMU state before it
/// ever used EBBs starts from a clean state with its first event.
fn hostile_before_first_event() -> Outcome {
    let mut child = Peer::spawn(|parent| {
        parent.tell()?;
        parent.listen()?;
        check!(traps(trap::write_mmcr0)?, "MMCR0 is writable");
        for _ in 0..100 {
            session::work();
        }
        let event = session::prepare(CYCLES, session::count_only)?;
        check!(Mmcr2::read() == Mmcr2(0), "{:?}", Mmcr2::read());
        let mmcr0 = Mmcr0::read();
        check!(mmcr0 == Mmcr0::FC | Mmcr0::PMAE, "{mmcr0:?}");
        ebb::start(Pmc::Pmc1, PERIOD).or_fail("start")?;
        ebb::enable().or_fail("enable")?;
        pmc::unfreeze();
        session::wait_for(20, PERIOD)?;
        session::end(event);
        Ok(())
    })?;
    child.listen()?;
    let tracee = Tracee::attach(child.pid())?;
    let all_ones = EbbState {
        ebbrr: u64::MAX,
        ebbhr: u64::MAX,
        bescr: u64::MAX,
    };
    // The kernel lets this be set of tasks without EBBs, if at all.
    if let Err(error) = tracee.set_ebb(&all_ones) {
        println!("EBB registers cannot be set: {error}");
    }
    let all_ones = PmuState {
        siar: u64::MAX,
        sdar: u64::MAX,
        sier: u64::MAX,
        mmcr2: u64::MAX,
        mmcr0: u32::MAX,
        used_ebb: 0,
    };
    tracee.set_pmu(&all_ones).or_fail("set")?;
    tracee.detach()?;
    child.tell()?;
    child.join()
}

/// A tracer may call a task one without EBBs while it has an event.
fn used_ebb_taken_away() -> Outcome {
    let mut child = Peer::spawn(|parent| busy(parent, MARK))?;
    child.listen()?;
    let tracee = Tracee::attach(child.pid())?;
    let mut state = tracee.pmu().or_fail("PMU")?;
    state.used_ebb = 0;
    tracee.set_pmu(&state).or_fail("set")?;
    tracee.detach()?;
    child.tell()?;
    child.join()
}

fn stop_in_handler(context: &mut EbbContext<'_>) {
    if context.number() == 5 {
        // SAFETY: system calls without pointers.
        unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
    }
}

/// The instructions `rfebb 1` and `trap`.
const RFEBB: u32 = 0x4c00_0924;
const TRAP: u32 = 0x7fe0_0008;

/// From inside a handler step by step to its end, over the return to where it came
/// from, and on.
///
/// The return itself is made at full speed: QEMU (11) never gets beyond an `rfebb`
/// that is stepped.
fn steps_through_a_handler() -> Outcome {
    let child = Peer::spawn(|_| {
        let event = session::begin(CYCLES, PERIOD, stop_in_handler)?;
        session::wait_for(100, PERIOD)?;
        check!(ebb::spurious() == 0, "{} spurious EBBs", ebb::spurious());
        session::end(event);
        Ok(())
    })?;
    let mut status = 0;
    // SAFETY: `status` lives through the call.
    unsafe { libc::waitpid(child.pid(), &mut status, libc::WUNTRACED) };
    check!(libc::WIFSTOPPED(status), "status {status:#x}");
    let tracee = Tracee::attach(child.pid())?;
    let text = tracee.memory().or_fail("memory")?;

    let before = tracee.ebb().or_fail("EBB")?;
    check!(!Bescr(before.bescr).has(Bescr::GE), "{before:x?}");
    let mut steps = 0;
    while text.word(tracee.nip()?).or_fail("read")? != RFEBB {
        tracee.step()?;
        steps += 1;
        let ebb = tracee.ebb().or_fail("EBB")?;
        check!(ebb.ebbrr == before.ebbrr, "step {steps}: {ebb:x?}");
        check!(!Bescr(ebb.bescr).has(Bescr::GE), "step {steps}: {ebb:x?}");
        check!(steps < 5000, "no end of the handler");
    }
    println!("{steps} steps");

    let instruction = text.word(before.ebbrr).or_fail("read")?;
    text.set_word(before.ebbrr, TRAP).or_fail("write")?;
    tracee.go_on(0)?;
    while tracee.wait_stopped()? != libc::SIGTRAP {
        tracee.go_on(0)?;
    }
    let back = tracee.nip()?;
    check!(back == before.ebbrr, "back at {back:#x}, {before:x?}");
    text.set_word(before.ebbrr, instruction).or_fail("write")?;
    // An EBB may be due all the time. None may lead astray.
    for _ in 0..200 {
        if text.word(tracee.nip()?).or_fail("read")? == RFEBB {
            break;
        }
        tracee.step()?;
    }
    tracee.detach()?;
    // SAFETY: a system call without pointers.
    unsafe { libc::kill(child.pid(), libc::SIGCONT) };
    child.join()
}

/// The tracer dies, its tracee goes on.
fn tracer_dies() -> Outcome {
    let mut child = Peer::spawn(|parent| busy(parent, MARK))?;
    child.listen()?;
    let pid = child.pid();
    for _ in 0..10 {
        let tracer = Peer::spawn(|_| {
            let tracee = Tracee::attach(pid)?;
            let pmu = tracee.pmu().or_fail("PMU")?;
            check!(pmu.mmcr2 == MARK.0, "{pmu:x?}");
            std::mem::forget(tracee);
            Ok(())
        })?;
        tracer.join()?;
        process::give_way();
    }
    child.tell()?;
    child.join()
}

ktap::main! {
    first: session::require_ebb;
    never_used, shows_its_own, after_close, hostile_pmu_state, hostile_before_first_event,
    used_ebb_taken_away, steps_through_a_handler, tracer_dies,
}
