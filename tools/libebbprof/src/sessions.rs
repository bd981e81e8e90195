// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of sampled threads of this process, with which sampling is paused or ended for all.

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::Ordering::Release;

use crate::thread::Sampled;

/// The state of the process.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum State {
    /// The process is not sampled.
    Idle = 0,
    /// The process is sampled because `ebbprof record` has preloaded this library.
    Preloaded = 1,
    /// The process records itself (`ebbprof_start`).
    Running = 2,
    /// The process records itself, but takes no samples at present.
    Paused = 3,
}

static STATE: AtomicU32 = AtomicU32::new(State::Idle as u32);

pub(crate) fn state() -> State {
    match STATE.load(Acquire) {
        0 => State::Idle,
        1 => State::Preloaded,
        2 => State::Running,
        _ => State::Paused,
    }
}

/// Returns whether samples are taken: not while paused, nor before the start or after the end.
pub(crate) fn takes_samples() -> bool {
    matches!(state(), State::Preloaded | State::Running)
}

pub(crate) fn set_state(state: State) {
    STATE.store(state as u32, Release);
}

/// The lock of the list and of the sessions in it.
struct Lock(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: A mutex is made for use by several threads.
unsafe impl Sync for Lock {}

static LOCK: Lock = Lock(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
static FIRST: AtomicPtr<Sampled> = AtomicPtr::new(ptr::null_mut());

/// The list while it is locked.
pub(crate) struct Sessions(());

impl Sessions {
    pub(crate) fn lock() -> Self {
        // SAFETY: The mutex is initialised, and no thread locks it twice.
        unsafe { libc::pthread_mutex_lock(LOCK.0.get()) };
        Self(())
    }

    /// Locks the list in a process without other threads, whatever state the parent's threads have
    /// left the lock in.
    pub(crate) fn unlocked() -> Self {
        // SAFETY: No other thread exists that could use the lock.
        unsafe { LOCK.0.get().write(libc::PTHREAD_MUTEX_INITIALIZER) };
        Self::lock()
    }

    /// Adds the calling thread to the list.
    ///
    /// # Safety
    ///
    /// `sampled` lives until [`remove`](Self::remove).
    pub(crate) unsafe fn add(&self, sampled: *mut Sampled) {
        // SAFETY: The caller guarantees that it lives, and all accesses hold the lock.
        unsafe { (*sampled).next = FIRST.load(Relaxed) };
        FIRST.store(sampled, Relaxed);
    }

    pub(crate) fn remove(&self, sampled: *mut Sampled) {
        let mut link = FIRST.as_ptr();
        // SAFETY: Everything in the list lives, and the caller holds the lock.
        unsafe {
            while !(*link).is_null() {
                if *link == sampled {
                    *link = (*sampled).next;
                    return;
                }
                link = &raw mut (**link).next;
            }
        }
    }

    /// Empties the list: in the child of a fork, which has none of its parent's threads.
    pub(crate) fn clear(&self) {
        FIRST.store(ptr::null_mut(), Relaxed);
    }

    pub(crate) fn each(&self, mut action: impl FnMut(&mut Sampled)) {
        let mut sampled = FIRST.load(Relaxed);
        // SAFETY: Everything in the list lives, and the caller holds the lock.
        while let Some(this) = unsafe { sampled.as_mut() } {
            sampled = this.next;
            action(this);
        }
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        // SAFETY: A `Sessions` exists only in the thread that has locked the mutex.
        unsafe { libc::pthread_mutex_unlock(LOCK.0.get()) };
    }
}

/// Locks the list before a fork, so that the child does not find it locked by a thread that it does
/// not have.
pub(crate) fn lock_for_fork() {
    core::mem::forget(Sessions::lock());
}

/// Unlocks the list in the parent after a fork.
pub(crate) fn unlock_after_fork() {
    drop(Sessions(()));
}
