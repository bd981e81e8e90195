// SPDX-License-Identifier: GPL-2.0
//! After exec, the new program finds no handler address and no other EBB state of the old one,
//! whatever happened to the old program's event.
//!
//! The program executes itself. With arguments it is the new program, which first reads its
//! registers.

use ebb::EbbContext;
use ebb::Event;
use ebb::Pmc;
use ebb::Save;
use ebb::Session;
use ebb::reg::Bescr;
use ebb::reg::Mmcr0;
use ebb::reg::Mmcr2;
use ebb_selftests::session;
use ebb_selftests::trap;
use ebb_selftests::trap::traps;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use ktap::process;
use ktap::process::NOBODY;
use ktap::process::Peer;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::IntoRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::process::exit;

const PERIOD: u32 = 10_000;

/// State of the old program's event after exec, as an argument of the new program. Here: the old
/// program or exec has closed it.
const NOTHING: &str = "nothing";
/// The event is open, inherited as a descriptor, and on the PMU, with its count.
const EVENT: &str = "event";
/// The event is open, but its counter was negative, and starts from 0.
const ALERTED: &str = "alerted";
/// The event is open, and its counter may have overflowed in the new program.
const OVERFLOW: &str = "overflow";
/// It was a session's. Another process has a copy of its descriptor.
const SESSION: &str = "session";

/// Count that the old program leaves in its counters.
const COUNT: u32 = 0x3333_3333;

/// Takes EBBs with a handler of this program.
fn own_ebbs() -> Outcome {
    session::install(session::count_only)?;
    session::arm(PERIOD)?;
    session::wait_for(20, PERIOD)?;
    ebb::disable();
    Ok(())
}

/// Runs the new program: `registers` is what it began with.
fn new_program(registers: [u64; 3], left: &str) -> Outcome {
    // SAFETY: The system calls take no pointers.
    let ids = unsafe { [libc::getuid(), libc::geteuid()] };
    check!(ids != [NOBODY; 2], "/tmp lets no program be setuid");
    check!(registers == [0; 3], "BESCR, EBBHR, EBBRR: {registers:#x?}");
    // An alert of the old program would have arrived by now.
    session::work_for(200_000);
    if ![NOTHING, SESSION].contains(&left) {
        check!(!traps(trap::read_pmc1)?, "PMC1 is not readable");
        if left != OVERFLOW {
            let kept = if left == EVENT { COUNT } else { 0 };
            let value = Pmc::Pmc1.read();
            check!(
                (200_000..1 << 28).contains(&value.wrapping_sub(kept)),
                "PMC1 was {kept:#x} and is {value:#x}"
            );
            session::check_fresh()?;
        }
        check!(!traps(trap::write_pmc1)?, "PMC1 is not writable");
        return own_ebbs();
    }
    check!(traps(trap::write_pmc1)?, "PMC1 is writable");
    check!(traps(trap::write_mmcr0)?, "MMCR0 is writable");
    if left == SESSION {
        let session = start_session()?;
        session::wait_for(20, PERIOD)?;
        session.close();
        return Ok(());
    }
    let event = session::without_handler()?;
    session::check_fresh()?;
    own_ebbs()?;
    session::end(event)
}

/// Replaces this process with the new program.
fn exec(path: &str, left: &str) -> Outcome {
    Err(Command::new(path).arg(left).exec().into())
}

/// Path of this program.
const SELF: &str = "/proc/self/exe";

/// Sets all of the program's EBB state: a handler, an address in EBBRR, GE and PME, FC and PMAO,
/// MMCR2, and counters.
fn leave_traces() -> Result<Event, Failure> {
    let event = session::cycles(PERIOD)?;
    session::wait_for(5, PERIOD)?;
    ebb::disable();
    Mmcr2::USER.write();
    session::write_counters(COUNT);
    (Mmcr0::FC | Mmcr0::PMAO).write();
    // SAFETY: The EBB may come as soon as PMAO is set and the event is on; the installed handler
    // takes it, and leaves an address in EBBRR.
    unsafe { (Bescr::GE | Bescr::PME).write() };
    session::work_for(100_000);
    (Mmcr0::FC | Mmcr0::PMAE).write();
    Pmc::Pmc1.write(COUNT);
    let left = session::ebb_registers();
    check!(!left.contains(&0), "a register is 0: {left:#x?}");
    Ok(event)
}

/// Runs a child that sets its state, does something with its event, and executes the new program.
fn executed(left: &str, event: fn(Event) -> Outcome) -> Outcome {
    Peer::spawn(|_| {
        event(leave_traces()?)?;
        exec(SELF, left)
    })?
    .join()
}

