// SPDX-License-Identifier: GPL-2.0
//! `ebb::Session` where the PMU, EBBHR or the session is somebody else's for a while, what the
//! session's counters do that have no period, an EBB that is due when EBBs come back on, a thread
//! that ends with EBBs on, and a process or thread with the number of the session's.

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
use ebb_selftests::neighbour::Pinned;
use ebb_selftests::session;
use ebb_selftests::session::count_only;
use ktap::Failure;
use ktap::OrFail;
use ktap::Outcome;
use ktap::check;
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

const PERIOD: u32 = 10_000;

fn started() -> Result<Session, Failure> {
    let session = Session::open("cycles", PERIOD.into())?;
    // SAFETY: the handler does nothing.
    unsafe { session.start(Save::Full, count_only)? };
    session::wait_for(20, PERIOD)?;
    Ok(session)
}

/// A start that finds a pinned event of the CPU on the PMU is made up for: with the period, not
/// after the 2^31 counts of a counter that starts at 0. Also if the program asks before that whether
/// it lost the PMU.
fn evicted_from_the_start() -> Outcome {
    [false, true].into_iter().try_for_each(started_too_late)
}

fn started_too_late(asks: bool) -> Outcome {
    let other = Pinned::here()?;
    let session = Session::open("cycles", PERIOD.into())?;
    // SAFETY: the handler does nothing.
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

/// Another owner's EBBs stay as they are when the session is paused and closed.
fn foreign_owner() -> Outcome {
    const OTHER: u64 = 0x0100_0000;
    let session = started()?;
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

/// What another thread has closed leaves nothing once the session's calls the library again.
fn closed_by_another() -> Outcome {
    let session = Session::open("cycles", PERIOD.into())?;
    let next = Session::open("cycles", PERIOD.into())?;
    thread::scope(|scope| {
        let (closing, may_close) = std::sync::mpsc::channel();
        // Created before EBBs are on: pthread_create blocks SIGILL.
        let other = scope.spawn(move || may_close.recv().map(Session::close));
        // SAFETY: the handler does nothing.
        unsafe { session.start(Save::Full, count_only)? };
        session::wait_for(20, PERIOD)?;
        check!(closing.send(session).is_ok());
        check!(matches!(other.join(), Ok(Ok(()))));
        Ok(())
    })?;
    check!(ebb::owner() == Owner::Library, "{:?}", ebb::owner());
    next.close();
    check!(ebb::owner() == Owner::Nobody, "{:?}", ebb::owner());
    let [bescr, ebbhr, _] = session::ebb_registers();
    check!(bescr == 0 && ebbhr == 0, "{bescr:#x}, {ebbhr:#x}");
    Ok(())
}

/// The handler of a session that runs is not replaced.
fn installed_beside() -> Outcome {
    let session = started()?;
    // SAFETY: the handler does nothing.
    let refused = unsafe { ebb::install(count_only) };
    check!(refused == Err(Error::InUse), "{refused:?}");
    session::wait_for(session.count() + 20, PERIOD)?;
    session.close();
    // SAFETY: as before.
    unsafe { ebb::install(count_only)? };
    ebb::uninstall()?;
    Ok(())
}

fn added_too_late() -> Outcome {
    let session = started()?;
    let refused = session.add("instructions", 0);
    check!(refused == Err(Error::Started), "{refused:?}");
    session::wait_for(session.count() + 20, PERIOD)
}

/// Counters that only count: a member's, and PMC6 beside an event on PMC5. An overflow calls
/// nobody.
fn counts_only() -> Outcome {
    static SEEN: AtomicU64 = AtomicU64::new(0);
    // None of these EBBs comes by itself, the second of a period that one counter can hold.
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
        // SAFETY: the handler counts in an atomic.
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
        // PMC1 is the first's own.
        session.set_period(0, PERIOD.into(), 0)?;
        if session.pmc(0) == Some(Pmc::Pmc1) {
            Pmc::Pmc1.write(Pmc::start_value(PERIOD));
            session::wait_for(20, PERIOD)?;
            SEEN.store(0, Relaxed);
        }
    }
    Ok(())
}

/// The EBB that is due comes in `resume`, and what its handler asks for holds.
fn stopped_in_resume() -> Outcome {
    static STOP: AtomicBool = AtomicBool::new(false);
    let session = Session::open("cycles", PERIOD.into())?;
    let handler = |context: &mut EbbContext<'_>| {
        if STOP.load(Relaxed) {
            context.rearm(Rearm::Stop);
        }
    };
    // SAFETY: the handler reads an atomic and its context.
    unsafe { session.start(Save::Full, handler)? };
    for _ in 0..20 {
        session::wait_for(session.count() + 20, PERIOD)?;
        // An overflow with EBBs off is kept, also while the events are off.
        ebb::disable();
        session::work_for(5 * u64::from(PERIOD));
        session.pause()?;
        let before = session.count();
        STOP.store(true, Relaxed);
        session.resume()?;
        session::wait_for(before + 1, PERIOD)?;
        session::expect_none(5 * u64::from(PERIOD))?;
        check!(
            session.count() == before + 1,
            "{} of {before}",
            session.count()
        );
        check!(session.state() == State::Paused, "{:?}", session.state());
        STOP.store(false, Relaxed);
        session.resume()?;
    }
    Ok(())
}

