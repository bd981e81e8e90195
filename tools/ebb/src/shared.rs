// SPDX-License-Identifier: MIT OR Apache-2.0
//! What several threads share of a session.

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

/// Values of [`Shared::paused`]: by nobody, the session's thread, another thread.
pub(crate) const NOT: u32 = 0;
pub(crate) const BY_OWNER: u32 = 1;
pub(crate) const BY_OTHER: u32 = 2;

/// An event of a session.
pub(crate) struct Slot {
    pub(crate) descriptor: Descriptor,
    /// Number of its counter; 0 if there is no event.
    pub(crate) pmc: Word,
    /// Its period, 0 if it only counts, and by how much each may differ.
    pub(crate) period: Word,
    pub(crate) jitter: Word,
}

impl Slot {
    pub(crate) fn pmc(&self) -> Option<Pmc> {
        // CAST: a counter's number.
        Pmc::new(self.pmc.load() as u8)
    }
}

/// A session as all threads see it.
pub(crate) struct Shared {
    /// The events, the leader first.
    pub(crate) slots: [Slot; 6],
    /// The BHRB's bits of their codes.
    pub(crate) branches: u64,
    /// Whether the code of any has [`MARKED`](crate::config::MARKED).
    pub(crate) marked: AtomicBool,
    process: u64,
    thread: u64,
    /// Address of the leader's page, or 0.
    page: AtomicUsize,
    paused: AtomicU32,
    closed: AtomicBool,
    started: AtomicBool,
    /// Whether the counters have had their first values: not if the PMU was another's then.
    loaded: AtomicBool,
    /// Number of EBBs of the thread that takes them, once it has ended.
    last_count: AtomicU64,
    /// Address of the block of the thread that takes the EBBs, while it lives.
    owner: AtomicUsize,
    /// Id of the thread that looks at that block or takes it away, or 0.
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
        self.paused.load(SeqCst)
    }

    /// Has the events off the PMU, for `by`; the session's thread has the last word.
    pub(crate) fn pause(&self, by: u32) -> Result<(), Error> {
        if by == BY_OWNER {
            self.paused.store(by, SeqCst);
        } else {
            let _ = self.paused.compare_exchange(NOT, by, SeqCst, SeqCst);
        }
        self.settle()
    }

    /// Has them back. Another thread cannot, if the session's own has paused it.
    pub(crate) fn unpause(&self) -> Result<(), Error> {
        if self.is_of_this_thread() {
            self.paused.store(NOT, SeqCst);
        } else if let Err(BY_OWNER) = (self.paused).compare_exchange(BY_OTHER, NOT, SeqCst, SeqCst)
        {
            return Err(Error::ResumeByOwner);
        }
        self.settle()
    }

    /// Does to the events what `paused` says. Several threads may be at it: whoever comes last
    /// finds what he has done, or does it again.
    fn settle(&self) -> Result<(), Error> {
        loop {
            let paused = self.paused();
            let leader = self.leader()?;
            match paused {
                NOT => {
                    leader.enable()?;
                    if self.is_closed() {
                        // Who closes may have turned it off before that.
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

    /// Number of EBBs since the start.
    pub(crate) fn count(&self) -> u64 {
        self.with_thread(|t| t.ebbs.load())
            .unwrap_or_else(|| self.last_count.load(Relaxed))
    }

    /// The calling thread, whose block is `t`, takes the EBBs from here on.
    pub(crate) fn begin(&self, t: &Thread) {
        let locked = Locked::lock(&self.lock);
        let owner = ptr::from_ref(t).expose_provenance();
        self.owner.store(owner, Relaxed);
        drop(locked);
        // Whoever sees it finds the owner, too.
        self.started.store(true, Release);
        // Last: a signal's handler that closes the session has `end` undo all of it, or, before this,
        // leaves it to the code that it has interrupted.
        t.session.store(ptr::from_ref(self).addr() as u64);
    }

    /// It is about to do so no more; tells whether it did.
    pub(crate) fn leave(&self, t: &Thread) -> bool {
        let this = ptr::from_ref(self).addr() as u64;
        t.session.compare_exchange(this, 0).is_ok()
    }

    /// It does so no more. Its EBBs are off.
    pub(crate) fn end(&self, t: &Thread) {
        t.session.store(0);
        // A thread that held it at a fork is not in the child, where nobody would release it.
        let _locked = (self.is_of_this_process()).then(|| Locked::lock(&self.lock));
        self.last_count.store(t.ebbs.load(), Relaxed);
        self.owner.store(0, Relaxed);
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started.load(Acquire)
    }

    /// Whether the calling thread takes its EBBs. No system call: a handler may ask.
    pub(crate) fn is_of_this_thread(&self) -> bool {
        thread::with(|t| t.session.load()) == ptr::from_ref(self).addr() as u64
    }

    fn is_of_this_process(&self) -> bool {
        sys::process() == self.process
    }

    /// Fails in the child of a fork, and once it was closed.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        match self.is_of_this_process() {
            true if self.is_closed() => Err(Error::Closed),
            true => Ok(()),
            false => Err(Error::Gone),
        }
    }

    /// Fails unless this is the thread that has opened it.
    pub(crate) fn check_thread(&self) -> Result<(), Error> {
        self.check_process()?;
        match thread::number() == self.thread {
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
        // As in `end`, and the thread is not there.
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
    /// the handler has asked for it, was left by a jump, or has lost the PMU while it ran; or they
    /// have no first values yet. For the thread itself `is_left` says whether it was left.
    pub(crate) fn is_stuck(&self, is_left: fn(&Thread, Bescr) -> bool) -> Result<bool, Error> {
        let own = self.is_of_this_thread();
        self.with_thread(|t| {
            let stopped = t.rearm.load() & 1 == 0;
            let left = own && (is_left(t, Bescr::read()) || !self.is_loaded());
            stopped || left || t.evicted.load() != 0
        })
        .ok_or(Error::Closed)
    }

    /// Has it closed; tells whether nobody had before.
    pub(crate) fn begin_close(&self) -> bool {
        !self.closed.swap(true, Relaxed)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Closes the events, unless somebody has.
    pub(crate) fn close_events(&self) {
        let own = self.is_of_this_process();
        if own {
            // The child of a fork may have the descriptors, too, and with them the events would stay
            // on the PMU. In the child itself they are not for it to turn off.
            let _ = self.slots[0].descriptor.disable();
        }
        let [leader, others @ ..] = &self.slots;
        for slot in others.iter().rev() {
            slot.descriptor.close();
        }
        if own {
            // Again, for who has it come back and did not see yet that it is closed.
            let _ = leader.descriptor.disable();
        }
        leader.descriptor.close();
        let page = self.page.swap(0, Relaxed);
        // The child of a fork has not inherited the page.
        if page != 0 && own {
            // SAFETY: it is mapped, and nobody looks at it.
            unsafe { sys::unmap_page(page) };
        }
    }
}

/// A lock that is held for some loads. A handler that finds it held by what it has interrupted
/// goes on without.
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
