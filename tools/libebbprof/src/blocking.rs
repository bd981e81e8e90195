// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions in which the C library blocks all signals, SIGILL too: the calling thread has no EBBs
//! meanwhile, see `signals.rs`. There are others; `pthread_create` and fork are in `process.rs`.

use core::mem::transmute;

use crate::c_library::c_library;
use crate::memory;
use crate::memory::errno;
use crate::memory::set_errno;
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
                // Where nothing was ever recorded there may be no EBB facility.
                if memory::control().is_none() {
                    return real(a, b, c, d, e, f);
                }
                ebb::disable();
                let result = real(a, b, c, d, e, f);
                let errno = errno();
                // Fails where the thread is not sampled.
                let _ = ebb::enable();
                set_errno(errno);
                result
            }
        );
    };
}

// CAST: positive.
const NO_FUNCTION: usize = libc::ENOSYS as usize;

without_ebbs!("posix_spawn", real_spawn, spawn, NO_FUNCTION);
without_ebbs!(
    "posix_spawnp",
    real_spawn_on_path,
    spawn_on_path,
    NO_FUNCTION
);
without_ebbs!("pthread_kill", real_kill, kill, NO_FUNCTION);
without_ebbs!("system", real_system, system, usize::MAX);
without_ebbs!("popen", real_popen, popen, 0);

/// Finds the one that a signal's handler may call.
pub(crate) fn find() {
    let _ = real_kill();
}