/// A key whose destructor is [`look_at_the_end`], and what that saw.
static KEY: AtomicU32 = AtomicU32::new(0);
static OFF_AT_THE_END: AtomicBool = AtomicBool::new(false);

/// The C library calls the destructors of a thread that ends in turn, and those that have set their
/// value again once more: in that second round the library's own is done.
extern "C" fn look_at_the_end(round: *mut libc::c_void) {
    if round.addr() == 1 {
        // SAFETY: the key exists; its values are no pointers.
        unsafe { libc::pthread_setspecific(KEY.load(Relaxed), ptr::without_provenance(2)) };
        return;
    }
    let off = ebb::owner() == Owner::Nobody && !Bescr::read().has(Bescr::GE);
    let none = session::expect_none(5 * u64::from(PERIOD)).is_ok();
    OFF_AT_THE_END.store(off && none, Relaxed);
}

/// A thread may end with EBBs on: they are turned off before its stack is gone.
fn thread_that_ends() -> Outcome {
    let mut key = 0;
    // SAFETY: the variable lives; the destructor takes any value.
    let errno = unsafe { libc::pthread_key_create(&mut key, Some(look_at_the_end)) };
    check!(errno == 0, "pthread_key_create: errno {errno}");
    KEY.store(key, Relaxed);
    let thread = thread::spawn(|| {
        let session = started()?;
        // SAFETY: the key exists; its values are no pointers.
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

/// A process with the number `number` once that is free, which is a copy of the caller as fork's
/// child is: 0 in it.
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
        // SAFETY: there is one thread; the structure and the number live.
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

/// A descendant that has got the number of the session's process is not that process.
fn same_process_number() -> Outcome {
    let (mut reader, mut writer) = io::pipe()?;
    let own = Peer::spawn(move |_| {
        let session = started()?;
        let number = std::process::id() as libc::pid_t;
        // SAFETY: there is one thread.
        if unsafe { libc::fork() } == 0 {
            let said = match fork_as(number) {
                Ok(0) => format!("{:?}", session.pause()),
                Ok(_) => String::new(),
                Err(error) => error.to_string(),
            };
            let _ = writer.write_all(said.as_bytes());
            // SAFETY: a system call without pointers.
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

/// The kernel's highest number of a thread, put back on drop.
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

/// What `action` gives on a thread whose number `is_right`: there are others until one has it.
fn on_thread<T: Send>(
    is_right: impl Fn(libc::pid_t) -> bool + Sync,
    action: impl Fn(libc::pid_t) -> T + Sync,
) -> Option<T> {
    let run = || {
        // SAFETY: a system call without pointers.
        let number = unsafe { libc::gettid() };
        is_right(number).then(|| action(number))
    };
    (0..5000).find_map(|_| thread::scope(|scope| scope.spawn(run).join().ok().flatten()))
}

/// A thread that has got the number of the session's is not that thread.
fn same_thread_number() -> Outcome {
    // Lower ones are not given again.
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
        // SAFETY: the handler does nothing.
        |_| unsafe { session.start(Save::Full, count_only) },
    );
    check!(refused == Some(Err(Error::WrongThread)), "{refused:?}");
    Ok(())
}

ktap::main! {
    first: session::require_ebb;
    evicted_from_the_start, foreign_owner, closed_by_another, installed_beside, added_too_late,
    counts_only, stopped_in_resume, thread_that_ends, same_process_number, same_thread_number,
}
