// SPDX-License-Identifier: GPL-2.0
//! `ebb::Session`: events by name; counters between EBBs; pause, resume and close by the session's
//! thread, its handler and another thread; eviction and the return of the PMU; other owners of
//! EBBHR; a thread that ends with EBBs on; processes and threads that get the number of the
//! session's. `ebb_periods` tests periods.

use ebb::EbbContext;
use ebb::Error;
use ebb::Owner;
use ebb::Pmc;
use ebb::Rearm;
use ebb::Save;
use ebb::Session;
use ebb::State;
use ebb::reg::Bescr;
use ebb::spr;
use ebb_selftests::current;
use ebb_selftests::neighbour::Pinned;
use ebb_selftests::session;
use ebb_selftests::session::count_only;
use ktap::Failure;
use ktap::OrFail;
use ktap::Outcome;
use ktap::check;
use ktap::process::Link;
use ktap::process::Peer;
use std::fs;
use std::io;
use std::io::Read;
use std::io::Write;
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;
use std::time::Instant;

const PERIOD: u32 = 10_000;

/// Starts a session of cycles.
#[track_caller]
fn started(handler: ebb::Handler) -> Result<Session, Failure> {
    let session = Session::open("cycles", PERIOD.into())?;
    check!(session.state() == State::Idle, "{:?}", session.state());
    // SAFETY: The handlers here only access atomics and their context.
    unsafe { session.start(Save::Full, handler)? };
    // A handler that stops the session may have been called already.
    let state = session.state();
    check!(matches!(state, State::Running | State::Paused), "{state:?}");
    Ok(session)
}

/// Starts a session and waits until it has taken EBBs.
#[track_caller]
fn running() -> Result<Session, Failure> {
    let session = started(count_only)?;
    goes_on()?;
    Ok(session)
}

/// Fails unless EBBs come.
#[track_caller]
fn goes_on() -> Outcome {
    session::wait_for(ebb::count() + 20, PERIOD)
}

/// Fails if EBBs come.
#[track_caller]
fn stands() -> Outcome {
    session::expect_none(5 * u64::from(PERIOD))
}

/// Each way to name an event opens the code for which it stands.
fn names() -> Outcome {
    for (name, pmc) in [
        ("cycles", Pmc::Pmc1),
        ("instructions", Pmc::Pmc2),
        ("0x1001e", Pmc::Pmc1),
        ("r3001e", Pmc::Pmc3),
        ("0x1e", Pmc::Pmc1),
        ("pmc=4,pmcxsel=0x1e", Pmc::Pmc4),
        ("event=0x500fa", Pmc::Pmc5),
    ] {
        let session = Session::open(name, 0)?;
        check!(session.pmc(0) == Some(pmc), "{name}: {:?}", session.pmc(0));
    }
    // The processor's table has PMC1 or PMC6 for it.
    Session::open("cpu-cycles", 0)?;
    for name in [
        "",
        "no-such-event",
        "../type",
        "pmc=16",
        "pmc=",
        "nofield=1",
        "0xg",
    ] {
        let refused = Session::open(name, 0).err();
        check!(refused == Some(Error::NoSuchEvent), "{name}: {refused:?}");
    }
    let refused = Session::open("0x700fa", 0).err();
    check!(refused.as_ref().map(Error::errno) == Some(libc::EINVAL));
    check!(refused.is_some_and(|e| e.reason().contains("the counter does not exist")));
    Ok(())
}

/// Members get free counters, and are refused if no counter is free.
fn group() -> Outcome {
    let session = Session::open("cycles", PERIOD.into())?;
    check!(session.add("instructions", 0)? == 1);
    check!(session.pmc(1) == Some(Pmc::Pmc2), "{:?}", session.pmc(1));
    session.add("cycles", 50_000)?;
    check!(session.pmc(2) == Some(Pmc::Pmc3), "{:?}", session.pmc(2));
    match session.add("0x20002", 0) {
        Err(Error::System {
            errno: libc::EINVAL,
            rule: Some(rule),
            ..
        }) => check!(rule.contains("another event has it"), "{rule}"),
        other => return ktap::fail(format!("{other:?}")),
    }
    static BY: [AtomicU64; 6] = [const { AtomicU64::new(0) }; 6];
    let handler = |context: &mut EbbContext<'_>| {
        for (pmc, by) in Pmc::ALL.into_iter().zip(&BY) {
            if context.overflowed(pmc) {
                by.fetch_add(1, Relaxed);
            }
        }
    };
    // SAFETY: The handler only counts in atomics.
    unsafe { session.start(Save::Full, handler)? };
    for (n, pmc) in [(0, Pmc::Pmc1), (2, Pmc::Pmc3)] {
        session::wait_for(session.count() + 20, 50_000)?;
        // From here on its next EBB is 2^30 counts away.
        session.set_period(n, 1 << 30, 0)?;
        pmc.write(Pmc::start_value(1 << 30));
    }
    let by = BY.each_ref().map(|by| by.load(Relaxed));
    check!(by[0] > 0 && by[2] > 0, "{by:?}");
    check!(by.iter().sum::<u64>() == by[0] + by[2], "{by:?}");
    Ok(())
}