/// Lets exec close the descriptor, as the library requests when it opens an event.
fn leave(event: Event) -> Outcome {
    std::mem::forget(event);
    Ok(())
}

fn close(event: Event) -> Outcome {
    event.close();
    Ok(())
}

/// Lets the new program inherit the descriptor.
fn inherit(event: Event) -> Outcome {
    keep(event.as_raw_fd())?;
    leave(event)
}

/// Keeps a descriptor open when this process executes a program.
fn keep(descriptor: i32) -> Outcome {
    // SAFETY: The call takes no pointers, and the descriptor is our own.
    ktap::os_result(unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) })?;
    Ok(())
}

/// An alert that the old program has not taken must be lost; the counter, which is negative, must
/// not raise it again.
fn inherit_alerted(event: Event) -> Outcome {
    ebb::disable();
    Pmc::Pmc1.write(0);
    Mmcr0::PMAE.write();
    Pmc::Pmc1.write(0x8000_0000);
    session::work_for(100_000);
    inherit(event)
}

/// The overflow comes at some moment of the exec, with the old program's GE on.
fn alert_in_exec() -> Outcome {
    for lead in (1000..200_000).step_by(9973) {
        Peer::spawn(|_| {
            inherit(session::cycles(PERIOD)?)?;
            Pmc::Pmc1.write(Pmc::start_value(lead));
            exec(SELF, OVERFLOW)
        })?
        .join()?;
    }
    Ok(())
}

/// Starts a session for cycles.
fn start_session() -> Result<Session, Failure> {
    let session = Session::open("cycles", PERIOD.into())?;
    // SAFETY: The handler does nothing.
    unsafe { session.start(Save::Full, |_: &mut EbbContext<'_>| ())? };
    Ok(session)
}

/// A session ends although a forked process has a copy of its descriptor until the new program has
/// ended.
fn session_ends() -> Outcome {
    Peer::spawn(|_| {
        std::mem::forget(start_session()?);
        let (mut end, until) = io::pipe()?;
        // Only the new program has the pipe's other end open.
        let until = until.into_raw_fd();
        keep(until)?;
        std::mem::forget(Peer::spawn(|_| {
            // SAFETY: No other code of this process uses its copy.
            drop(unsafe { OwnedFd::from_raw_fd(until) });
            io::copy(&mut end, &mut io::sink())?;
            Ok(())
        })?);
        exec(SELF, SESSION)
    })?
    .join()
}

/// A program that has a handler, but never had an event, executes the new program.
fn handler_without_event() -> Outcome {
    Peer::spawn(|_| {
        session::install(session::count_only)?;
        ebb::enable()?;
        let left = session::ebb_registers();
        check!(!left[..2].contains(&0), "a register is 0: {left:#x?}");
        exec(SELF, NOTHING)
    })?
    .join()
}

/// A thread executes the new program, and becomes the process.
fn by_a_thread(event: Event) -> Outcome {
    leave(event)?;
    process::in_thread(|| {
        leave(leave_traces()?)?;
        exec(SELF, NOTHING)
    })
}

/// Executes a program with the setuid bit, which runs as root although an ordinary user started it.
/// The kernel closes all events for it.
fn setuid(event: fn(Event) -> Outcome) -> Outcome {
    const PATH: &str = "/tmp/ebb_exec.setuid";
    let _ = fs::remove_file(PATH);
    fs::copy(SELF, PATH)?;
    fs::set_permissions(PATH, PermissionsExt::from_mode(0o4755))?;
    Peer::spawn(|_| {
        process::become_user(NOBODY)?;
        event(leave_traces()?)?;
        exec(PATH, NOTHING)
    })?
    .join()?;
    Ok(fs::remove_file(PATH)?)
}

fn main() {
    let registers = session::ebb_registers();
    let Some(left) = std::env::args().nth(1) else {
        ktap::run(ktap::tests! {
            first: session::require_ebb;
            closed_by_exec = executed(NOTHING, leave),
            closed_before = executed(NOTHING, close),
            event_survives = executed(EVENT, inherit),
            alert_does_not_survive = executed(ALERTED, inherit_alerted),
            alert_in_exec,
            session_ends,
            handler_without_event,
            by_a_thread = executed(NOTHING, by_a_thread),
            setuid_with_event = setuid(inherit),
            setuid_after_close = setuid(close),
        })
    };
    if let Err(why) = new_program(registers, &left) {
        println!("the new program: {why:?}");
        exit(1);
    }
}
