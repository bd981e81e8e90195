// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of a session that several threads share.

use core::ptr;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::AtomicI32;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::Ordering::Release;
use core::sync::atomic::Ordering::SeqCst;

use crate::error::Error;
use crate::pmc::Pmc;
use crate::reg::Bescr;
use crate::sys;
use crate::sys::Descriptor;
use crate::thread;
use crate::thread::Thread;
use crate::word::Word;

/// Values of [`Shared::paused`]: not paused, or paused by the session's thread or another thread.
pub(crate) const NOT: u32 = 0;
pub(crate) const BY_OWNER: u32 = 1;
pub(crate) const BY_OTHER: u32 = 2;

/// An event of a session.
pub(crate) struct Slot {
    pub(crate) descriptor: Descriptor,
    /// Number of the event's counter; 0 if there is no event.
    pub(crate) pmc: Word,
    /// The event's period (0 if it only counts) and the maximum deviation of each.
    pub(crate) period: Word,
    pub(crate) jitter: Word,
}

impl Slot {
    pub(crate) fn pmc(&self) -> Option<Pmc> {
        // CAST: Only numbers of counters, 0 to 6, are stored.
        Pmc::new(self.pmc.load() as u8)
    }
}

/// State of a session that all threads can access.
pub(crate) struct Shared {
    /// The events; the leader is the first.
    pub(crate) slots: [Slot; 6],
    /// The BHRB bits of the events' codes.
    pub(crate) branches: u64,
    /// Whether the code of any event has [`MARKED`](crate::config::MARKED).
    pub(crate) marked: AtomicBool,
    process: u64,
    thread: u64,
    /// Address of the leader's page, or 0.
    page: AtomicUsize,
    paused: AtomicU32,
    closed: AtomicBool,
    started: AtomicBool,
    /// Whether the counters got their first values. They did not if another event had the PMU.
    loaded: AtomicBool,
    /// Final number of EBBs, stored when the thread that takes them ends.
    last_count: AtomicU64,
    /// Address of the block of the thread that takes the EBBs, while it lives.
    owner: AtomicUsize,
    /// Id of the thread that currently reads or changes `owner`, or 0.
    lock: AtomicI32,
}

impl Shared {
    pub(crate) fn new(branches: u64) -> Result<Self, Error> {
        sys::mark_process()?;
        Ok(Self {
            slots: [const {
                Slot {
                    descriptor: Descriptor::none(),
                    pmc: Word::new(0),
                    period: Word::new(0),
                    jitter: Word::new(0),
                }
            }; 6],
            branches,
            marked: AtomicBool::new(false),
            process: sys::process(),
            thread: thread::number(),
            page: AtomicUsize::new(0),
            paused: AtomicU32::new(NOT),
            closed: AtomicBool::new(false),
            started: AtomicBool::new(false),
            loaded: AtomicBool::new(false),
            last_count: AtomicU64::new(0),
            owner: AtomicUsize::new(0),
            lock: AtomicI32::new(0),
        })
    }

    /// Returns the events that are open.
    pub(crate) fn events(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().take_while(|slot| slot.pmc().is_some())
    }

    /// Returns the event on `pmc`.
    pub(crate) fn find(&self, pmc: Pmc) -> Option<&Slot> {
        self.events().find(|slot| slot.pmc() == Some(pmc))
    }