/// Counters can be read between EBBs, as long as the event is on the PMU.
fn counters() -> Outcome {
    const WORK: u64 = 200_000;
    // With this period no EBB comes.
    let session = Session::open("cycles", 1 << 30)?;
    session.add("instructions", 0)?;
    check!(session.read(0) == Err(Error::NotInstalled));
    // SAFETY: The handler does nothing.
    unsafe { session.start(Save::Full, count_only)? };
    check!(session.read(2) == Err(Error::NoSuchNumber));
    let start = Pmc::start_value(1 << 30);
    let (cycles, first) = (session.read(0)?, session.read(1)?);
    check!(
        (start..start + (1 << 28)).contains(&cycles),
        "{cycles:#x} cycles"
    );
    session::work_for(WORK);
    let done = u64::from(session.read(1)? - first);
    check!(done > WORK / 8 && done < 8 * WORK, "{done} instructions");
    let other = elsewhere(|| session.read(0));
    check!(matches!(other, Ok(Err(Error::WrongThread))), "{other:?}");
    session.pause()?;
    check!(session.read(0) == Err(Error::Paused));
    session.resume()?;
    // The program may disable the event itself.
    for (request, expected) in [
        (0x2000_2401, Err(Error::NotScheduled)),
        (0x2000_2400, Ok(())),
    ] {
        // SAFETY: Neither request takes a pointer (PERF_EVENT_IOC_DISABLE, PERF_EVENT_IOC_ENABLE).
        ktap::os_result(unsafe { libc::ioctl(session.descriptor(), request, 0) })?;
        let read = session.read(0).map(drop);
        check!(read == expected, "{read:?}");
    }
    Ok(())
}

/// After the handler has stopped a session, its counter is frozen and can be read.
fn standing_counter() -> Outcome {
    let session = started(|context| context.rearm(Rearm::Stop))?;
    session::wait_for(1, PERIOD)?;
    let first = session.read(0)?;
    session::work();
    let second = session.read(0)?;
    check!(first == second, "{first:#x} became {second:#x}");
    Ok(())
}

fn paused_by_itself() -> Outcome {
    let session = running()?;
    for _ in 0..10 {
        session.pause()?;
        check!(session.state() == State::Paused, "{:?}", session.state());
        stands()?;
        session.resume()?;
        check!(session.state() == State::Running, "{:?}", session.state());
        goes_on()?;
    }
    session.close();
    check!(!Bescr::read().has(Bescr::GE));
    check!(ebb::owner() == ebb::Owner::Nobody);
    Ok(())
}

/// Runs `body` on another thread after this thread has left `pthread_create`. That blocks SIGILL,
/// so an EBB that finds the PMU gone would end the process there.
fn elsewhere<R: Send>(body: impl FnOnce() -> R + Send) -> thread::Result<R> {
    let created = AtomicBool::new(false);
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            while !created.load(Relaxed) {
                thread::yield_now();
            }
            body()
        });
        created.store(true, Relaxed);
        thread.join()
    })
}

