// SPDX-License-Identifier: MIT OR Apache-2.0
//! What several threads share of a session, and how it is tied to the thread that takes the
//! EBBs.
//!
//! That thread holds a reference of its own, as the value of a key of `pthread_key_create`:
//! when the thread ends, the key's destructor turns EBBs off before stack and thread-local data
//! are freed, and has other threads look there no more.

extern crate alloc;

use alloc::sync::Arc;
use core::ptr;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::Ordering::Release;

use crate::control;
use crate::error::Error;
use crate::pmc::Pmc;
use crate::progress;
use crate::reg::Bescr;
use crate::sys;
use crate::sys::Descriptor;
use crate::thread;
use crate::thread::Thread;

/// Values of [`Shared::paused`]: by nobody, the session's thread, another thread.
pub(crate) const NOT: u32 = 0;
pub(crate) const BY_OWNER: u32 = 1;
pub(crate) const BY_OTHER: u32 = 2;

/// An event of a session.
pub(crate) struct Slot {
    pub(crate) descriptor: Descriptor,
    /// Number of its counter; 0 if there is no event.
    pub(crate) pmc: AtomicU64,
    /// Its period, 0 if it only counts, and by how much each may differ.
    pub(crate) period: AtomicU64,
    pub(crate) jitter: AtomicU64,
}

impl Slot {
    pub(crate) fn pmc(&self) -> Option<Pmc> {
        // CAST: a counter's number.
        Pmc::new(self.pmc.load(Relaxed) as u8)
    }
}

/// A session as all threads see it.
pub(crate) struct Shared {
    /// The events, the leader first.
    pub(crate) slots: [Slot; 6],
    /// The BHRB's bits of their codes.
    pub(crate) branches: u64,
    process: libc::pid_t,
    thread: libc::pid_t,
    /// Address of the leader's page, or 0.
    page: AtomicUsize,
    paused: AtomicU32,
    closed: AtomicBool,
    started: AtomicBool,
    /// Address of the block of the thread that takes the EBBs, while it lives.
    owner: AtomicUsize,
    /// Held by whoever looks at that block or takes it away.
    lock: AtomicBool,
}

impl Shared {
    pub(crate) fn new(branches: u64) -> Self {
        Self {
            slots: [const {
                Slot {
                    descriptor: Descriptor::none(),
                    pmc: AtomicU64::new(0),
                    period: AtomicU64::new(0),
                    jitter: AtomicU64::new(0),
                }
            }; 6],
            branches,
            process: sys::process_id(),
            thread: sys::thread_id(),
            page: AtomicUsize::new(0),
            paused: AtomicU32::new(NOT),
            closed: AtomicBool::new(false),
            started: AtomicBool::new(false),
            owner: AtomicUsize::new(0),
            lock: AtomicBool::new(false),
        }
    }

    /// The events that there are.
    pub(crate) fn events(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().take_while(|slot| slot.pmc().is_some())
    }

    /// The event on `pmc`.
    pub(crate) fn find(&self, pmc: Pmc) -> Option<&Slot> {
        self.events().find(|slot| slot.pmc() == Some(pmc))
    }

    /// The leader's descriptor.
    pub(crate) fn leader(&self) -> Result<&Descriptor, Error> {
        let leader = &self.slots[0].descriptor;
        match leader.raw() {
            -1 => Err(Error::Closed),
            _ => Ok(leader),
        }
    }

    pub(crate) fn map_page(&self) {
        let address = sys::map_page(&self.slots[0].descriptor);
        self.page.store(address, Relaxed);
    }

    pub(crate) fn paused(&self) -> u32 {
        self.paused.load(Relaxed)
    }

    pub(crate) fn set_paused(&self, paused: u32) {
        self.paused.store(paused, Relaxed);
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started.load(Relaxed)
    }

    /// Whether the calling thread takes its EBBs. No system call: a handler may ask.
    pub(crate) fn is_of_this_thread(&self) -> bool {
        thread::with(|t| t.session.load(Relaxed)) == ptr::from_ref(self).addr() as u64
    }

    fn is_of_this_process(&self) -> bool {
        sys::process_id() == self.process
    }

