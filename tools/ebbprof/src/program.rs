// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program that `record` runs: it begins as it would without `ebbprof`, and gets the signals that
//! are to end the recording.

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;

use libc::c_int;
use libc::c_void;
use libc::siginfo_t;

/// Signals that are ignored or not as `ebbprof` needs it: the standard library ignores SIGPIPE, and
/// nobody can wait for children where SIGCHLD is ignored.
const OWN: [c_int; 2] = [libc::SIGPIPE, libc::SIGCHLD];
/// Whether who has started `ebbprof` has them ignored: the program begins with that.
static IGNORED: [AtomicBool; OWN.len()] = [const { AtomicBool::new(false) }; OWN.len()];

/// Before the standard library changes any.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGINS: extern "C" fn() = note_ignored;

extern "C" fn note_ignored() {
    for (&signal, ignored) in OWN.iter().zip(&IGNORED) {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: the call fills in what is read if it succeeds.
        let is_ignored = unsafe {
            libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0
                && (*action.as_ptr()).sa_sigaction == libc::SIG_IGN
        };
        ignored.store(is_ignored, Relaxed);
    }
}

/// The program at `path`, which finds `name` as its own, as a shell has it.
pub fn command(path: &Path, name: &OsStr) -> Command {
    let restore = || {
        for (&signal, ignored) in OWN.iter().zip(&IGNORED) {
            let action = if ignored.load(Relaxed) {
                libc::SIG_IGN
            } else {
                libc::SIG_DFL
            };
            // SAFETY: no function is called.
            unsafe { libc::signal(signal, action) };
        }
        Ok(())
    };
    let mut command = Command::new(path);
    // SAFETY: it does what may be done between fork and exec.
    unsafe { command.arg0(name).pre_exec(restore) };
    command
}

/// The program's process, while it runs.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// Runs it. Signals that end `ebbprof` end the program instead, and then the recording.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    // SAFETY: no function is called.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    let child = command.spawn()?;
    // CAST: an id is positive.
    CHILD.store(child.id() as i32, Relaxed);
    pass_signals_on();
    Ok(child)
}

/// Its number may be another process' now.
pub fn has_ended() {
    CHILD.store(0, Relaxed);
}

/// `SI_KERNEL` of uapi/asm-generic/siginfo.h.
const SI_KERNEL: c_int = 0x80;

fn pass_signals_on() {
    extern "C" fn pass(signal: c_int, information: *mut siginfo_t, _: *mut c_void) {
        // A terminal sends these to both; it is the kernel that does.
        let by_terminal = [libc::SIGINT, libc::SIGQUIT].contains(&signal)
            // SAFETY: of the kernel, which says who has sent the signal.
            && unsafe { (*information).si_code } == SI_KERNEL;
        let child = CHILD.load(Relaxed);
        if child != 0 && !by_terminal {
            // SAFETY: without pointers.
            unsafe { libc::kill(child, signal) };
        }
    }

    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: all zeroes is an action; the function does what a signal's handler may.
        unsafe {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            action.sa_sigaction = pass as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
    }
}
