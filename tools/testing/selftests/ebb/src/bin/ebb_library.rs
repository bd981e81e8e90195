// SPDX-License-Identifier: GPL-2.0
//! What the library `ebb` does where a program could lose its EBBs, its life or somebody
//! else's: after fork, with a foreign owner of EBBHR, when the PMU goes away in the middle
//! of a handler, when a handler is left by a jump, and of BESCR's other bits; and how it decodes
//! branches.

use ebb::EbbContext;
use ebb::Error;
use ebb::Event;
use ebb::Owner;
use ebb::Pmc;
use ebb::Rearm;
use ebb::bhrb::Branch;
use ebb::bhrb::Branches;
use ebb::config::Ifm;
use ebb::pmc;
use ebb::reg::Bescr;
use ebb::reg::Mmcr2;
use ebb::spr;
use ebb_selftests::escape;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ebb_selftests::tracee::Tracee;
use ktap::Outcome;
use ktap::check;
use ktap::process::Peer;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::Ordering::SeqCst;

const PERIOD: u32 = 10_000;

/// The thread's memory in the child says that a handler is installed, EBBHR that none is.
fn child_of_fork() -> Outcome {
    let event = session::cycles(PERIOD)?;
    session::wait_for(5, PERIOD)?;
    Peer::spawn(|_| {
        check!(ebb::owner() == Owner::Gone, "{:?}", ebb::owner());
        check!(ebb::enable() == Err(Error::Gone), "{:?}", ebb::enable());
        check!(ebb::inject() == Err(Error::Gone), "{:?}", ebb::inject());
        // With GE and PME on, this overflow would branch to 0.
        let own = session::schedule(&ebb::event(CYCLES))?;
        Pmc::Pmc1.write(Pmc::start_value(PERIOD));
        session::work_for(100_000);
        drop(own);
        let own = session::cycles(PERIOD)?;
        session::wait_for(20, PERIOD)?;
        session::end(own)
    })?
    .join()?;
    session::wait_for(ebb::count() + 20, PERIOD)?;
    session::end(event)
}

/// Nobody's EBBHR is overwritten, nor enabled, nor taken away.
fn foreign_owner() -> Outcome {
    const OTHER: u64 = 0x0100_0000;
    let foreign = Err(Error::Foreign { ebbhr: OTHER });
    // SAFETY: GE stays off, so nothing branches to the address.
    unsafe { spr::write::<{ spr::EBBHR }>(OTHER) };
    check!(ebb::owner() == Owner::Foreign(OTHER), "{:?}", ebb::owner());
    // SAFETY: the handler does nothing.
    let installed = unsafe { ebb::install(session::count_only) };
    check!(installed == foreign, "install: {installed:?}");
    for (what, result) in [
        ("enable", ebb::enable()),
        ("inject", ebb::inject()),
        ("uninstall", ebb::uninstall()),
    ] {
        check!(result == foreign, "{what}: {result:?}");
    }
    let [bescr, ebbhr, _] = session::ebb_registers();
    check!(bescr == 0 && ebbhr == OTHER, "{bescr:#x}, {ebbhr:#x}");
    Ok(())
}

/// A handler that was taken away leaves EBBHR to the next owner.
fn uninstalled() -> Outcome {
    let event = session::cycles(PERIOD)?;
    session::wait_for(5, PERIOD)?;
    ebb::uninstall()?;
    check!(session::ebb_registers()[..2] == [0, 0]);
    check!(ebb::owner() == Owner::Nobody, "{:?}", ebb::owner());
    check!(ebb::enable() == Err(Error::NotInstalled));
    session::expect_none(5 * u64::from(PERIOD))?;
    event.close();
    let event = session::cycles(PERIOD)?;
    session::wait_for(5, PERIOD)?;
    session::end(event)
}

extern "C" fn uninstall(_: libc::c_int) {
    let _ = ebb::uninstall();
}

/// A signal's handler that uninstalls just before `install` writes EBBHR has it fail.
fn uninstalled_in_install() -> Outcome {
    // mtspr 804 of any register.
    const WRITES_EBBHR: u32 = 0x7c04_cba6;
    const ANY_REGISTER: u32 = 31 << 21;
    let mut child = Peer::spawn(|parent| {
        // SAFETY: the function is a signal's handler.
        unsafe { libc::signal(libc::SIGUSR1, uninstall as *const () as usize) };
        session::install(session::count_only)?;
        parent.tell()?;
        parent.listen()?;
        // SAFETY: the handler does nothing.
        let installed = unsafe { ebb::install(session::count_only) };
        check!(installed == Err(Error::NotInstalled), "{installed:?}");
        check!(ebb::owner() == Owner::Nobody, "{:?}", ebb::owner());
        let own = session::cycles(PERIOD)?;
        session::wait_for(20, PERIOD)?;
        session::end(own)
    })?;
    child.listen()?;
    let tracee = Tracee::attach(child.pid())?;
    let memory = tracee.memory()?;
    child.tell()?;
    while memory.word(tracee.nip()?)? & !ANY_REGISTER != WRITES_EBBHR {
        tracee.step()?;
    }
    tracee.go_on(libc::SIGUSR1)?;
    child.join()
}

