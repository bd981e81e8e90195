// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sampled threads of this process, for who pauses or ends the sampling of all of them.

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::Ordering::Release;

use crate::thread::Sampled;

/// What the process does.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum State {
    /// It is not sampled.
    Idle = 0,
    /// It is, as `ebbprof record` has preloaded this library.
    Preloaded = 1,
    /// It has itself sampled.
    Running = 2,
    /// The same, but no sample is taken for now.
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

/// Whether the program's threads have samples: not in a pause, nor before and behind all.
pub(crate) fn takes_samples() -> bool {
    matches!(state(), State::Preloaded | State::Running)
}

pub(crate) fn set_state(state: State) {
    STATE.store(state as u32, Release);
}

/// The lock of the list, and of closing what is in it.
struct Lock(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: it is for all threads.
unsafe impl Sync for Lock {}

static LOCK: Lock = Lock(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
static FIRST: AtomicPtr<Sampled> = AtomicPtr::new(ptr::null_mut());

/// The list, as long as it is locked.
pub(crate) struct Sessions(());

impl Sessions {
    pub(crate) fn lock() -> Self {
        // SAFETY: initialised, and no thread that holds it comes here.
        unsafe { libc::pthread_mutex_lock(LOCK.0.get()) };
        Self(())
    }

    /// Locks the list in a process that has no other thread, whatever its parent's threads did to
    /// the lock.
    pub(crate) fn unlocked() -> Self {
        // SAFETY: no other thread looks at the lock.
        unsafe { LOCK.0.get().write(libc::PTHREAD_MUTEX_INITIALIZER) };
        Self::lock()
    }

    /// Takes in the calling thread's.
    ///
    /// # Safety
    ///
    /// `sampled` lives until [`remove`](Self::remove).
    pub(crate) unsafe fn add(&self, sampled: *mut Sampled) {
        // SAFETY: the caller's contract; whoever else looks has the lock.
        unsafe { (*sampled).next = FIRST.load(Relaxed) };
        FIRST.store(sampled, Relaxed);
    }

    pub(crate) fn remove(&self, sampled: *mut Sampled) {
        let mut link = FIRST.as_ptr();
        // SAFETY: what is in the list lives.
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

    /// Nothing is in it: in the child of a fork, which has none of its parent's threads.
    pub(crate) fn clear(&self) {
        FIRST.store(ptr::null_mut(), Relaxed);
    }

    pub(crate) fn each(&self, mut action: impl FnMut(&mut Sampled)) {
        let mut sampled = FIRST.load(Relaxed);
        // SAFETY: what is in the list lives, and whoever else looks has the lock.
        while let Some(this) = unsafe { sampled.as_mut() } {
            sampled = this.next;
            action(this);
        }
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        // SAFETY: this thread has locked it.
        unsafe { libc::pthread_mutex_unlock(LOCK.0.get()) };
    }
}

/// A fork's child must not find it locked by a thread that it does not have.
pub(crate) fn lock_for_fork() {
    core::mem::forget(Sessions::lock());
}

/// In the parent.
pub(crate) fn unlock_after_fork() {
    drop(Sessions(()));
}
