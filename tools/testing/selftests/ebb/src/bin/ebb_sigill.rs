// SPDX-License-Identifier: GPL-2.0
//! SIGILL in a program that uses the library `ebb`, which handles those of its own accesses:
//! every other one has the effect that it had before.

use ebb::EbbContext;
use ebb::Pmc;
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

/// Places in the kernel's `struct ucontext` and of NIP (uapi/asm/ucontext.h, ptrace.h).
const REGS_OFFSET: usize = 168 + 56;
const PT_NIP: usize = 32;

/// Signals that the program's own handler has got, and the `si_code` of the last.
static GOT: AtomicU32 = AtomicU32::new(0);
static CODE: AtomicI32 = AtomicI32::new(0);

/// The program's own handler, which steps over every instruction that traps.
extern "C" fn own(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    GOT.fetch_add(1, Relaxed);
    // SAFETY: the kernel hands a signal handler its information and a valid ucontext, whose
    // `regs` points at the registers it goes on with.
    unsafe {
        CODE.store((*info).si_code, Relaxed);
        if (*info).si_code > 0 {
            let regs = *context.byte_add(REGS_OFFSET).cast::<*mut u64>();
            *regs.add(PT_NIP) += 4;
        }
    }
}

/// Sets the action for SIGILL.
fn set_action(action: usize, flags: libc::c_int) -> Outcome {
    // SAFETY: zeroes are a valid sigaction; the function has three arguments.
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
    // SAFETY: a system call without pointers.
    unsafe { libc::raise(libc::SIGILL) };
}

/// The event that the handler disables.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);

fn lose_the_pmu(context: &mut EbbContext<'_>) {
    if context.number() == 3 {
        // SAFETY: an ioctl without a pointer (PERF_EVENT_IOC_DISABLE).
        unsafe { libc::ioctl(DESCRIPTOR.load(Relaxed), 0x2000_2401) };
        Pmc::Pmc2.write(0);
    }
}

/// The PMU goes away in the third handler, which is survived.
fn survive_eviction() -> Outcome {
    let event = session::prepare(CYCLES, lose_the_pmu)?;
    DESCRIPTOR.store(event.as_raw_fd(), Relaxed);
    session::arm(PERIOD)?;
    session::wait_for(3, PERIOD)?;
    check!(ebb::evicted(), "nothing was noticed");
    session::end(event)
}

/// A child that does `act` after [`session::install`], its first, dies by SIGILL.
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
    // After its one signal as if there were none.
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

/// A signal that is blocked where an instruction raises it ends the process.
fn blocked() -> Outcome {
    // SAFETY: zeroes are a valid set of signals.
    ktap::os_result(unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGILL);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut())
    })?;
    survive_eviction()
}

ktap::main! {
    first: session::require_ebb;
    own_handler, own_handler_once, ignored, not_handled, blocked,
}
