// SPDX-License-Identifier: MIT OR Apache-2.0
//! A session: the EBBs of a thread in one object, from opening an event by name to closing it.

use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::mem::MaybeUninit;
use core::ops::Deref;
use core::sync::atomic::Ordering::Relaxed;

use crate::attached;
use crate::config;
use crate::config::Ifm;
use crate::context::Call;
use crate::context::EbbContext;
use crate::context::call;
use crate::context::data_of;
use crate::control;
use crate::error::Error;
use crate::events;
use crate::events::Code;
use crate::period;
use crate::pmc::Pmc;
use crate::reference::Ref;
use crate::save::Save;
use crate::shared;
use crate::shared::Shared;
use crate::thread;

/// A handler with the signature that C uses. The second argument was passed to
/// [`Session::start_raw`].
pub type RawHandler = extern "C" fn(&mut EbbContext<'_>, *mut c_void);

/// The EBBs of the thread that opened it: an event or a group of up to six, and a handler.
///
/// Only that thread may call [`start`](Self::start) and what handlers call. Any thread may pause,
/// resume, query and close the session. Dropping it closes it. EBBs are turned off when the thread
/// ends.
///
/// The [crate] has an example.
#[repr(transparent)]
pub struct Session(pub(crate) Ref);

impl Session {
    /// Opens the event `name`, with an EBB every `period` counts. The [list](crate::events) shows
    /// how events are named.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchEvent`], [`Error::Period`], or [`Error::System`] if the kernel refuses.
    pub fn open(name: &str, period: u64) -> Result<Self, Error> {
        Self::open_with(name, period, None)
    }

    /// Opens the event `name` like [`open`](Self::open), and records `branches` in the BHRB.
    ///
    /// # Errors
    ///
    /// The errors of [`open`](Self::open).
    pub fn open_with(name: &str, period: u64, branches: Option<Ifm>) -> Result<Self, Error> {
        if !control::supported() {
            return Err(Error::NoEbb);
        }
        let session = Self(Ref::new(Shared::new(branches.map_or(0, config::bhrb))?)?);
        session.add(name, period)?;
        session.0.map_page();
        Ok(session)
    }

    /// Adds an event to the session, on a counter of its own, and returns its number. With a
    /// `period` of 0 it causes no EBBs and only counts, modulo 2^31.
    ///
    /// # Errors
    ///
    /// The errors of [`open`](Self::open); [`Error::WrongThread`] on another thread;
    /// [`Error::Started`] after [`start`](Self::start).
    pub fn add(&self, name: &str, period: u64) -> Result<usize, Error> {
        self.0.check_thread()?;
        if self.0.is_started() {
            return Err(Error::Started);
        }
        if period > 1 << 63 {
            return Err(Error::Period);
        }
        let n = self.0.events().count();
        let leader = self.0.events().next().map(|slot| &slot.descriptor);
        let mut refused = None;
        for &code in events::find(name)?.codes() {
            let free = Pmc::of_event(code.config).filter(|&pmc| self.0.find(pmc).is_none());
            let (Some(pmc), Some(slot)) = (free, self.0.slots.get(n)) else {
                continue;
            };
            match (slot.descriptor).open(self.config(code), code.config1, leader) {
                Ok(()) => {
                    slot.period.store(period);
                    if code.config & config::MARKED != 0 {
                        self.0.marked.store(true, Relaxed);
                    }
                    slot.pmc.store(pmc as u64);
                    // A signal handler may have closed the session's events before this one was
                    // stored.
                    (self.0.check_process()).inspect_err(|_| slot.descriptor.close())?;
                    return Ok(n);
                }
                Err(errno) => refused = Some(errno),
            }
        }
        Err(Error::System {
            what: "perf_event_open",
            errno: refused.unwrap_or(libc::EINVAL),
            rule: match refused {
                None => Some("the counter does not exist, or another event has it"),
                Some(libc::EINVAL) => {
                    Some("this CPU lacks the event code, or cannot count it with the others")
                }
                Some(libc::EACCES | libc::EPERM) => {
                    Some("kernel.perf_event_paranoid or a seccomp filter forbids it")
                }
                Some(libc::EOPNOTSUPP) => Some("this machine cannot record branches"),
                Some(_) => None,
            },
        })
    }

    /// Returns the code with the bits that all events of the group share.
    fn config(&self, code: Code) -> u64 {
        code.config | config::EBB | self.0.branches
    }

    /// Returns the counter of event `n`.
    #[must_use]
    pub fn pmc(&self, n: usize) -> Option<Pmc> {
        self.0.events().nth(n)?.pmc()
    }

    /// Sets the period of event `n`, and by how many counts each period may be longer or shorter at
    /// random.
    ///
    /// In a session that has started, only its own thread may call this, also in the handler. The
    /// new period begins when the current one ends with the counter's next overflow, after 2^31
    /// counts at most.
    ///
    /// # Errors
    ///
    /// [`Error::Period`] for the values that [`set_period_jitter`](crate::set_period_jitter)
    /// refuses, [`Error::NoSuchNumber`] if there is no event `n`, [`Error::WrongThread`].
    pub fn set_period(&self, n: usize, period: u64, jitter: u64) -> Result<(), Error> {
        let slot = self.0.events().nth(n).ok_or(Error::NoSuchNumber)?;
        if !(1..=1 << 63).contains(&period) || jitter >= period {
            return Err(Error::Period);
        }
        if self.0.is_started() && !self.0.is_of_this_thread() {
            return Err(Error::WrongThread);
        }
        slot.period.store(period);
        slot.jitter.store(jitter);
        match slot.pmc() {
            Some(pmc) if self.0.is_started() => {
                thread::with(|t| period::set(t, pmc, period, jitter));
            }
            _ => {}
        }
        Ok(())
    }

    /// Installs `handler`, a function or a closure that captures one reference, starts the counters
    /// and turns EBBs on.
    ///
    /// # Errors
    ///
    /// The errors of [`install_saving`](crate::install_saving); [`Error::NotScheduled`], after
    /// which [`resume`](Self::resume) tries again; [`Error::WrongThread`], [`Error::InUse`].
    ///
    /// # Safety
    ///
    /// `handler` meets the requirements of [`install_saving`](crate::install_saving).
    pub unsafe fn start<F>(&self, save: Save, handler: F) -> Result<(), Error>
    where
        F: Fn(&mut EbbContext<'_>) + Copy + 'static,
    {
        // SAFETY: The caller guarantees what is required of the handler.
        unsafe { self.start_call(save, call::<F>, data_of(handler)) }
    }

    /// Starts the session like [`start`](Self::start) with a function that has the signature of C;
    /// `user` is its second argument.
    ///
    /// # Errors
    ///
    /// The errors of [`start`](Self::start).
    ///
    /// # Safety
    ///
    /// `handler` meets the requirements of [`start`](Self::start) and may rely on valid pointers.
    /// The data at `user` lives until the thread has closed the session or ended. It may be a
    /// thread-local variable with a destructor that was created before the thread's first `start`,
    /// or a static one if the thread calls `exit`. A static program must be linked with `-u
    /// __cxa_thread_atexit_impl` for that.
    pub unsafe fn start_raw(
        &self,
        save: Save,
        handler: RawHandler,
        user: *mut c_void,
    ) -> Result<(), Error> {
        // SAFETY: Both function types take two arguments of the size of an address.
        let handler = unsafe { core::mem::transmute::<RawHandler, Call>(handler) };
        // SAFETY: The caller guarantees what is required of the handler and of `user`.
        unsafe { self.start_call(save, handler, data_of(user)) }
    }

    /// Installs `handler` with `data` as its second argument, and starts the counters.
    ///
    /// # Safety
    ///
    /// `handler` meets the requirements of [`start`](Self::start).
    unsafe fn start_call(
        &self,
        save: Save,
        handler: Call,
        data: MaybeUninit<u64>,
    ) -> Result<(), Error> {
        self.0.check_thread()?;
        attached::release_ended();
        if thread::with(|t| t.session.load()) != 0 && !self.0.is_of_this_thread() {
            return Err(Error::InUse);
        }
        // SAFETY: The caller guarantees what is required of the handler.
        unsafe { control::install_call(save, handler, data, self.0.marked.load(Relaxed))? };
        if let Err(error) = attached::attach(&self.0) {
            // Otherwise EBBHR would stay in use by a thread without a session.
            let _ = control::uninstall();
            return Err(error);
        }
        // If a signal handler has closed the session in the meantime, EBBHR must be released.
        (self.0.unpause()).inspect_err(|_| attached::release_ended())?;
        self.load();
        // Also starts the counters.
        control::enable_outside()?;
        self.check_scheduled()
    }

    pub(crate) fn check_scheduled(&self) -> Result<(), Error> {
        match self.0.leader()?.is_scheduled()? {
            true => Ok(()),
            false => Err(Error::NotScheduled),
        }
    }

    /// Returns the counter of event `n`. Valid while EBBs are on or after the handler has requested
    /// [`Rearm::Stop`](crate::Rearm). The counter overflows at [`OVERFLOW`](crate::pmc::OVERFLOW);
    /// one without a period begins at 0.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchNumber`] if there is no event `n`, [`Error::NotInstalled`] before
    /// [`start`](Self::start), [`Error::WrongThread`], [`Error::Paused`],
    /// [`Error::NotScheduled`], or an error of [`pause`](Self::pause).
    pub fn read(&self, n: usize) -> Result<u32, Error> {
        let pmc = self.pmc(n).ok_or(Error::NoSuchNumber)?;
        self.0.check_process()?;
        if !self.0.is_started() {
            return Err(Error::NotInstalled);
        }
        if !self.0.is_of_this_thread() {
            return Err(Error::WrongThread);
        }
        let value = pmc.read_if_there();
        // The value is the event's only if the event is on the PMU afterwards, too: with the
        // kernel's built-in driver a read before ISA v3.1 always returns something.
        let scheduled = self.check_scheduled();
        if self.0.paused() != shared::NOT && !matches!(scheduled, Err(Error::Revoked)) {
            return Err(Error::Paused);
        }
        scheduled.and(value.ok_or(Error::NotScheduled))
    }

    /// Returns the number of EBBs since [`start`](Self::start).
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.count()
    }

    /// Returns the leader's file descriptor for `poll`, which reports POLLERR once the session was
    /// evicted. The session closes it; -1 after that.
    #[must_use]
    pub fn descriptor(&self) -> i32 {
        self.0.slots[0].descriptor.raw()
    }

    /// Moves the events' descriptors to numbers of `least` or above, if there are free ones: a
    /// program that does not expect the session may want the lower ones for its own files.
    #[doc(hidden)]
    pub fn move_descriptors(&self, least: i32) {
        let events = self.0.events();
        events.for_each(|slot| slot.descriptor.move_up(least));
    }

    /// Returns the session as an address, for the C library. The memory stays valid until the
    /// thread that takes the EBBs ends or has noticed that the session was closed.
    #[doc(hidden)]
    #[must_use]
    pub fn into_raw(self) -> *mut c_void {
        ManuallyDrop::new(self).0.as_ptr().cast_mut()
    }

    /// Returns the session with the address `raw`, to use it during a call; `None` once it was
    /// closed.
    ///
    /// # Safety
    ///
    /// `raw` was returned by [`into_raw`](Self::into_raw).
    #[doc(hidden)]
    #[must_use]
    pub unsafe fn hold(raw: *const c_void) -> Option<Held> {
        // SAFETY: The caller guarantees that `raw` is from `into_raw`.
        unsafe { Ref::find(raw) }.map(Held)
    }

    /// Returns whether the session was closed. Only code that holds a reference can find that out.
    #[doc(hidden)]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Closes the session with the address `raw`, unless it was closed before.
    ///
    /// # Safety
    ///
    /// `raw` was returned by [`into_raw`](Self::into_raw).
    #[doc(hidden)]
    pub unsafe fn close_raw(raw: *const c_void) {
        // SAFETY: The caller guarantees that `raw` is from `into_raw`.
        let Some(held) = (unsafe { Self::hold(raw) }) else {
            return;
        };
        if held.end() {
            // SAFETY: `end` returns `true` only once, so the reference of `into_raw` is taken back
            // once.
            drop(unsafe { Ref::from_raw(raw) });
        }
    }

    /// Turns EBBs off and closes the events, on any thread. Dropping the session does the same. If
    /// another thread than the session's calls this, a handler that has just begun may still run to
    /// its end afterwards.
    pub fn close(self) {
        drop(self);
    }

    /// Closes the session. Returns whether this call was the first to do so. Each call completes
    /// what remains to be done: a signal handler may have interrupted the first one, and EBBs must
    /// be off when it returns.
    fn end(&self) -> bool {
        let first = self.0.begin_close();
        if self.0.is_of_this_thread() {
            // Fails if EBBHR belongs to other code by now, which must keep it.
            let _ = control::uninstall();
        }
        self.0.close_events();
        attached::release_ended();
        first
    }
}

/// A session that a call of the C library holds: its memory stays valid if a signal handler closes
/// it.
#[doc(hidden)]
pub struct Held(Ref);

impl Deref for Held {
    type Target = Session;

    fn deref(&self) -> &Session {
        // SAFETY: A `Session` is a transparent `Ref`, and a reference does not run its drop.
        unsafe { &*(&raw const self.0).cast::<Session>() }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}
