// SPDX-License-Identifier: GPL-2.0
//! SIGILL in a program that uses the library `ebb`. The library handles those of its own accesses;
//! every other one has the same effect as without the library.

use ebb::EbbContext;
use ebb::Pmc;
use ebb::Save;
use ebb::Session;
use ebb_selftests::escape;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ebb_selftests::trap;
use ktap::Outcome;
use ktap::check;
use ktap::process::Peer;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

const PERIOD: u32 = 10_000;

/// Number of signals that the program's own handler got, and `si_code` of the last.
static GOT: AtomicU32 = AtomicU32::new(0);
static CODE: AtomicI32 = AtomicI32::new(0);

/// Handles SIGILL for the program, and steps over every instruction that traps.
extern "C" fn own(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    GOT.fetch_add(1, Relaxed);
    // SAFETY: The kernel passed both pointers, and nothing else refers to the registers.
    unsafe {
        CODE.store((*info).si_code, Relaxed);
        if (*info).si_code > 0 {
            (*trap::registers(context))[trap::NIP] += 4;
        }
    }
}

/// Sets the action for SIGILL.
fn set_action(action: usize, flags: libc::c_int) -> Outcome {
    // SAFETY: Zeroes are a valid sigaction; the handler takes the three arguments of SA_SIGINFO.
    ktap::os_result(unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = action;
        new.sa_flags = flags;
        libc::sigaction(libc::SIGILL, &new, std::ptr::null_mut())
    })?;
    Ok(())
}

fn own_address() -> usize {
    own as *const () as usize
}

fn send() {
    // SAFETY: The system call takes no pointers.
    unsafe { libc::raise(libc::SIGILL) };
}

/// Descriptor of the event that the handler disables.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);

fn lose_the_pmu(context: &mut EbbContext<'_>) {
    if context.number() == 3 {
        // SAFETY: The ioctl takes no pointer (PERF_EVENT_IOC_DISABLE).
        unsafe { libc::ioctl(DESCRIPTOR.load(Relaxed), 0x2000_2401) };
        Pmc::Pmc2.write(0);
    }
}

/// The PMU is lost in the third handler; the program must survive that.
fn survive_eviction() -> Outcome {
    let event = session::prepare(CYCLES, lose_the_pmu)?;
    DESCRIPTOR.store(event.as_raw_fd(), Relaxed);
    session::arm(PERIOD)?;
    session::wait_for(3, PERIOD)?;
    check!(ebb::evicted(), "the loss went unnoticed");
    session::end(event)
}

/// Checks that a child dies by SIGILL when it calls `act` after its first [`session::install`].
fn dies(prepare: fn() -> Outcome, act: fn()) -> Outcome {
    let mut peer = Peer::spawn(|_| {
        prepare()?;
        session::install(session::count_only)?;
        act();
        Ok(())
    })?;
    let status = peer.wait()?;
    check!(status.signal() == Some(libc::SIGILL), "{status}");
    Ok(())
}

fn default() -> Outcome {
    set_action(libc::SIG_DFL, 0)
}

fn ignore() -> Outcome {
    set_action(libc::SIG_IGN, 0)
}

fn own_handler() -> Outcome {
    set_action(own_address(), libc::SA_SIGINFO)?;
    survive_eviction()?;
    check!(GOT.load(Relaxed) == 0, "{} signals", GOT.load(Relaxed));
    trap::write_pmc1();
    check!(GOT.load(Relaxed) == 1 && CODE.load(Relaxed) > 0);
    send();
    check!(GOT.load(Relaxed) == 2 && CODE.load(Relaxed) <= 0);
    Ok(())
}

fn own_handler_once() -> Outcome {
    fn prepare() -> Outcome {
        set_action(own_address(), libc::SA_SIGINFO | libc::SA_RESETHAND)
    }
    // After its one signal the default action applies.
    dies(prepare, || {
        send();
        send();
    })?;
    prepare()?;
    session::install(session::count_only)?;
    send();
    check!(GOT.load(Relaxed) == 1, "{} signals", GOT.load(Relaxed));
    Ok(())
}

fn ignored() -> Outcome {
    dies(ignore, trap::write_pmc1)?;
    ignore()?;
    session::install(session::count_only)?;
    send();
    survive_eviction()
}

fn not_handled() -> Outcome {
    default()?;
    dies(default, send)?;
    dies(default, trap::write_pmc1)
}

/// A signal that is blocked when an instruction raises it would end the process. The library
/// unblocks it.
fn blocked() -> Outcome {
    // SAFETY: Zeroes are a valid set of signals.
    ktap::os_result(unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGILL);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut())
    })?;
    survive_eviction()
}

extern "C" fn jump_out(_: libc::c_int) {
    // SAFETY: `read_paused` runs in `call_escapable`.
    unsafe { escape::escape() };
}

extern "C" fn read_paused() {
    let session = Session::open("cycles", PERIOD.into()).expect("an event");
    // SAFETY: The handler does nothing.
    unsafe { session.start(Save::Full, session::count_only) }.expect("EBBs");
    session.pause().expect("a pause");
    set_action(jump_out as *const () as usize, libc::SA_NODEFER).expect("an action");
    let _ = session.read(0);
}

/// A program jumps out of its own SIGILL handler in the middle of an access of the library. It
/// still gets the SIGILL of its own accesses afterwards.
fn jumped_out_of_a_read() -> Outcome {
    dies(default, || {
        // SAFETY: Zeroes are a valid sigaction.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: The variable lives through the call.
        unsafe { libc::sigaction(libc::SIGILL, std::ptr::null(), &mut before) };
        // SAFETY: `read_paused` has only a session that must be dropped, and the end of the process
        // closes that.
        let jumped = unsafe { escape::call_escapable(read_paused) };
        assert_eq!(jumped, 1, "the read does not trap");
        // SAFETY: The action is the one that was set before.
        unsafe { libc::sigaction(libc::SIGILL, &before, std::ptr::null_mut()) };
        trap::write_pmc1();
    })
}

ktap::main! {
    first: session::require_ebb;
    own_handler, own_handler_once, ignored, not_handled, blocked, jumped_out_of_a_read,
}
