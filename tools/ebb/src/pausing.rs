// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pausing, resuming and the state of a session.

use crate::control;
use crate::error::Error;
use crate::owner;
use crate::period;
use crate::pmc::Pmc;
use crate::progress;
use crate::reg::Bescr;
use crate::reg::Mmcr0;
use crate::session::Session;
use crate::shared;
use crate::sys::Descriptor;
use crate::thread;
use crate::thread::Thread;

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// [`Session::start`] was not called yet, or a signal handler has interrupted it.
    Idle,
    /// EBBs occur.
    Running,
    /// The session was paused, or the handler has requested [`Rearm::Stop`](crate::Rearm).
    Paused,
    /// The kernel has given the PMU to another pinned event; [`Session::resume`] requests it again.
    /// Or another driver has taken over the PMU for good; `resume` then fails with
    /// [`Error::Revoked`].
    Evicted,
    /// EBBHR holds an address that this copy of the library did not store there.
    Foreign,
    /// This is the child of a fork, which has no EBBs.
    Gone,
    /// The session's thread has ended.
    Ended,
}

impl Session {
    /// Stops events and EBBs, from any thread. The counters keep their values. A handler that runs
    /// on another thread still completes.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] in the child of a fork, [`Error::Closed`], [`Error::Revoked`].
    pub fn pause(&self) -> Result<(), Error> {
        self.0.check_process()?;
        match self.0.is_of_this_thread() {
            true => {
                let paused = self.0.pause(shared::BY_OWNER);
                if matches!(paused, Ok(()) | Err(Error::Revoked)) {
                    control::disable();
                }
                paused?;
                // A signal handler may have resumed the session before `disable`.
                match self.0.paused() {
                    shared::NOT => self.0.pause(shared::BY_OWNER),
                    _ => Ok(()),
                }
            }
            false => self.0.pause(shared::BY_OTHER),
        }
    }

    /// Continues after [`pause`](Self::pause), after [`Rearm::Stop`](crate::Rearm), or after an
    /// eviction.
    ///
    /// # Errors
    ///
    /// * [`Error::NotScheduled`]: another pinned event still holds the PMU.
    /// * [`Error::ResumeByOwner`]: the caller is not the session's thread, and that thread has
    ///   paused the session itself or lost the PMU inside a handler.
    /// * [`Error::NotInstalled`]: [`start`](Self::start) was not called yet.
    /// * The errors of [`pause`](Self::pause).
    pub fn resume(&self) -> Result<(), Error> {
        self.0.check_process()?;
        if !self.0.is_started() {
            return Err(Error::NotInstalled);
        }
        let own = self.0.is_of_this_thread();
        if own {
            owner::check_installed()?;
        }
        let stuck = self.0.is_stuck(progress::may_be_left)?;
        // If GE is on there is nothing to enable; `enable` would override what the handler of a
        // more recent EBB has requested.
        let enable = || match own && !stuck && !Bescr::read().has(Bescr::GE) {
            true => control::enable(),
            false => Ok(()),
        };
        // Must precede `unpause`, so that EBBs are on when a counter overflows.
        enable()?;
        let unpaused = self.0.unpause();
        if own && matches!(unpaused, Err(Error::Revoked)) {
            // No EBB occurs any more; EBBs are turned off like after `pause`.
            control::disable();
        }
        unpaused?;
        // A signal handler may have paused the session between the two calls; `unpause` has ended
        // that pause, but EBBs are still off.
        if self.0.paused() == shared::NOT {
            enable()?;
        }
        self.check_scheduled()?;
        // An EBB may have occurred in the meantime. If its handler requested Rearm::Stop, that
        // holds; if it lost the PMU, the counters have to be started.
        let lost = |t: &Thread| t.evicted.load() != 0 && t.rearm.load() & 1 != 0;
        match own {
            true if stuck || thread::with(lost) => {
                if !self.0.is_loaded() {
                    self.load();
                }
                // Makes `control::resume` look for an EBB in progress, and the next call repeat all
                // of this in case a signal handler leaves this one by longjmp(). `rearm` is kept
                // until EBBs are on.
                thread::with(Thread::note_active);
                control::evicted();
                control::resume()
            }
            false if self.0.is_stuck(progress::may_be_left)? => Err(Error::ResumeByOwner),
            _ => Ok(()),
        }
    }

    /// Gives the counters their first values, if the thread has the PMU. They are frozen until they
    /// are started.
    pub(crate) fn load(&self) {
        thread::with(|t| {
            for slot in self.0.events() {
                let Some(pmc) = slot.pmc() else { continue };
                match slot.period.load() {
                    0 => period::count_only(t, pmc),
                    period => period::set(t, pmc, period, slot.jitter.load()),
                }
            }
            // PMC5 and PMC6 always count together, even if only one of them has an event.
            for (one, other) in [(Pmc::Pmc5, Pmc::Pmc6), (Pmc::Pmc6, Pmc::Pmc5)] {
                if self.0.find(one).is_some() && self.0.find(other).is_none() {
                    period::ignore(t, other);
                }
            }
            Mmcr0::FC.write_always();
            // Makes `enable` start them. Must precede the store to `evicted`, which still makes the
            // next `resume` load the counters if a signal handler leaves this by longjmp().
            t.note_active();
            t.evicted.store(0);
            for pmc in Pmc::ALL {
                period::begin(t, pmc);
            }
            // Set again: a signal handler may have resumed the session, and an EBB have cleared it.
            t.note_active();
            // Otherwise it would look like an eviction inside a handler.
            t.reset_rearm();
            self.0.set_loaded(t.evicted.load() == 0);
        });
    }

    /// Returns the session's state.
    #[must_use]
    pub fn state(&self) -> State {
        let state = self.state_unless_closed();
        // A signal handler or another thread may have closed the session in the meantime.
        match self.0.check_process() {
            Err(Error::Closed) => State::Ended,
            _ => state,
        }
    }

    fn state_unless_closed(&self) -> State {
        match self.0.check_process() {
            Err(Error::Gone) => return State::Gone,
            Err(_) => return State::Ended,
            Ok(()) if !self.0.is_started() => return State::Idle,
            Ok(()) => {}
        }
        if self.0.is_of_this_thread() {
            match owner::check_installed() {
                Err(Error::Foreign { .. }) => return State::Foreign,
                Err(Error::Gone) => return State::Gone,
                Err(_) => return State::Idle,
                Ok(()) => {}
            }
        }
        let scheduled = self.0.leader().and_then(Descriptor::is_scheduled);
        match (scheduled, self.0.is_stuck(progress::is_left)) {
            (Err(Error::Revoked), Ok(_)) => State::Evicted,
            (_, Err(_)) | (Err(_), _) => State::Ended,
            _ if self.0.paused() != shared::NOT => State::Paused,
            (Ok(false), _) => State::Evicted,
            (Ok(true), Ok(true)) => State::Paused,
            (Ok(true), Ok(false)) => State::Running,
        }
    }
}
