// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps SIGILL deliverable to sampled threads.
//!
//! A thread may lose the PMU while its handler runs: another thread ends the recording, or another
//! event takes the PMU. The next access to it traps, and `ebb` skips it in its action for SIGILL.
//! If the thread blocks that signal, or the program has set an action of its own, the process is
//! killed. So this library interposes the functions for that: no mask that the program sets
//! includes SIGILL, and `ebb` calls the program's action for it. While the C library itself blocks
//! all signals there are no EBBs (`calls.rs`).

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::mem::transmute;
use core::ptr;

use crate::c_library::c_library;
use crate::process;

type Mask = unsafe extern "C" fn(c_int, *const libc::sigset_t, *mut libc::sigset_t) -> c_int;
type Action = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
type Signal = unsafe extern "C" fn(c_int, usize) -> usize;

/// Defines a function that interposes one of the C library, and a function that returns the C
/// library's. The shared object exports it under the same name; programs get it by `--wrap`.
macro_rules! in_front {
    ($name:literal, $kind:ty, $real:ident,
     fn $own:ident($($argument:ident: $type:ty),*) -> $result:ty $body:block) => {
        fn $real() -> Option<$kind> {
            // SAFETY: The address is 0 or that of a function of this type.
            unsafe { transmute::<usize, Option<$kind>>(c_library!($name)) }
        }

        /// # Safety
        ///
        /// The requirements of the C library's function apply.
        #[cfg_attr(not(feature = "wrap"), unsafe(export_name = $name))]
        #[cfg_attr(feature = "wrap", unsafe(export_name = concat!("__wrap_", $name)))]
        unsafe extern "C" fn $own($($argument: $type),*) -> $result $body
    };
}
#[cfg(not(feature = "wrap"))]
pub(crate) use in_front;

/// Calls a function that sets or blocks a mask, without SIGILL in the mask.
///
/// # Safety
///
/// The requirements of the function `real` apply.
unsafe fn without_sigill(
    real: Mask,
    how: c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: The caller guarantees what `real` requires; `own` is a local copy.
    unsafe {
        if set.is_null() || how == libc::SIG_UNBLOCK {
            return real(how, set, old);
        }
        let mut own = set.read();
        libc::sigdelset(&mut own, libc::SIGILL);
        real(how, &own, old)
    }
}

in_front!(
    "pthread_sigmask",
    Mask,
    real_thread_mask,
    fn thread_mask(how: c_int, set: *const libc::sigset_t, old: *mut libc::sigset_t) -> c_int {
        // SAFETY: The caller guarantees what the C library's function requires.
        real_thread_mask().map_or(libc::ENOSYS, |real| unsafe {
            without_sigill(real, how, set, old)
        })
    }
);

in_front!(
    "sigprocmask",
    Mask,
    real_mask,
    fn mask(how: c_int, set: *const libc::sigset_t, old: *mut libc::sigset_t) -> c_int {
        // SAFETY: The caller guarantees what the C library's function requires.
        real_mask().map_or(-1, |real| unsafe { without_sigill(real, how, set, old) })
    }
);

in_front!(
    "sigaction",
    Action,
    real_action,
    fn action(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
        let Some(real) = real_action() else { return -1 };
        // SAFETY: The caller guarantees what the C library's function requires. `own` is a local
        // copy, because `new` and `old` may be equal.
        unsafe {
            let (mut own, mut old) = (new.as_ref().copied(), old);
            if signal == libc::SIGILL {
                // The child of a vfork has its own actions and no EBBs, but its parent's memory.
                let is_child = !process::has_own_memory();
                let next = if is_child { ptr::null() } else { new };
                if ebb::replace_next(next, old) {
                    if next == new {
                        return 0;
                    }
                    old = ptr::null_mut();
                }
            }
            if let Some(own) = &mut own {
                libc::sigdelset(&mut own.sa_mask, libc::SIGILL);
            }
            real(signal, own.as_ref().map_or(ptr::null(), ptr::from_ref), old)
        }
    }
);

in_front!(
    "signal",
    Signal,
    real_signal,
    fn signal(number: c_int, function: usize) -> usize {
        if number == libc::SIGILL {
            // SAFETY: Zeroes are a valid action, and both are local variables.
            unsafe {
                let mut new: libc::sigaction = MaybeUninit::zeroed().assume_init();
                let mut old = new;
                new.sa_sigaction = function;
                new.sa_flags = libc::SA_RESTART;
                return match action(number, &new, &mut old) {
                    0 => old.sa_sigaction,
                    _ => libc::SIG_ERR,
                };
            }
        }
        // SAFETY: The caller guarantees what the C library's function requires.
        real_signal().map_or(libc::SIG_ERR, |real| unsafe { real(number, function) })
    }
);

/// Looks up the C library's functions before a signal handler calls one.
#[cfg(not(feature = "wrap"))]
pub(crate) fn find() {
    let _ = (
        real_thread_mask(),
        real_mask(),
        real_action(),
        real_signal(),
    );
}
