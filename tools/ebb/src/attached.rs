// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a session is tied to the thread that takes the EBBs.
//!
//! That thread holds a reference of its own, as the value of a key of `pthread_key_create`:
//! when the thread ends, the key's destructor turns EBBs off before stack and thread-local data
//! are freed, and has other threads look there no more.

use core::ptr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::Ordering::Release;

use crate::control;
use crate::error::Error;
use crate::reference::Ref;
use crate::thread;

/// The key, plus 1; 0: not made yet.
static KEY: AtomicU32 = AtomicU32::new(0);

/// The key whose destructor knows that a thread ends.
fn key() -> Result<libc::pthread_key_t, Error> {
    let key = KEY.load(Acquire);
    if key != 0 {
        return Ok(key - 1);
    }
    let mut new = 0;
    // SAFETY: the variable lives, and the destructor takes such a value.
    let errno = unsafe { libc::pthread_key_create(&mut new, Some(thread_ends)) };
    if errno != 0 {
        return Err(Error::System {
            what: "pthread_key_create",
            errno,
            rule: None,
        });
    }
    KEY.compare_exchange(0, new + 1, Release, Acquire)
        .map_or_else(
            |others| {
                // SAFETY: nobody knows of it.
                unsafe { libc::pthread_key_delete(new) };
                Ok(others - 1)
            },
            |_| Ok(new),
        )
}

/// Ties `shared` to the calling thread, which takes its EBBs from here on.
pub(crate) fn attach(shared: &Ref) -> Result<(), Error> {
    if shared.is_of_this_thread() {
        return Ok(());
    }
    let key = key()?;
    let value = shared.clone().into_raw();
    // SAFETY: the key exists; its destructor gets the reference.
    match unsafe { libc::pthread_setspecific(key, value) } {
        0 => {}
        errno => {
            // SAFETY: as it was made, and nobody else has it.
            drop(unsafe { Ref::from_raw(value) });
            return Err(Error::System {
                what: "pthread_setspecific",
                errno,
                rule: None,
            });
        }
    }
    thread::with(|t| shared.begin(t));
    Ok(())
}

/// Unties a session that was closed, by this thread or another, or that is a parent process's.
pub(crate) fn release_ended() {
    let Ok(key) = key() else { return };
    // SAFETY: the key exists.
    let value = unsafe { libc::pthread_getspecific(key) };
    // SAFETY: it is null, or of `attach`.
    let Some(shared) = (unsafe { Ref::find(value) }) else {
        return;
    };
    if shared.check_process().is_ok() || !shared.is_of_this_thread() {
        return;
    }
    // First: a signal's handler that closes the session turns EBBs off until `leave`.
    let _ = control::uninstall();
    // Such a handler may do it at any time between these lines.
    if thread::with(|t| shared.leave(t)) {
        // SAFETY: the key exists.
        unsafe { libc::pthread_setspecific(key, ptr::null()) };
        thread_ends(value);
    }
}

/// The end of a thread, or of its part in a session.
extern "C" fn thread_ends(value: *mut libc::c_void) {
    // SAFETY: the reference of `attach`, which comes here once.
    let shared = unsafe { Ref::from_raw(value) };
    // Unless EBBHR is somebody else's by now.
    let _ = control::uninstall();
    thread::with(|t| shared.end(t));
}