    /// Returns the leader's descriptor, or an error if it is closed.
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
        self.paused.load(SeqCst)
    }

    /// Takes the events off the PMU on behalf of `by`. A pause by the session's thread takes
    /// precedence.
    pub(crate) fn pause(&self, by: u32) -> Result<(), Error> {
        if by == BY_OWNER {
            self.paused.store(by, SeqCst);
        } else {
            let _ = self.paused.compare_exchange(NOT, by, SeqCst, SeqCst);
        }
        self.settle()
    }

    /// Puts the events back on the PMU. Another thread cannot do that if the session's thread has
    /// paused it.
    pub(crate) fn unpause(&self) -> Result<(), Error> {
        if self.is_of_this_thread() {
            self.paused.store(NOT, SeqCst);
        } else if let Err(BY_OWNER) = (self.paused).compare_exchange(BY_OTHER, NOT, SeqCst, SeqCst)
        {
            return Err(Error::ResumeByOwner);
        }
        self.settle()
    }

    /// Enables or disables the events according to `paused`. Several threads may do this at once:
    /// each repeats it until `paused` has not changed in between.
    fn settle(&self) -> Result<(), Error> {
        loop {
            let paused = self.paused();
            let leader = self.leader()?;
            match paused {
                NOT => {
                    leader.enable()?;
                    if self.is_closed() {
                        // `close_events` may have disabled it before the `enable` above.
                        let _ = leader.disable();
                        return Err(Error::Closed);
                    }
                }
                _ => leader.disable()?,
            }
            if self.paused() == paused {
                return Ok(());
            }
        }
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.loaded.load(Relaxed)
    }

    pub(crate) fn set_loaded(&self, loaded: bool) {
        self.loaded.store(loaded, Relaxed);
    }

    /// Returns the number of EBBs since the start.
    pub(crate) fn count(&self) -> u64 {
        self.with_thread(|t| t.ebbs.load())
            .unwrap_or_else(|| self.last_count.load(Relaxed))
    }

    /// Makes the calling thread, whose block is `t`, the one that takes the EBBs.
    pub(crate) fn begin(&self, t: &Thread) {
        let locked = Locked::lock(&self.lock);
        let owner = ptr::from_ref(t).expose_provenance();
        self.owner.store(owner, Relaxed);
        drop(locked);
        // Must follow the store of `owner`, which a thread that sees `started` reads.
        self.started.store(true, Release);
        // Must be last: a signal handler that closes the session undoes all of this in `end` once
        // `session` is set; before, it leaves that to the code that it has interrupted.
        t.session.store(ptr::from_ref(self).addr() as u64);
    }

    /// Clears the thread's link to the session. Returns whether it was set.
    pub(crate) fn leave(&self, t: &Thread) -> bool {
        let this = ptr::from_ref(self).addr() as u64;
        t.session.compare_exchange(this, 0).is_ok()
    }

    /// Records that the thread no longer takes EBBs, which must be off.
    pub(crate) fn end(&self, t: &Thread) {
        t.session.store(0);
        // A thread that held the lock at a fork does not exist in the child and cannot release it.
        let _locked = (self.is_of_this_process()).then(|| Locked::lock(&self.lock));
        self.last_count.store(t.ebbs.load(), Relaxed);
        self.owner.store(0, Relaxed);
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started.load(Acquire)
    }

    /// Returns whether the calling thread takes the EBBs. Makes no system call, so handlers may
    /// call it.
    pub(crate) fn is_of_this_thread(&self) -> bool {
        thread::with(|t| t.session.load()) == ptr::from_ref(self).addr() as u64
    }

    fn is_of_this_process(&self) -> bool {
        sys::process() == self.process
    }

    /// Fails in the child of a fork, and after the session was closed.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        match self.is_of_this_process() {
            true if self.is_closed() => Err(Error::Closed),
            true => Ok(()),
            false => Err(Error::Gone),
        }
    }

    /// Fails unless the calling thread has opened the session.
    pub(crate) fn check_thread(&self) -> Result<(), Error> {
        self.check_process()?;
        match thread::number() == self.thread {
            true => Ok(()),
            false => Err(Error::WrongThread),
        }
    }

    /// Calls `look` with the block of the thread that takes the EBBs. Returns `None` if it has
    /// ended.
    pub(crate) fn with_thread<R>(&self, look: impl FnOnce(&Thread) -> R) -> Option<R> {
        if self.is_of_this_thread() {
            // No lock is needed, and an EBB's handler could wait for itself.
            return Some(thread::with(look));
        }
        // After a fork the thread does not exist, and the lock may never be released (see `end`).
        if !self.is_of_this_process() {
            return None;
        }
        let _locked = Locked::lock(&self.lock);
        let owner = ptr::with_exposed_provenance::<Thread>(self.owner.load(Relaxed));
        // SAFETY: `end` waits for the lock, so the thread's block stays valid, and everything that
        // `look` accesses is atomic.
        unsafe { owner.as_ref() }.map(look)
    }

    /// Returns whether the counters are frozen and only the thread itself can start them: the
    /// handler has requested it, was left by longjmp(), or has lost the PMU; or the counters have
    /// no first values yet. `is_left` determines on the thread itself whether a handler was left.
    pub(crate) fn is_stuck(&self, is_left: fn(&Thread, Bescr) -> bool) -> Result<bool, Error> {
        let own = self.is_of_this_thread();
        self.with_thread(|t| {
            let stopped = t.rearm.load() & 1 == 0;
            let left = own && (is_left(t, Bescr::read()) || !self.is_loaded());
            stopped || left || t.evicted.load() != 0
        })
        .ok_or(Error::Closed)
    }

    /// Marks the session closed. Returns whether this call did.
    pub(crate) fn begin_close(&self) -> bool {
        !self.closed.swap(true, Relaxed)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Closes the events, unless they are closed.
    pub(crate) fn close_events(&self) {
        let own = self.is_of_this_process();
        if own {
            // A forked child may have the descriptors, too, which would keep the events on the PMU.
            // The child itself must not disable them: they belong to the parent.
            let _ = self.slots[0].descriptor.disable();
        }
        let [leader, others @ ..] = &self.slots;
        for slot in others.iter().rev() {
            slot.descriptor.close();
        }
        if own {
            // Disables again: a thread may have resumed the session before it saw `closed`.
            let _ = leader.descriptor.disable();
        }
        leader.descriptor.close();
        let page = self.page.swap(0, Relaxed);
        // A child does not inherit the page at a fork.
        if page != 0 && own {
            // SAFETY: `map_page` mapped it, the swap gives it to one caller, and it is never read.
            unsafe { sys::unmap_page(page) };
        }
    }
}

/// A lock that is held for a few loads. A handler that has interrupted the holder proceeds without
/// the lock.
struct Locked<'a>(Option<&'a AtomicI32>);

impl<'a> Locked<'a> {
    fn lock(lock: &'a AtomicI32) -> Self {
        let thread = sys::thread_id();
        loop {
            match lock.compare_exchange(0, thread, Acquire, Relaxed) {
                Ok(_) => return Self(Some(lock)),
                Err(holder) if holder == thread => return Self(None),
                Err(_) => sys::sleep_shortly(),
            }
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if let Some(lock) = self.0 {
            lock.store(0, Release);
        }
    }
}
