// SPDX-License-Identifier: GPL-2.0
//! exec: the new program finds no handler address and nothing else of EBB that
//! the old one left, whatever became of the old one's event.
//!
//! The program executes itself; with arguments it is the new program, which
//! looks at what it finds before anything else.

use ebb::Event;
use ebb::Pmc;
use ebb::reg::Bescr;
use ebb::reg::Mmcr0;
use ebb::reg::Mmcr2;
use ebb::spr;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ebb_selftests::trap;
use ebb_selftests::trap::traps;
use ktap::Failure;
use ktap::OrFail;
use ktap::Outcome;
use ktap::check;
use ktap::process;
use ktap::process::NOBODY;
use ktap::process::Peer;
use std::ffi::CString;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::exit;

const PERIOD: u32 = 10_000;

/// What the old program's event is after the exec.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// Gone: closed by the program or by exec.
    Nothing,
    /// Open, inherited as a descriptor, and on the PMU.
    Event,
    /// Likewise, and its counter may have overflowed in the new program.
    Overflow,
}

/// Registers at the start, before this program does anything with EBBs.
fn at_start() -> [u64; 3] {
    // SAFETY: these are always readable, without effect.
    unsafe {
        [
            Bescr::read().0,
            spr::read::<{ spr::EBBHR }>(),
            spr::read::<{ spr::EBBRR }>(),
        ]
    }
}

/// Nothing of FC, PMAO and MMCR2, which only the program itself may set.
fn clean_pmu() -> Outcome {
    let (mmcr0, mmcr2) = (Mmcr0::read(), Mmcr2::read());
    check!(
        mmcr0 == Mmcr0::PMAE && mmcr2 == Mmcr2(0),
        "{mmcr0:?}, {mmcr2:?}"
    );
    Ok(())
}

/// EBBs with a handler of this program's.
fn own_ebbs() -> Outcome {
    // SAFETY: the handler does nothing.
    unsafe { ebb::install(session::count_only) }.or_fail("install")?;
    Mmcr0::FC.write();
    ebb::start(Pmc::Pmc1, PERIOD).or_fail("start")?;
    ebb::enable().or_fail("enable EBBs")?;
    Mmcr0::PMAE.write();
    session::wait_for(20, PERIOD)?;
    ebb::disable();
    Ok(())
}

/// The new program: `registers` is what it began with.
fn new_program(registers: [u64; 3], left: Left) -> Outcome {
    check!(
        registers == [0; 3],
        "BESCR, EBBHR, EBBRR at the start: {registers:#x?}"
    );
    // An alert of the old program's would come by now.
    for _ in 0..200 {
        session::work();
    }
    if left != Left::Nothing {
        check!(!traps(trap::write_pmc1)?, "the event is gone");
        if left == Left::Event {
            clean_pmu()?;
        }
        return own_ebbs();
    }
    check!(traps(trap::write_pmc1)?, "PMC1 is writable");
    check!(traps(trap::write_mmcr0)?, "MMCR0 is writable");
    let event = ebb::event(CYCLES).open().or_fail("open")?;
    event.enable().or_fail("enable")?;
    event.check_scheduled().or_fail("schedule")?;
    clean_pmu()?;
    own_ebbs()?;
    event.close();
    Ok(())
}

/// Replaces this process by the new program.
fn exec(path: &Path, left: Left) -> Outcome {
    let path = CString::new(path.as_os_str().as_encoded_bytes()).or_fail("path")?;
    let left = match left {
        Left::Nothing => c"nothing",
        Left::Event => c"event",
        Left::Overflow => c"overflow",
    };
    let arguments = [path.as_ptr(), left.as_ptr(), std::ptr::null()];
    // SAFETY: `arguments` are strings and end with a null pointer.
    unsafe { libc::execv(path.as_ptr(), arguments.as_ptr()) };
    Err(std::io::Error::last_os_error().into())
}

/// This program, also as somebody who may not look into /root.
fn copy(name: &str, mode: u32) -> Result<PathBuf, Failure> {
    let path = PathBuf::from(format!("/tmp/{name}"));
    let _ = std::fs::remove_file(&path);
    std::fs::copy("/proc/self/exe", &path)?;
    std::fs::set_permissions(&path, PermissionsExt::from_mode(mode))?;
    Ok(path)
}

/// All of the program's state set: a handler, its last EBB, GE and PME on, FC
/// and PMAO, MMCR2, and counters.
fn leave_marks() -> Result<Event, Failure> {
    let event = session::begin(CYCLES, PERIOD, session::count_only)?;
    session::wait_for(5, PERIOD)?;
    ebb::disable();
    Mmcr2::USER.write();
    for pmc in Pmc::ALL {
        pmc.write(0x3333_3333);
    }
    (Mmcr0::FC | Mmcr0::PMAO).write();
    // SAFETY: with the event on and PMAO set the EBB may come now; the handler
    // of `begin` takes it, and leaves an address in EBBRR.
    unsafe { (Bescr::GE | Bescr::PME).write() };
    for _ in 0..100 {
        session::work();
    }
    (Mmcr0::FC | Mmcr0::PMAE).write();
    check!(
        at_start().iter().all(|&value| value != 0),
        "nothing to leave"
    );
    Ok(event)
}

