// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a session is tied to the thread that takes the EBBs.
//!
//! That thread holds a reference of its own, as the value of a key of `pthread_key_create`:
//! when the thread ends, the key's destructor turns EBBs off before stack and thread-local data
//! are freed, and has other threads look there no more.
//!
//! By then C++ and Rust have destroyed their thread-local variables, of which one may be what the
//! handler uses; and `exit`, which calls no such destructor, what is static. So the thread registers
//! this end as one of theirs, too, where the C library has a place for it: they come in the reverse
//! order, before what is static.

use core::ptr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::Ordering::Release;

use crate::control;
use crate::error::Error;
use crate::reference::Ref;
use crate::shared::Shared;
use crate::thread;
use crate::thread::Thread;

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

// `__cxa_thread_atexit_impl`, or 0: not every C library has it, and a static program only if other
// code of it needs it, as that of a thread-local variable of C++ with a destructor does, or its linker
// was told so: a weak reference, as this one and that of Rust's, has no member of an archive linked.
core::arch::global_asm!(
    ".pushsection .data.rel.ro.ebb_at_thread_end, \"aw\", @progbits",
    ".weak __cxa_thread_atexit_impl",
    ".balign 8",
    ".globl ebb_at_thread_end",
    ".hidden ebb_at_thread_end",
    ".type ebb_at_thread_end, @object",
    "ebb_at_thread_end: .quad __cxa_thread_atexit_impl",
    ".size ebb_at_thread_end, 8",
    ".popsection",
);

type Destructor = extern "C" fn(*mut libc::c_void);
type Register =
    unsafe extern "C" fn(Destructor, *mut libc::c_void, *const libc::c_void) -> libc::c_int;

unsafe extern "C" {
    #[link_name = "ebb_at_thread_end"]
    static AT_THREAD_END: Option<Register>;
}

/// Has [`variables_end`] called, once for a thread.
fn register_end(t: &Thread) {
    // SAFETY: the loader has put it there.
    let Some(register) = (unsafe { AT_THREAD_END }) else {
        return;
    };
    if t.has_end.swap(1) == 0 {
        // What is in the program or shared object that has to stay until then.
        let here = (&raw const KEY).cast();
        // SAFETY: the function looks at nothing that it is given.
        unsafe { register(variables_end, ptr::null_mut(), here) };
    }
}

/// Has the calling thread take EBBs while its variables are destroyed, too, until it ends.
#[doc(hidden)]
pub fn outlast_variables() {
    thread::with(|t| t.has_end.store(1));
}

/// Thread-local variables are destroyed, of a thread that ends or that calls `exit`.
extern "C" fn variables_end(_: *mut libc::c_void) {
    release_if(|_| true);
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
    thread::with(|t| {
        // CAST: an address.
        t.held.store(value.addr() as u64);
        register_end(t);
        shared.begin(t);
    });
    Ok(())
}

/// Unties a session that was closed, by this thread or another, or that is a parent process's.
pub(crate) fn release_ended() {
    release_if(|shared| shared.check_process().is_err());
}

/// Unties the thread's session if it is such a one.
fn release_if(is_such: impl FnOnce(&Shared) -> bool) {
    // Not the key's: a signal's handler that asks for that in the middle of `pthread_setspecific`, as
    // the first of a thread, has the C library take what it finds for a former key's, and clear it.
    let value = ptr::without_provenance_mut(thread::with(|t| t.held.load()) as usize);
    // SAFETY: it is null, or of `attach`.
    let Some(shared) = (unsafe { Ref::find(value) }) else {
        return;
    };
    let Ok(key) = key() else { return };
    if !is_such(&shared) || !shared.is_of_this_thread() {
        return;
    }
    // First: a signal's handler that closes the session turns EBBs off until `leave`.
    let _ = control::uninstall();
    // Such a handler may do it at any time between these lines.
    if thread::with(|t| shared.leave(t)) {
        // SAFETY: the key exists.
        unsafe { libc::pthread_setspecific(key, ptr::null()) };
        release(value);
    }
}

/// The end of a thread.
extern "C" fn thread_ends(value: *mut libc::c_void) {
    // Unless EBBHR is somebody else's by now.
    let _ = control::uninstall();
    release(value);
}

/// The end of a thread's part in a session, unless a signal's handler that has interrupted
/// [`thread_ends`] came to it first, by a close. Its EBBs are off.
fn release(value: *mut libc::c_void) {
    thread::with(|t| {
        // CAST: an address.
        let held = value.addr() as u64;
        if (t.held.compare_exchange(held, 0)).is_ok() {
            // SAFETY: the reference of `attach`, which comes here once.
            unsafe { Ref::from_raw(value) }.end(t);
        }
    });
}
