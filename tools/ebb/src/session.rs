// SPDX-License-Identifier: MIT OR Apache-2.0
//! A session: the EBBs of a thread, from an event by name to its close, in one object.

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

/// A handler as C has it: the second argument is what [`Session::start_raw`] was given.
pub type RawHandler = extern "C" fn(&mut EbbContext<'_>, *mut c_void);

/// The EBBs of the thread that opened it: an event or a group of up to six, and a handler.
///
/// [`start`](Self::start) and what a handler calls belong to that thread; any thread may pause,
/// resume, ask and close. Dropping closes. A thread that ends has its EBBs turned off.
///
/// The [crate] has an example.
#[repr(transparent)]
pub struct Session(pub(crate) Ref);

impl Session {
    /// Opens the event `name`, with an EBB every `period` counts. See the [list](crate::events)
    /// of how an event is named.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchEvent`], [`Error::Period`], and the kernel's refusals.
    pub fn open(name: &str, period: u64) -> Result<Self, Error> {
        Self::open_with(name, period, None)
    }

    /// [`open`](Self::open), with branches recorded in the BHRB.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with(name: &str, period: u64, branches: Option<Ifm>) -> Result<Self, Error> {
        if !control::supported() {
            return Err(Error::NoEbb);
        }
        let session = Self(Ref::new(Shared::new(branches.map_or(0, config::bhrb))?)?);
        session.add(name, period)?;
        session.0.map_page();
        Ok(session)
    }

    /// Opens one more event beside the first, on a counter of its own; with `period` 0 it has
    /// none, and only counts, modulo 2^31. Its number in the session is returned.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), [`Error::WrongThread`] on another thread, and [`Error::Started`]
    /// after [`start`](Self::start).
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
                    // A signal's handler may have closed the others before there was this one.
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
                None => Some("there is no such counter, or another event has it"),
                Some(libc::EINVAL) => Some("this CPU has no such code, or not beside the others"),
                Some(libc::EACCES | libc::EPERM) => {
                    Some("kernel.perf_event_paranoid or a filter of system calls forbids it")
                }
                Some(libc::EOPNOTSUPP) => Some("this machine records no branches"),
                Some(_) => None,
            },
        })
    }

    /// All events of a group have the same filter.
    fn config(&self, code: Code) -> u64 {
        code.config | config::EBB | self.0.branches
    }

    /// The counter of event `n`.
    #[must_use]
    pub fn pmc(&self, n: usize) -> Option<Pmc> {
        self.0.events().nth(n)?.pmc()
    }

    /// Sets the period of event `n` and by how much each may be longer or shorter, by chance. In a
    /// session that has started the period that is under way ends with the counter's next overflow,
    /// after 2^31 counts at most, and then it holds; in its own thread only, also in the handler.
    ///
    /// # Errors
    ///
    /// [`Error::Period`] as [`set_period_jitter`](crate::set_period_jitter),
    /// [`Error::NoSuchNumber`] if there is no event `n`, [`Error::WrongThread`].
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

    /// Installs `handler`, a function or a closure that captures one reference, and lets the events
    /// count and EBBs come.
    ///
    /// # Errors
    ///
    /// As [`install_saving`](crate::install_saving); [`Error::NotScheduled`], after which
    /// [`resume`](Self::resume) tries again; [`Error::WrongThread`], [`Error::InUse`].
    ///
    /// # Safety
    ///
    /// As [`install_saving`](crate::install_saving).
    pub unsafe fn start<F>(&self, save: Save, handler: F) -> Result<(), Error>
    where
        F: Fn(&mut EbbContext<'_>) + Copy + 'static,
    {
        // SAFETY: the caller's contract.
        unsafe { self.start_call(save, call::<F>, data_of(handler)) }
    }

    /// [`start`](Self::start) with a function as C has it, and what it gets as its second
    /// argument.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    ///
    /// # Safety
    ///
    /// As [`start`](Self::start). `handler` gets valid pointers, and what `user` points at lives
    /// until the thread has closed the session or ended. If it was made before the thread's first
    /// `start`, that may be a thread-local variable with a destructor, or a static one if the thread
    /// calls `exit`; in a static program if that is linked with `-u __cxa_thread_atexit_impl`.
    pub unsafe fn start_raw(
        &self,
        save: Save,
        handler: RawHandler,
        user: *mut c_void,
    ) -> Result<(), Error> {
        // SAFETY: both functions take two addresses.
        let handler = unsafe { core::mem::transmute::<RawHandler, Call>(handler) };
        // SAFETY: the caller's contract.
        unsafe { self.start_call(save, handler, data_of(user)) }
    }

    /// # Safety
    ///
    /// As [`start`](Self::start).
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
        // SAFETY: the caller's contract.
        unsafe { control::install_call(save, handler, data, self.0.marked.load(Relaxed))? };
        if let Err(error) = attached::attach(&self.0) {
            // EBBHR stays free for others.
            let _ = control::uninstall();
            return Err(error);
        }
        // If a signal's handler has closed it meanwhile, EBBHR stays free for others.
        (self.0.unpause()).inspect_err(|_| attached::release_ended())?;
        self.load();
        // Sets the counters going, too.
        control::enable_outside()?;
        self.check_scheduled()
    }

    pub(crate) fn check_scheduled(&self) -> Result<(), Error> {
        match self.0.leader()?.is_scheduled()? {
            true => Ok(()),
            false => Err(Error::NotScheduled),
        }
    }

    /// The counter of event `n`, while EBBs come or the handler has asked for
    /// [`Rearm::Stop`](crate::Rearm). It overflows at [`OVERFLOW`](crate::pmc::OVERFLOW); one
    /// without a period begins at 0.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchNumber`] if there is no event `n`, [`Error::NotInstalled`] before
    /// [`start`](Self::start), [`Error::WrongThread`], [`Error::Paused`],
    /// [`Error::NotScheduled`], else as [`pause`](Self::pause).
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
        // What was read is the event's if that is there afterwards, too: with the kernel's
        // built-in driver a read before ISA v3.1 always gives something.
        let scheduled = self.check_scheduled();
        if self.0.paused() != shared::NOT && !matches!(scheduled, Err(Error::Revoked)) {
            return Err(Error::Paused);
        }
        scheduled.and(value.ok_or(Error::NotScheduled))
    }

    /// Number of EBBs since [`start`](Self::start).
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.count()
    }

    /// The leader's descriptor, for `poll`, which reports POLLERR once the session was evicted.
    /// It is the session's to close; -1 once that is done.
    #[must_use]
    pub fn descriptor(&self) -> i32 {
        self.0.slots[0].descriptor.raw()
    }

    /// Moves the events' descriptors to numbers of `least` or above, as far as there are such: a
    /// program that knows of no session may take the lower ones for its own.
    #[doc(hidden)]
    pub fn move_descriptors(&self, least: i32) {
        let events = self.0.events();
        events.for_each(|slot| slot.descriptor.move_up(least));
    }

    /// The session as an address, for the C library. A thread that takes its EBBs keeps what is
    /// there until it ends or has noticed that the session was closed.
    #[doc(hidden)]
    #[must_use]
    pub fn into_raw(self) -> *mut c_void {
        ManuallyDrop::new(self).0.as_ptr().cast_mut()
    }

    /// What [`into_raw`](Self::into_raw) had, for a call; `None` once it was closed.
    ///
    /// # Safety
    ///
    /// `raw` is of that.
    #[doc(hidden)]
    #[must_use]
    pub unsafe fn hold(raw: *const c_void) -> Option<Held> {
        // SAFETY: the caller's contract.
        unsafe { Ref::find(raw) }.map(Held)
    }

    /// Whether it was closed, which only who holds it can see.
    #[doc(hidden)]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Closes what [`into_raw`](Self::into_raw) had, unless it was.
    ///
    /// # Safety
    ///
    /// `raw` is of that.
    #[doc(hidden)]
    pub unsafe fn close_raw(raw: *const c_void) {
        // SAFETY: the caller's contract.
        let Some(held) = (unsafe { Self::hold(raw) }) else {
            return;
        };
        if held.end() {
            // SAFETY: only who begins it comes here, with the reference that `into_raw` has kept.
            drop(unsafe { Ref::from_raw(raw) });
        }
    }

    /// Turns EBBs off and closes the events, on any thread; the same as dropping it, but visible.
    /// On another thread than the session's a handler that has just begun may still come to its
    /// end afterwards.
    pub fn close(self) {
        drop(self);
    }

    /// What a close does; tells whether nobody had begun it. Who comes later does all that is left: a
    /// signal's handler may have interrupted the first, and EBBs are off when it returns.
    fn end(&self) -> bool {
        let first = self.0.begin_close();
        if self.0.is_of_this_thread() {
            // Unless EBBHR is somebody else's by now, which is theirs then.
            let _ = control::uninstall();
        }
        self.0.close_events();
        attached::release_ended();
        first
    }
}

/// A session during a call of the C library: what a signal's handler closes meanwhile stays so long.
#[doc(hidden)]
pub struct Held(Ref);

impl Deref for Held {
    type Target = Session;

    fn deref(&self) -> &Session {
        // SAFETY: a `Session` is a `Ref`, but that its drop closes.
        unsafe { &*(&raw const self.0).cast::<Session>() }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}