/// Another thread pauses and resumes the session, at any place of the program and of the handler.
fn paused_by_another() -> Outcome {
    let session = started(count_only)?;
    let mut by_owner = 0;
    for _ in 0..50 {
        goes_on()?;
        let paused = elsewhere(|| session.pause());
        check!(matches!(paused, Ok(Ok(()))), "{paused:?}");
        check!(session.state() == State::Paused, "{:?}", session.state());
        stands()?;
        let resumed = elsewhere(|| session.resume());
        match resumed {
            Ok(Ok(())) => {}
            Ok(Err(Error::ResumeByOwner)) => {
                by_owner += 1;
                session.resume()?;
            }
            other => return ktap::fail(format!("{other:?}")),
        }
        goes_on()?;
    }
    check!(by_owner < 50, "{by_owner} pauses came into a handler");
    let other = elsewhere(|| session.set_period(0, 1, 0));
    check!(matches!(other, Ok(Err(Error::WrongThread))), "{other:?}");
    session.pause()?;
    let other = elsewhere(|| session.resume());
    check!(matches!(other, Ok(Err(Error::ResumeByOwner))), "{other:?}");
    session.resume()?;
    goes_on()
}

/// Another thread drops the session with EBBs on: no EBB comes afterwards, and the next session
/// works.
fn closed_by_another() -> Outcome {
    for _ in 0..10 {
        let session = running()?;
        check!(elsewhere(move || drop(session)).is_ok());
        stands()?;
    }
    Ok(())
}

fn one_at_a_time() -> Outcome {
    let first = started(count_only)?;
    let second = Session::open("instructions", 1000)?;
    // SAFETY: The handler does nothing.
    let refused = unsafe { second.start(Save::Full, count_only) };
    check!(refused == Err(Error::InUse), "{refused:?}");
    goes_on()?;
    first.close();
    let start = || {
        // SAFETY: The handler does nothing.
        unsafe { second.start(Save::Full, count_only) }
    };
    let elsewhere = thread::scope(|s| s.spawn(start).join());
    check!(
        matches!(elsewhere, Ok(Err(Error::WrongThread))),
        "{elsewhere:?}"
    );
    Ok(())
}

fn stopped_by_the_handler() -> Outcome {
    let session = started(|context| {
        if context.number() == 5 {
            context.rearm(Rearm::Stop);
        }
    })?;
    session::wait_for(5, PERIOD)?;
    stands()?;
    check!(session.state() == State::Paused, "{:?}", session.state());
    session.resume()?;
    check!(session.state() == State::Running, "{:?}", session.state());
    goes_on()
}

/// State of the session in its handler, in a signal's handler on top, and after a request to stop.
static STATES: [AtomicU64; 3] = [const { AtomicU64::new(u64::MAX) }; 3];

extern "C" fn ask_in_signal(_: libc::c_int) {
    ask(1);
}

fn ask(place: usize) {
    let state = current::with(|session| Ok(session.state()));
    STATES[place].store(state.map_or(u64::MAX, |state| state as u64), Relaxed);
}

fn state_in_handler() -> Outcome {
    // SAFETY: The signal's handler only reads the state.
    unsafe { libc::signal(libc::SIGUSR1, ask_in_signal as *const () as usize) };
    current::open(PERIOD.into())?;
    let handler = |context: &mut EbbContext<'_>| {
        ask(0);
        // SAFETY: The signal has a handler.
        unsafe { libc::raise(libc::SIGUSR1) };
        context.rearm(Rearm::Stop);
        ask(2);
    };
    // SAFETY: The handler does only what a signal's handler may do.
    current::with(|session| unsafe { session.start(Save::Full, handler) })?;
    session::wait_for(1, PERIOD)?;
    let states = STATES.each_ref().map(|state| state.load(Relaxed));
    let expected = [State::Running, State::Running, State::Paused].map(|state| state as u64);
    check!(states == expected, "{states:?} instead of {expected:?}");
    current::close();
    Ok(())
}

/// An EBB whose handler stops the session may come at any instruction of `resume` on a running
/// session.
fn stopped_in_resume() -> Outcome {
    let session = started(|context| context.rearm(Rearm::Stop))?;
    for period in 50..1000 {
        let before = session.count();
        session.set_period(0, period, 0)?;
        session.resume()?;
        session.resume()?;
        session::wait_for(before + 1, PERIOD).or_else(|why| {
            match session.state() == State::Running {
                true => Err(why),
                false => Ok(()),
            }
        })?;
    }
    Ok(())
}