/// A child leaves its marks, does something with its event, and executes.
fn executed(path: PathBuf, left: Left, event: fn(Event) -> Outcome) -> Outcome {
    Peer::spawn(|_| {
        event(leave_marks()?)?;
        exec(&path, left)
    })?
    .join()
}

fn own_path() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// exec closes the descriptor, as the library asks for.
fn closed_by_exec() -> Outcome {
    executed(own_path(), Left::Nothing, |event| {
        std::mem::forget(event);
        Ok(())
    })
}

fn closed_before() -> Outcome {
    executed(own_path(), Left::Nothing, |event| {
        event.close();
        Ok(())
    })
}

/// Lets the new program inherit the descriptor.
fn inherit(event: Event) -> Outcome {
    // SAFETY: a flag of our own descriptor.
    let status = unsafe { libc::fcntl(event.as_fd().as_raw_fd(), libc::F_SETFD, 0) };
    check!(status == 0, "fcntl failed");
    std::mem::forget(event);
    Ok(())
}

/// The event goes on in the new program, with a handler of its own.
fn event_survives() -> Outcome {
    executed(own_path(), Left::Event, inherit)
}

/// With an alert that the old program has not taken: it is nobody's any more.
fn alert_does_not_survive() -> Outcome {
    executed(own_path(), Left::Event, |event| {
        ebb::disable();
        Pmc::Pmc1.write(0);
        Mmcr0::PMAE.write();
        Pmc::Pmc1.write(0x8000_0000);
        for _ in 0..100 {
            session::work();
        }
        // Negative, it would raise another one.
        Pmc::Pmc1.write(0);
        inherit(event)
    })
}

/// The overflow comes at some moment of the exec, with the old program's GE on.
fn alert_in_exec() -> Outcome {
    for lead in (1000..200_000).step_by(9973) {
        Peer::spawn(|_| {
            let event = session::begin(CYCLES, PERIOD, session::count_only)?;
            inherit(event)?;
            Pmc::Pmc1.write(Pmc::start_value(lead));
            exec(&own_path(), Left::Overflow)
        })?
        .join()?;
    }
    Ok(())
}

/// A program that has a handler and no event, and never had one.
fn handler_without_event() -> Outcome {
    Peer::spawn(|_| {
        // SAFETY: the handler does nothing.
        unsafe { ebb::install(session::count_only) }.or_fail("install")?;
        ebb::enable().or_fail("enable EBBs")?;
        check!(at_start()[..2].iter().all(|&value| value != 0), "no marks");
        exec(&own_path(), Left::Nothing)
    })?
    .join()
}

/// From a thread, which becomes the process.
fn by_a_thread() -> Outcome {
    executed(own_path(), Left::Nothing, |event| {
        std::mem::forget(event);
        let thread = std::thread::spawn(|| -> Outcome {
            std::mem::forget(leave_marks()?);
            exec(&own_path(), Left::Nothing)
        });
        thread.join().map_err(|_| "panic").or_fail("thread")?
    })
}

/// A program that runs as root although nobody started it. The kernel takes all
/// events from it.
fn setuid(event: fn(Event) -> Outcome) -> Outcome {
    let path = copy("ebb_exec.setuid", 0o4755)?;
    Peer::spawn(|_| {
        process::become_user(NOBODY)?;
        event(leave_marks()?)?;
        exec(&path, Left::Nothing)
    })?
    .join()?;
    std::fs::remove_file(&path)?;
    Ok(())
}

fn setuid_with_event() -> Outcome {
    setuid(inherit)
}

fn setuid_after_close() -> Outcome {
    setuid(|event| {
        event.close();
        Ok(())
    })
}

fn main() {
    let registers = at_start();
    let left = match std::env::args().nth(1).as_deref() {
        Some("nothing") => Left::Nothing,
        Some("event") => Left::Event,
        Some("overflow") => Left::Overflow,
        _ => ktap::run(ktap::tests! {
            first: session::require_ebb;
            closed_by_exec, closed_before, event_survives, alert_does_not_survive, alert_in_exec,
            handler_without_event, by_a_thread, setuid_with_event, setuid_after_close,
        }),
    };
    // SAFETY: plain system calls.
    let (real, effective) = unsafe { (libc::getuid(), libc::geteuid()) };
    let result = match (real, effective) {
        (NOBODY, NOBODY) => ktap::fail("/tmp lets no program be setuid"),
        _ => new_program(registers, left),
    };
    if let Err(why) = result {
        println!("the new program: {why:?}");
        exit(1);
    }
}