/// BESCR\[EE\] (bit 30) is for events that are not the PMU's, TS (32-33) the state of a
/// transaction.
fn other_bits_of_bescr() -> Outcome {
    const EE: Bescr = Bescr(1 << 33);
    const TS: Bescr = Bescr(3 << 30);
    session::install(session::count_only)?;
    // No event, so no EBB, and no rfebb that looks at TS.
    // SAFETY: GE is off.
    unsafe { (EE | TS).write() };
    let kept = Bescr::read();
    if kept == Bescr(0) {
        return ktap::skip("this CPU's BESCR has neither EE nor TS");
    }
    ebb::enable()?;
    let on = Bescr::read();
    check!(on.has(kept | Bescr::GE | Bescr::PME), "enable: {on:?}");
    ebb::disable();
    check!(Bescr::read() == kept, "disable: {:?}", Bescr::read());

    // SAFETY: GE is off.
    unsafe { EE.write() };
    let event = session::cycles(PERIOD)?;
    session::wait_for(20, PERIOD)?;
    check!(Bescr::read().has(EE), "after EBBs: {:?}", Bescr::read());
    session::end(event)
}

/// What the handlers below act on.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);
static READY: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicBool = AtomicBool::new(false);
static DONE: AtomicBool = AtomicBool::new(false);
static READ: AtomicU64 = AtomicU64::new(u64::MAX);

/// Uses the PMU as handlers do.
fn use_the_pmu(context: &mut EbbContext<'_>) {
    READ.store(context.value(Pmc::Pmc1).into(), Relaxed);
    Pmc::Pmc2.write(0);
    pmc::freeze();
    let _ = pmc::siar();
    let _ = pmc::bhrb_entry::<0>();
}

/// Takes the event off the PMU, as the kernel does with a group that has lost it.
fn lose_the_pmu(context: &mut EbbContext<'_>) {
    if context.number() == 3 {
        // SAFETY: an ioctl without a pointer (PERF_EVENT_IOC_DISABLE).
        unsafe { libc::ioctl(DESCRIPTOR.load(Relaxed), 0x2000_2401) };
        use_the_pmu(context);
    }
}

fn evicted_in_handler() -> Outcome {
    let event = session::prepare(CYCLES, lose_the_pmu)?;
    DESCRIPTOR.store(event.as_raw_fd(), Relaxed);
    ebb::start(Pmc::Pmc1, PERIOD.into())?;
    ebb::enable()?;
    pmc::unfreeze();
    session::wait_for(3, PERIOD)?;
    check!(ebb::evicted(), "nothing was noticed");
    check!(!ebb::evicted(), "noticed twice");
    let read = READ.load(Relaxed);
    check!(!session::isa_v31() || read == 0, "PMC1 was {read:#x}");
    session::expect_none(5 * u64::from(PERIOD))?;

    event.enable()?;
    event.check_scheduled()?;
    session::arm(PERIOD)?;
    session::wait_for(20, PERIOD)?;
    check!(!ebb::evicted(), "with the event there");
    session::end(event)
}

/// Once there is another thread, has it drop the event, and goes on when it has.
fn wait_for_the_other(context: &mut EbbContext<'_>) {
    if !READY.load(SeqCst) || DONE.load(SeqCst) {
        return;
    }
    ASKED.store(true, SeqCst);
    while !DONE.load(SeqCst) {
        // SAFETY: a system call without pointers.
        unsafe { libc::sched_yield() };
    }
    use_the_pmu(context);
}

fn dropped_by_another_thread() -> Outcome {
    let event: Event = session::begin(CYCLES, PERIOD, wait_for_the_other)?;
    let other = std::thread::spawn(move || {
        while !ASKED.load(SeqCst) {
            std::thread::yield_now();
        }
        drop(event);
        DONE.store(true, SeqCst);
    });
    READY.store(true, SeqCst);
    session::work_for(100 * u64::from(PERIOD));
    check!(DONE.load(SeqCst), "no EBB came");
    check!(other.join().is_ok());
    check!(ebb::evicted(), "nothing was noticed");
    session::expect_none(5 * u64::from(PERIOD))?;
    let event = session::cycles(PERIOD)?;
    session::wait_for(20, PERIOD)?;
    session::end(event)
}

/// Jumps out of the handler, as `siglongjmp` does.
fn jump(context: &mut EbbContext<'_>) {
    if context.number() == 3 {
        // SAFETY: `until_jumped` runs in `call_escapable`.
        unsafe { escape::escape() };
    }
}

extern "C" fn jump_out_of_signal(_: libc::c_int) {
    // SAFETY: as in `jump`.
    unsafe { escape::escape() };
}

