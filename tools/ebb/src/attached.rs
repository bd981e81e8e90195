// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ties a session to the thread that takes its EBBs.
//!
//! That thread holds a reference of its own to the session, as the value of a
//! `pthread_key_create` key. When the thread ends, the key's destructor turns EBBs off before the
//! stack and the thread-local data are freed, and detaches the thread so that other threads no
//! longer access it.
//!
//! By then C++ and Rust have already destroyed their thread-local variables, which the handler may
//! use; and `exit` destroys static variables without calling such a destructor at all. So the
//! thread also registers a destructor of a thread-local variable, if the C library has a function
//! for that: these run in the reverse order of their registration, and before those of statics.

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

/// The key, plus 1; 0 until it is created.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Returns the key whose destructor runs when a thread ends. Creates it at the first call.
fn key() -> Result<libc::pthread_key_t, Error> {
    let key = KEY.load(Acquire);
    if key != 0 {
        return Ok(key - 1);
    }
    let mut new = 0;
    // SAFETY: `new` is a local variable, and `thread_ends` accepts every value stored for the key.
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
                // SAFETY: No other code has seen this key, which lost the race to be stored in
                // `KEY`.
                unsafe { libc::pthread_key_delete(new) };
                Ok(others - 1)
            },
            |_| Ok(new),
        )
}

// Address of `__cxa_thread_atexit_impl`, or 0. Not every C library has the function, and a static
// program only if other code in it needs it (for example a thread-local C++ variable with a
// destructor) or its linker was asked for it: the reference is weak, as is that of Rust's standard
// library, and a weak reference does not pull in a member of an archive.
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

/// Registers [`variables_end`] with the C library, once per thread.
fn register_end(t: &Thread) {
    // SAFETY: The dynamic loader or the linker has set the variable before any code runs.
    let Some(register) = (unsafe { AT_THREAD_END }) else {
        return;
    };
    if t.has_end.swap(1) == 0 {
        // An address in the program or shared object that must not be unloaded until then.
        let here = (&raw const KEY).cast();
        // SAFETY: `variables_end` ignores its argument, so null is fine.
        unsafe { register(variables_end, ptr::null_mut(), here) };
    }
}

/// Lets the calling thread take EBBs until it ends, even while its variables are destroyed.
#[doc(hidden)]
pub fn outlast_variables() {
    thread::with(|t| t.has_end.store(1));
}

/// Releases the session as the thread's variables are destroyed: the thread ends or calls `exit`.
extern "C" fn variables_end(_: *mut libc::c_void) {
    release_if(|_| true);
}

/// Ties `shared` to the calling thread, which takes its EBBs from now on.
pub(crate) fn attach(shared: &Ref) -> Result<(), Error> {
    if shared.is_of_this_thread() {
        return Ok(());
    }
    let key = key()?;
    let value = shared.clone().into_raw();
    // SAFETY: The key exists, and its destructor takes over the reference.
    match unsafe { libc::pthread_setspecific(key, value) } {
        0 => {}
        errno => {
            // SAFETY: `value` is from `into_raw` above, and the key did not take it.
            drop(unsafe { Ref::from_raw(value) });
            return Err(Error::System {
                what: "pthread_setspecific",
                errno,
                rule: None,
            });
        }
    }
    thread::with(|t| {
        // CAST: An address fits in 64 bits.
        t.held.store(value.addr() as u64);
        register_end(t);
        shared.begin(t);
    });
    Ok(())
}

/// Detaches the thread's session if this thread or another has closed it, or if it belongs to the
/// parent process.
pub(crate) fn release_ended() {
    release_if(|shared| shared.check_process().is_err());
}

/// Detaches the thread's session if `is_such` returns `true` for it.
fn release_if(is_such: impl FnOnce(&Shared) -> bool) {
    // Read from the thread's block, not with pthread_getspecific(): if a signal handler calls that
    // while the thread's first pthread_setspecific() runs, the C library takes the value for one of
    // a deleted key and clears it.
    let value = ptr::without_provenance_mut(thread::with(|t| t.held.load()) as usize);
    // SAFETY: `attach` stored the value, or it is null.
    let Some(shared) = (unsafe { Ref::find(value) }) else {
        return;
    };
    let Ok(key) = key() else { return };
    if !is_such(&shared) || !shared.is_of_this_thread() {
        return;
    }
    // Must come before `leave`: until then a signal handler that closes the session turns EBBs off.
    let _ = control::uninstall();
    // A signal handler may close the session between any two of these lines.
    if thread::with(|t| shared.leave(t)) {
        // SAFETY: `key` returned this key, which is never deleted.
        unsafe { libc::pthread_setspecific(key, ptr::null()) };
        release(value);
    }
}

/// Releases the session of a thread that ends.
extern "C" fn thread_ends(value: *mut libc::c_void) {
    // Fails if EBBHR belongs to another owner by now, whose EBBs must not be turned off.
    let _ = control::uninstall();
    release(value);
}

/// Drops the thread's reference to its session. Does nothing if a signal handler that has
/// interrupted [`thread_ends`] closed the session and dropped it already. EBBs must be off.
fn release(value: *mut libc::c_void) {
    thread::with(|t| {
        // CAST: An address fits in 64 bits.
        let held = value.addr() as u64;
        if (t.held.compare_exchange(held, 0)).is_ok() {
            // SAFETY: `attach` made this reference, and the exchange lets only one caller come
            // here.
            unsafe { Ref::from_raw(value) }.end(t);
        }
    });
}