    /// Fails in the child of a fork, and once it was closed.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        match self.is_of_this_process() {
            true if self.closed.load(Relaxed) => Err(Error::Closed),
            true => Ok(()),
            false => Err(Error::Gone),
        }
    }

    /// Fails unless this is the thread that has opened it.
    pub(crate) fn check_thread(&self) -> Result<(), Error> {
        self.check_process()?;
        match sys::thread_id() == self.thread {
            true => Ok(()),
            false => Err(Error::WrongThread),
        }
    }

    /// Looks at the block of the thread that takes the EBBs; `None` once that has ended.
    pub(crate) fn with_thread<R>(&self, look: impl FnOnce(&Thread) -> R) -> Option<R> {
        if self.is_of_this_thread() {
            // It needs no lock, which an EBB's handler could find held by itself.
            return Some(thread::with(look));
        }
        // As in `thread_ends`, and the thread is not there.
        if !self.is_of_this_process() {
            return None;
        }
        let _locked = Locked::lock(&self.lock);
        let owner = ptr::with_exposed_provenance::<Thread>(self.owner.load(Relaxed));
        // SAFETY: the thread cannot end as long as the lock is held; all of it that anybody
        // looks at from here are atomics.
        unsafe { owner.as_ref() }.map(look)
    }

    /// Whether the counters stand still and nothing but the thread itself can set them going:
    /// the handler has asked for it, was left by a jump, or has lost the PMU while it ran.
    pub(crate) fn is_stuck(&self) -> Result<bool, Error> {
        let own = self.is_of_this_thread();
        self.with_thread(|t| {
            let stopped = t.rearm.load(Relaxed) & 1 == 0;
            let left = own && progress::may_be_left(t, Bescr::read());
            stopped || left || t.evicted.load(Relaxed) != 0
        })
        .ok_or(Error::Closed)
    }

    /// Closes the events.
    pub(crate) fn close(&self) {
        self.closed.store(true, Relaxed);
        for slot in self.slots.iter().rev() {
            slot.descriptor.close();
        }
        let page = self.page.swap(0, Relaxed);
        // The child of a fork has not inherited the page.
        if page != 0 && self.is_of_this_process() {
            // SAFETY: it is mapped, and nobody looks at it.
            unsafe { sys::unmap_page(page) };
        }
    }
}

/// A lock that is held for some loads. No handler takes it.
struct Locked<'a>(&'a AtomicBool);

impl<'a> Locked<'a> {
    fn lock(lock: &'a AtomicBool) -> Self {
        while lock.swap(true, Acquire) {
            // SAFETY: a system call without pointers.
            unsafe { libc::sched_yield() };
        }
        Self(lock)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

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
pub(crate) fn attach(shared: &Arc<Shared>) -> Result<(), Error> {
    if shared.is_of_this_thread() {
        return Ok(());
    }
    let value = Arc::into_raw(Arc::clone(shared));
    // SAFETY: the key exists; its destructor gets the reference.
    match unsafe { libc::pthread_setspecific(key()?, value.cast()) } {
        0 => {}
        errno => {
            // SAFETY: as it was made, and nobody else has it.
            drop(unsafe { Arc::from_raw(value) });
            return Err(Error::System {
                what: "pthread_setspecific",
                errno,
                rule: None,
            });
        }
    }
    thread::with(|t| {
        t.session.store(value.addr() as u64, Relaxed);
        let _locked = Locked::lock(&shared.lock);
        let owner = ptr::from_ref(t).expose_provenance();
        shared.owner.store(owner, Relaxed);
    });
    shared.started.store(true, Relaxed);
    Ok(())
}

/// Unties a session that was closed, by this thread or another, or that is a parent process's.
pub(crate) fn release_ended() {
    let Ok(key) = key() else { return };
    // SAFETY: the key exists.
    let value = unsafe { libc::pthread_getspecific(key) }.cast::<Shared>();
    // SAFETY: it has the reference of `attach`, or is null.
    let Some(shared) = (unsafe { value.as_ref() }) else {
        return;
    };
    if shared.check_process().is_err() {
        // SAFETY: the key exists.
        unsafe { libc::pthread_setspecific(key, ptr::null()) };
        thread_ends(value.cast());
    }
}

/// The end of a thread, or of its part in a session.
extern "C" fn thread_ends(value: *mut libc::c_void) {
    // SAFETY: the reference of `attach`, which comes here once.
    let shared = unsafe { Arc::from_raw(value.cast::<Shared>()) };
    control::disable();
    thread::with(|t| t.session.store(0, Relaxed));
    // A thread that held it at a fork is not in the child, where nobody would release it.
    let _locked = shared
        .is_of_this_process()
        .then(|| Locked::lock(&shared.lock));
    shared.owner.store(0, Relaxed);
}