/// Has a signal handler jump out of the handler.
fn jump_by_signal(context: &mut EbbContext<'_>) {
    if context.number() == 3 {
        // SAFETY: the signal has a handler.
        unsafe { libc::raise(libc::SIGUSR1) };
    }
}

extern "C" fn until_jumped() {
    session::work_for(100 * u64::from(PERIOD));
}

/// EBBs come back on.
fn jumped_out(handler: ebb::Handler) -> Outcome {
    // SAFETY: zeroes are a valid sigaction. The jump leaves the signal as it is when
    // its handler runs: not blocked.
    ktap::os_result(unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = jump_out_of_signal as *const () as usize;
        action.sa_flags = libc::SA_NODEFER;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut())
    })?;
    let event = session::prepare(CYCLES, handler)?;
    ebb::start(Pmc::Pmc1, PERIOD.into())?;
    ebb::enable()?;
    pmc::unfreeze();
    // SAFETY: nothing in `until_jumped` has to be dropped.
    let jumped = unsafe { escape::call_escapable(until_jumped) };
    check!(jumped == 1, "no jump, {} EBBs", ebb::count());
    check!(ebb::count() == 3, "{} EBBs", ebb::count());
    let bescr = Bescr::read();
    check!(!bescr.has(Bescr::GE), "{bescr:?} after the jump");
    ebb::enable()?;
    session::wait_for(30, PERIOD)?;
    session::end(event)
}

/// With EBBs off and no jump, `enable` leaves a negative counter alone: its EBB comes.
fn enable_without_jump() -> Outcome {
    let event = session::prepare(CYCLES, |context| context.rearm(Rearm::Stop))?;
    ebb::start(Pmc::Pmc1, 100)?;
    ebb::disable();
    pmc::unfreeze();
    session::work_for(50_000);
    ebb::enable()?;
    session::wait_for(1, PERIOD)?;
    session::end(event)
}

/// What `read` gives of a group is longer than of one event.
fn scheduled_with_grouped_leader() -> Outcome {
    let leader = ebb::event(CYCLES).grouped().open()?;
    let _member = ebb::member(ebb::config::INSTRUCTIONS_PMC2).open_with(&leader)?;
    leader.enable()?;
    check!(leader.is_scheduled()?);
    leader.disable()?;
    Ok(())
}

/// Filters and counters that do not exist cannot be asked for.
fn no_silent_masks() -> Outcome {
    check!(Ifm::new(3) == Some(Ifm::Conditional));
    check!(Ifm::new(4).is_none() && Pmc::new(0).is_none() && Pmc::new(7).is_none());
    let all = Pmc::ALL
        .into_iter()
        .fold(Mmcr2(0), |all, pmc| all | Mmcr2::freeze_problem(pmc));
    check!(all == Mmcr2::USER, "{all:?}");
    Ok(())
}

/// Entries of the BHRB as the ISA has them: bit 62 marks the target of the branch in the next, bit
/// 63 what was mispredicted.
fn decoded_branches() -> Outcome {
    let branch = |from, to, mispredicted| Branch {
        from,
        to,
        mispredicted,
    };
    let cases: [(&[u64], &[Branch]); 9] = [
        (
            &[0x1000, 0x2001, 0, 0x3000],
            &[branch(0x1000, None, false), branch(0x2000, None, true)],
        ),
        (&[0x3002, 0x1000], &[branch(0x1000, Some(0x3000), false)]),
        // Its target, its direction.
        (&[0x3003, 0x1000], &[branch(0x1000, Some(0x3000), true)]),
        (&[0x3002, 0x1001], &[branch(0x1000, Some(0x3000), true)]),
        // The buffer has lost the branch, or ends.
        (
            &[0x3003, 0x4002, 0x1000],
            &[
                branch(0, Some(0x3000), true),
                branch(0x1000, Some(0x4000), false),
            ],
        ),
        (&[0x3002], &[branch(0, Some(0x3000), false)]),
        (&[0x3002, 0, 0x1000], &[branch(0, Some(0x3000), false)]),
        // No address, no branch.
        (&[1, 2, 3, 0x1000], &[branch(0x1000, None, false)]),
        (
            &[0x3002, 1, 0x1000],
            &[branch(0, Some(0x3000), false), branch(0x1000, None, false)],
        ),
    ];
    for (entries, branches) in cases {
        let decoded: Vec<Branch> = Branches::decode(entries).collect();
        check!(decoded == branches, "{entries:x?}: {decoded:x?}");
    }
    Ok(())
}

ktap::main! {
    first: session::require_ebb;
    child_of_fork, foreign_owner, uninstalled, uninstalled_in_install, other_bits_of_bescr, evicted_in_handler,
    dropped_by_another_thread, jumped_out_of_handler = jumped_out(jump),
    jumped_out_of_signal = jumped_out(jump_by_signal), enable_without_jump, scheduled_with_grouped_leader,
    no_silent_masks, decoded_branches,
}
