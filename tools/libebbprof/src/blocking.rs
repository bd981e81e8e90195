// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions in which the C library blocks all signals (`calls.rs`), and the jumps with which a signal
//! handler leaves them. `pthread_create` and fork, which also do so, are in `process.rs`.

use core::ffi::c_int;
use core::ffi::c_void;
use core::mem::transmute;

use crate::c_library::c_library;
use crate::calls;
use crate::signals::in_front;

/// Any function with at most six arguments, none of which is a floating-point number.
type Any = extern "C" fn(usize, usize, usize, usize, usize, usize) -> usize;

/// Defines a function during which the calling thread has no EBBs.
macro_rules! without_ebbs {
    ($name:literal, $real:ident, $own:ident, $failed:expr) => {
        in_front!(
            $name,
            Any,
            $real,
            fn $own(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> usize {
                let Some(real) = $real() else { return $failed };
                calls::without_ebbs(|| real(a, b, c, d, e, f))
            }
        );
    };
}

// CAST: Errno values are positive.
const NO_FUNCTION: usize = libc::ENOSYS as usize;

without_ebbs!("posix_spawn", real_spawn, spawn, NO_FUNCTION);
without_ebbs!(
    "posix_spawnp",
    real_spawn_on_path,
    spawn_on_path,
    NO_FUNCTION
);
without_ebbs!("system", real_system, system, usize::MAX);
without_ebbs!("popen", real_popen, popen, 0);

type Kill = extern "C" fn(libc::pthread_t, c_int) -> c_int;

in_front!(
    "pthread_kill",
    Kill,
    real_kill,
    fn kill(thread: libc::pthread_t, signal: c_int) -> c_int {
        let Some(real) = real_kill() else {
            return libc::ENOSYS;
        };
        // SAFETY: The call takes no pointers.
        let own = thread == unsafe { libc::pthread_self() };
        // A signal to the calling thread itself is handled before the call returns, with no signal
        // blocked: samples can be taken then.
        match own {
            true => real(thread, signal),
            false => calls::without_ebbs(|| real(thread, signal)),
        }
    }
);

type Jump = extern "C" fn(*mut c_void, c_int) -> !;

/// Defines a function that ends the thread's calls without EBBs and jumps.
macro_rules! leaves {
    ($name:literal, $real:ident, $own:ident) => {
        in_front!(
            $name,
            Jump,
            $real,
            fn $own(buffer: *mut c_void, value: c_int) -> ! {
                calls::leave();
                match $real() {
                    Some(real) => real(buffer, value),
                    // SAFETY: The call takes no pointers.
                    None => unsafe { libc::abort() },
                }
            }
        );
    };
}

leaves!("longjmp", real_jump, jump);
leaves!("_longjmp", real_plain_jump, plain_jump);
leaves!("siglongjmp", real_signal_jump, signal_jump);
// Programs that were built with _FORTIFY_SOURCE call this one.
leaves!("__longjmp_chk", real_checked_jump, checked_jump);

/// Looks up the C library's functions that a signal handler may call, before one does.
pub(crate) fn find() {
    let _ = real_kill();
    let _ = (
        real_jump(),
        real_plain_jump(),
        real_signal_jump(),
        real_checked_jump(),
    );
}
