// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program that `record` runs. It starts in the state that it would have without `ebbprof`, and
//! gets the signals that are meant to end the recording.

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

/// Signals whose dispositions `ebbprof` changes: the standard library ignores SIGPIPE, and a
/// process that ignores SIGCHLD cannot wait for children.
const OWN: [c_int; 2] = [libc::SIGPIPE, libc::SIGCHLD];
/// Whether each was ignored when `ebbprof` was started; the program starts with the same
/// disposition.
static IGNORED: [AtomicBool; OWN.len()] = [const { AtomicBool::new(false) }; OWN.len()];

/// Runs before the standard library changes any disposition.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGINS: extern "C" fn() = note_ignored;

extern "C" fn note_ignored() {
    for (&signal, ignored) in OWN.iter().zip(&IGNORED) {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: `action` is read only if sigaction() succeeds, which fills it in.
        let is_ignored = unsafe {
            libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0
                && (*action.as_ptr()).sa_sigaction == libc::SIG_IGN
        };
        ignored.store(is_ignored, Relaxed);
    }
}

/// Returns the command that runs the program at `path` with `name` as its argument 0, as a shell
/// does.
pub fn command(path: &Path, name: &OsStr) -> Command {
    let restore = || {
        for (&signal, ignored) in OWN.iter().zip(&IGNORED) {
            let action = if ignored.load(Relaxed) {
                libc::SIG_IGN
            } else {
                libc::SIG_DFL
            };
            // SAFETY: Neither disposition installs a function.
            unsafe { libc::signal(signal, action) };
        }
        Ok(())
    };
    let mut command = Command::new(path);
    // SAFETY: The closure only makes calls that are allowed between fork and exec.
    unsafe { command.arg0(name).pre_exec(restore) };
    command
}

/// Process id of the program while it runs, else 0.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// Runs the program. Signals that would end `ebbprof` are sent to the program instead; its end ends
/// the recording.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    // SAFETY: SIG_DFL installs no function.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    let child = command.spawn()?;
    // CAST: A process id is positive and fits in an i32.
    CHILD.store(child.id() as i32, Relaxed);
    pass_signals_on();
    Ok(child)
}

/// Stops sending signals to the program, whose process id may be reused.
pub fn has_ended() {
    CHILD.store(0, Relaxed);
}

/// The value of `SI_KERNEL` in uapi/asm-generic/siginfo.h.
const SI_KERNEL: c_int = 0x80;

fn pass_signals_on() {
    extern "C" fn pass(signal: c_int, information: *mut siginfo_t, _: *mut c_void) {
        // A terminal sends these to both processes; then the sender is the kernel.
        let by_terminal = [libc::SIGINT, libc::SIGQUIT].contains(&signal)
            // SAFETY: The kernel passes a valid `siginfo_t` to an SA_SIGINFO handler.
            && unsafe { (*information).si_code } == SI_KERNEL;
        let child = CHILD.load(Relaxed);
        if child != 0 && !by_terminal {
            // SAFETY: The call takes no pointers.
            unsafe { libc::kill(child, signal) };
        }
    }

    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: Zeroes are a valid `sigaction`, and the function follows the rules for signal
        // handlers.
        unsafe {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            action.sa_sigaction = pass as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
    }
}