/// Two threads pause and resume the session at the same time, at any place of each other's calls
/// and of the handler.
///
/// If the threads are on two CPUs, a call interrupts the other CPU and waits for it. An emulator
/// that runs one CPU at a time then takes ten milliseconds for each turn, so the time is limited.
fn paused_by_both() -> Outcome {
    let session = started(|context| {
        session::work();
        // The PMU may be gone by now, so the read may trap.
        let _ = context.value(Pmc::Pmc1);
    })?;
    session.pause()?;
    session.set_period(0, 1500, 0)?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                let _ = session.pause();
                thread::yield_now();
                let _ = session.resume();
                thread::yield_now();
            }
        });
        let end = Instant::now() + Duration::from_secs(10);
        for turn in (0..2000).take_while(|_| Instant::now() < end) {
            let _ = session.resume();
            session::work_for(40_000);
            if turn % 8 == 0 {
                let _ = session.pause();
            }
            thread::yield_now();
        }
        done.store(true, Relaxed);
    });
    session.resume()?;
    check!(session.state() == State::Running, "{:?}", session.state());
    goes_on()?;
    session.pause()?;
    check!(session.state() == State::Paused, "{:?}", session.state());
    stands()
}

/// Another thread closes the session in its handler, which may use the session until it returns.
fn closed_in_handler() -> Outcome {
    static ASKED: AtomicBool = AtomicBool::new(false);
    static CLOSED: AtomicBool = AtomicBool::new(false);
    static DONE: AtomicBool = AtomicBool::new(false);
    current::open(PERIOD.into())?;
    let raw = current::raw().expose_provenance();
    let close = move || {
        while !ASKED.load(Relaxed) {
            thread::yield_now();
        }
        // The second close is like one of another thread at the same time: the session's memory
        // stays valid until the handler ends.
        for _ in 0..2 {
            // SAFETY: The address is from `into_raw`, and the second close finds the session
            // closed.
            unsafe { Session::close_raw(std::ptr::with_exposed_provenance(raw)) };
        }
        // Overwrite freed memory, so that its use would be noticed.
        for size in (8..=1024).step_by(8) {
            std::hint::black_box(vec![0x5a_u8; size]);
        }
        CLOSED.store(true, Relaxed);
    };
    // Start the thread before EBBs are on: pthread_create blocks SIGILL.
    let other = thread::spawn(close);
    let handler = |context: &mut EbbContext<'_>| {
        if context.number() != 5 {
            return;
        }
        ASKED.store(true, Relaxed);
        while !CLOSED.load(Relaxed) {
            // SAFETY: The system call takes no pointers.
            unsafe { libc::sched_yield() };
        }
        let set = current::with(|session| session.set_period(0, PERIOD.into(), 0));
        let descriptor = current::with(|session| Ok(session.descriptor()));
        DONE.store(set.is_ok() && descriptor == Ok(-1), Relaxed);
    };
    // SAFETY: The handler does only what a signal's handler may do.
    current::with(|session| unsafe { session.start(Save::Full, handler) })?;
    session::work_for(1000 * u64::from(PERIOD));
    check!(other.join().is_ok());
    check!(DONE.load(Relaxed), "the session was gone in its handler");
    let gone = current::with(Session::pause);
    check!(gone == Err(Error::Closed), "{gone:?}");
    drop(started(count_only)?);
    Ok(())
}

/// The next session gets the PMU, although a child keeps the descriptors of the closed one, and the
/// closed session's handler is not called again.
fn closed_beside_a_child() -> Outcome {
    for by_another in [false, true] {
        let session = running()?;
        let child = Peer::spawn(Link::listen)?;
        match by_another {
            true => check!(elsewhere(move || session.close()).is_ok()),
            false => session.close(),
        }
        stands()?;
        let next = running()?;
        next.close();
        child.tell_and_join()?;
    }
    Ok(())
}

/// If the session cannot get a key for its thread's end, the start fails and does not change EBBHR.
fn without_keys() -> Outcome {
    let session = Session::open("cycles", PERIOD.into())?;
    let mut keys = Vec::new();
    let mut key = 0;
    // SAFETY: The variable lives through the call.
    while unsafe { libc::pthread_key_create(&mut key, None) } == 0 {
        keys.push(key);
    }
    // SAFETY: The handler does nothing.
    let start = || unsafe { session.start(Save::Full, count_only) };
    let refused = start().map_err(|error| error.errno());
    check!(refused == Err(libc::EAGAIN), "{refused:?}");
    check!(session::ebb_registers()[1] == 0 && session.state() == State::Idle);
    for key in keys {
        // SAFETY: The key exists, and no thread has a value for it.
        unsafe { libc::pthread_key_delete(key) };
    }
    start()?;
    goes_on()
}

/// Each thread takes its own EBBs, and every second one ends with EBBs on.
fn many_threads() -> Outcome {
    let threads: Vec<_> = (0..64)
        .map(|number| {
            thread::spawn(move || {
                let session = started(count_only)?;
                goes_on()?;
                if number % 2 == 0 {
                    session.close();
                } else {
                    std::mem::forget(session);
                }
                Ok(())
            })
        })
        .collect();
    for thread in threads {
        thread
            .join()
            .unwrap_or_else(|_| ktap::fail("it panicked"))?;
    }
    Ok(())
}

fn child_of_fork() -> Outcome {
    let session = running()?;
    let child = Peer::spawn(|_| {
        check!(session.state() == State::Gone, "{:?}", session.state());
        check!(session.pause() == Err(Error::Gone), "{:?}", session.pause());
        check!(
            session.resume() == Err(Error::Gone),
            "{:?}",
            session.resume()
        );
        let own = running()?;
        drop(session);
        goes_on()?;
        own.close();
        Ok(())
    })?;
    child.join()
}

/// Returns what `poll` reports for the descriptor.
fn poll(session: &Session) -> i16 {
    let mut poll = libc::pollfd {
        fd: session.descriptor(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: The call gets one structure, which outlives it.
    unsafe { libc::poll(&mut poll, 1, 0) };
    poll.revents
}

/// A pinned event of the CPU that is opened while the thread sleeps has the PMU when it wakes.
fn evicted() -> Outcome {
    let session = running()?;
    check!(poll(&session) == 0, "poll: {:#x}", poll(&session));
    let other = Pinned::here()?;
    session::work_for(100_000);
    check!(session.state() == State::Evicted, "{:?}", session.state());
    check!(
        poll(&session) & libc::POLLERR != 0,
        "poll: {:#x}",
        poll(&session)
    );
    stands()?;
    let refused = session.resume();
    check!(refused == Err(Error::NotScheduled), "{refused:?}");
    let gone = session.read(0);
    check!(gone == Err(Error::NotScheduled), "{gone:?}");
    other.close()?;
    // The eviction lost no state of the session, so any thread can resume it.
    let resumed = elsewhere(|| session.resume());
    check!(matches!(resumed, Ok(Ok(()))), "{resumed:?}");
    check!(session.state() == State::Running, "{:?}", session.state());
    check!(poll(&session) == 0, "poll: {:#x}", poll(&session));
    goes_on()
}

/// A start finds a pinned event of the CPU on the PMU. A later resume makes up for it: the first
/// EBB comes after the period, not after the 2^31 counts of a counter that starts at 0. That holds
/// even if the program has asked before whether it lost the PMU.
fn evicted_from_the_start() -> Outcome {
    [false, true].into_iter().try_for_each(started_too_late)
}

fn started_too_late(asks: bool) -> Outcome {
    let other = Pinned::here()?;
    let session = Session::open("cycles", PERIOD.into())?;
    // SAFETY: The handler does nothing.
    let refused = unsafe { session.start(Save::Full, count_only) };
    check!(refused == Err(Error::NotScheduled), "{refused:?}");
    check!(session.state() == State::Evicted, "{:?}", session.state());
    let refused = session.resume();
    check!(refused == Err(Error::NotScheduled), "{refused:?}");
    check!(!asks || ebb::evicted(), "the PMU was not missed");
    other.close()?;
    session.resume()?;
    check!(session.state() == State::Running, "{:?}", session.state());
    session::wait_for(20, PERIOD)
}

/// A pause or a close of the session does not change the EBBs of another owner of EBBHR.
fn foreign_owner() -> Outcome {
    const OTHER: u64 = 0x0100_0000;
    let session = running()?;
    session.pause()?;
    // SAFETY: GE stays off, so nothing branches to the address.
    unsafe {
        spr::write::<{ spr::EBBHR }>(OTHER);
        (Bescr::read() | Bescr::PME).write();
    }
    let theirs = session::ebb_registers();
    let [bescr, ebbhr, _] = theirs;
    check!(
        Bescr(bescr).has(Bescr::PME) && ebbhr == OTHER,
        "{theirs:x?}"
    );
    check!(session.state() == State::Foreign, "{:?}", session.state());
    ebb::disable();
    check!(session::ebb_registers() == theirs, "disable");
    session.pause()?;
    check!(session::ebb_registers() == theirs, "pause");
    let refused = session.resume();
    check!(
        refused == Err(Error::Foreign { ebbhr: OTHER }),
        "{refused:?}"
    );
    session.close();
    check!(session::ebb_registers() == theirs, "close");
    Ok(())
}

/// `install` does not replace the handler of a running session.
fn installed_beside() -> Outcome {
    let session = running()?;
    // SAFETY: The handler does nothing.
    let refused = unsafe { ebb::install(count_only) };
    check!(refused == Err(Error::InUse), "{refused:?}");
    session::wait_for(session.count() + 20, PERIOD)?;
    session.close();
    // SAFETY: The handler does nothing.
    unsafe { ebb::install(count_only)? };
    ebb::uninstall()?;
    Ok(())
}

/// Counters that only count: a member's, and PMC6 beside an event on PMC5. Their overflow calls no
/// handler.
fn counts_only() -> Outcome {
    static SEEN: AtomicU64 = AtomicU64::new(0);
    // None of these EBBs would come by itself; the second has a period that one counter can hold.
    for (name, never, member, counter) in [
        ("cycles", 1 << 40, Some("pmc=3,pmcxsel=0x1e"), Pmc::Pmc3),
        ("0x500fa", 1 << 31, None, Pmc::Pmc6),
    ] {
        let session = Session::open(name, never)?;
        if let Some(member) = member {
            session.add(member, 0)?;
        }
        let handler = |_: &mut EbbContext<'_>| {
            SEEN.fetch_add(1, Relaxed);
        };
        // SAFETY: The handler only counts in an atomic.
        unsafe { session.start(Save::Full, handler)? };
        for round in 0..3 {
            counter.write(Pmc::start_value(1000));
            session::work_for(10_000);
            let value = counter.read();
            check!(
                (1..1_000_000).contains(&value),
                "{name}: {value:#x}, round {round}"
            );
        }
        let (count, seen) = (session.count(), SEEN.load(Relaxed));
        check!(count == 0 && seen == 0, "{name}: {count}, {seen}");
        // PMC1 belongs to the event of the first session.
        session.set_period(0, PERIOD.into(), 0)?;
        if session.pmc(0) == Some(Pmc::Pmc1) {
            Pmc::Pmc1.write(Pmc::start_value(PERIOD));
            session::wait_for(20, PERIOD)?;
            SEEN.store(0, Relaxed);
        }
    }
    Ok(())
}

/// Key whose destructor is [`look_at_the_end`], and its result.
static KEY: AtomicU32 = AtomicU32::new(0);
static OFF_AT_THE_END: AtomicBool = AtomicBool::new(false);

/// When a thread ends the C library calls the destructors of all keys, and then again those of keys
/// that got a new value. In that second round the library's own destructor has run.
extern "C" fn look_at_the_end(round: *mut libc::c_void) {
    if round.addr() == 1 {
        // SAFETY: The key exists; its values are no pointers.
        unsafe { libc::pthread_setspecific(KEY.load(Relaxed), ptr::without_provenance(2)) };
        return;
    }
    let off = ebb::owner() == Owner::Nobody && !Bescr::read().has(Bescr::GE);
    let none = session::expect_none(5 * u64::from(PERIOD)).is_ok();
    OFF_AT_THE_END.store(off && none, Relaxed);
}

/// A thread may end with EBBs on: they are turned off before its stack is freed.
fn thread_that_ends() -> Outcome {
    let mut key = 0;
    // SAFETY: The variable lives through the call, and the destructor takes any value.
    let errno = unsafe { libc::pthread_key_create(&mut key, Some(look_at_the_end)) };
    check!(errno == 0, "pthread_key_create: errno {errno}");
    KEY.store(key, Relaxed);
    let thread = thread::spawn(|| {
        let session = running()?;
        // SAFETY: The key exists; its values are no pointers.
        unsafe { libc::pthread_setspecific(KEY.load(Relaxed), ptr::without_provenance(1)) };
        session::wait_for(session.count() + 20, PERIOD)?;
        Ok::<_, Failure>(session)
    });
    let Ok(Ok(session)) = thread.join() else {
        return ktap::fail("no session");
    };
    check!(OFF_AT_THE_END.load(Relaxed), "EBBs are on at the end");
    check!(session.state() == State::Ended, "{:?}", session.state());
    check!(
        session.resume() == Err(Error::Closed),
        "{:?}",
        session.resume()
    );
    check!(session.count() >= 40, "{}", session.count());
    Ok(())
}

/// Forks a process that gets the number `number` as soon as that is free. Returns 0 in it.
fn fork_as(number: libc::pid_t) -> io::Result<libc::c_long> {
    /// `struct clone_args` (uapi/linux/sched.h).
    #[repr(C)]
    #[derive(Default)]
    struct CloneArgs {
        before: [u64; 4],
        exit_signal: u64,
        stack_and_tls: [u64; 3],
        set_tid: u64,
        set_tid_size: u64,
    }
    let args = CloneArgs {
        exit_signal: libc::SIGCHLD as u64,
        set_tid: (&raw const number).expose_provenance() as u64,
        set_tid_size: 1,
        ..CloneArgs::default()
    };
    for _ in 0..1000 {
        // SAFETY: There is one thread; the structure and the number live through the call.
        let done = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of_val(&args)) };
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            _ if done >= 0 => return Ok(done),
            Some(libc::EEXIST) => thread::sleep(Duration::from_millis(10)),
            _ => return Err(error),
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// A descendant that has got the number of the session's process is not taken for that process.
fn same_process_number() -> Outcome {
    let (mut reader, mut writer) = io::pipe()?;
    let own = Peer::spawn(move |_| {
        let session = running()?;
        let number = std::process::id() as libc::pid_t;
        // SAFETY: There is one thread, so the child finds no lock taken.
        if unsafe { libc::fork() } == 0 {
            let said = match fork_as(number) {
                Ok(0) => format!("{:?}", session.pause()),
                Ok(_) => String::new(),
                Err(error) => error.to_string(),
            };
            let _ = writer.write_all(said.as_bytes());
            // SAFETY: The call takes no pointers.
            unsafe { libc::_exit(0) };
        }
        session.close();
        Ok(())
    })?;
    own.join()?;
    let mut said = String::new();
    reader.read_to_string(&mut said)?;
    check!(said == "Err(Gone)", "{said}");
    Ok(())
}

/// The kernel's highest number of a thread; restores the old one on drop.
struct HighestNumber(String);

impl HighestNumber {
    const FILE: &str = "/proc/sys/kernel/pid_max";

    fn set(number: libc::pid_t) -> io::Result<Self> {
        let before = fs::read_to_string(Self::FILE)?;
        fs::write(Self::FILE, number.to_string())?;
        Ok(Self(before))
    }
}

impl Drop for HighestNumber {
    fn drop(&mut self) {
        let _ = fs::write(Self::FILE, &self.0);
    }
}

/// Starts threads until one has a number that `is_right`; returns the result of `action` on it.
fn on_thread<T: Send>(
    is_right: impl Fn(libc::pid_t) -> bool + Sync,
    action: impl Fn(libc::pid_t) -> T + Sync,
) -> Option<T> {
    let run = || {
        // SAFETY: The system call takes no pointers.
        let number = unsafe { libc::gettid() };
        is_right(number).then(|| action(number))
    };
    (0..5000).find_map(|_| thread::scope(|scope| scope.spawn(run).join().ok().flatten()))
}

/// A thread that has got the number of the session's thread is not taken for that thread.
fn same_thread_number() -> Outcome {
    // The kernel does not assign lower numbers again.
    const RESERVED: libc::pid_t = 300;
    let opened = on_thread(
        |number| number > RESERVED,
        |number| (number, Session::open("cycles", PERIOD.into())),
    );
    let (number, session) = opened.ok_or("no such number").or_fail("opening")?;
    let session = session?;
    let _highest = match HighestNumber::set(number + 50) {
        Err(error) => return ktap::skip(format!("{}: {error}", HighestNumber::FILE)),
        Ok(highest) => highest,
    };
    let refused = on_thread(
        |other| other == number,
        // SAFETY: The handler does nothing.
        |_| unsafe { session.start(Save::Full, count_only) },
    );
    check!(refused == Some(Err(Error::WrongThread)), "{refused:?}");
    Ok(())
}

ktap::main! {
    first: session::require_ebb;
    names, group, counters, standing_counter, paused_by_itself, paused_by_another, paused_by_both,
    closed_by_another, closed_in_handler, closed_beside_a_child, one_at_a_time,
    stopped_by_the_handler, stopped_in_resume, state_in_handler, child_of_fork, evicted,
    without_keys, many_threads, evicted_from_the_start, foreign_owner, installed_beside, counts_only,
    thread_that_ends, same_process_number, same_thread_number,
}
