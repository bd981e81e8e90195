// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a session is doing, and who has it stop and go on.

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

/// What a session is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// [`Session::start`] was not called yet, or a signal has interrupted it.
    Idle,
    /// EBBs come.
    Running,
    /// They were paused, or the handler has asked for [`Rearm::Stop`](crate::Rearm).
    Paused,
    /// The kernel has given the PMU to another pinned event. [`Session::resume`] asks for it
    /// again. Or for good to another driver: then that fails with [`Error::Revoked`].
    Evicted,
    /// EBBHR holds an address that this copy of the library has not put there.
    Foreign,
    /// This is the child of a fork, which has no EBBs.
    Gone,
    /// The session's thread has ended.
    Ended,
}

impl Session {
    /// Stops events and EBBs, from any thread. The counters keep what they have. A handler that
    /// runs, of another thread, comes to its end.
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
                // A signal's handler may have resumed it before that.
                match self.0.paused() {
                    shared::NOT => self.0.pause(shared::BY_OWNER),
                    _ => Ok(()),
                }
            }
            false => self.0.pause(shared::BY_OTHER),
        }
    }

    /// Goes on after [`pause`](Self::pause), after [`Rearm::Stop`](crate::Rearm), or after an
    /// eviction.
    ///
    /// # Errors
    ///
    /// [`Error::NotScheduled`] if another pinned event still holds the PMU, and
    /// [`Error::ResumeByOwner`] on another thread than the session's, if that one has paused the
    /// session itself or lost the PMU in the middle of a handler. [`Error::NotInstalled`] before
    /// [`start`](Self::start), else as [`pause`](Self::pause).
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
        // Where GE is on there is nothing to enable: that would undo what the handler of an EBB has
        // asked for that came since.
        let enable = || match own && !stuck && !Bescr::read().has(Bescr::GE) {
            true => control::enable(),
            false => Ok(()),
        };
        // First, so that an alert finds EBBs on.
        enable()?;
        let unpaused = self.0.unpause();
        if own && matches!(unpaused, Err(Error::Revoked)) {
            // No EBB comes any more, and EBBs are as after `pause`.
            control::disable();
        }
        unpaused?;
        // A signal's handler may have paused the session between the two, which is over now.
        if self.0.paused() == shared::NOT {
            enable()?;
        }
        self.check_scheduled()?;
        // An EBB may have come meanwhile. If its handler has asked for Rearm::Stop, that holds; if
        // it has lost the PMU, the counters have to be set going.
        let lost = |t: &Thread| t.evicted.load() != 0 && t.rearm.load() & 1 != 0;
        match own {
            true if stuck || thread::with(lost) => {
                if !self.0.is_loaded() {
                    self.load();
                }
                // By this `control::resume` looks for an EBB in progress, and the next call does
                // all again, should a signal's handler leave this one by a jump. `rearm` stays until
                // EBBs are on.
                thread::with(Thread::note_active);
                control::evicted();
                control::resume()
            }
            false if self.0.is_stuck(progress::may_be_left)? => Err(Error::ResumeByOwner),
            _ => Ok(()),
        }
    }

    /// Gives the counters their first values, if the PMU is there. They stand until they are set
    /// going.
    pub(crate) fn load(&self) {
        thread::with(|t| {
            for slot in self.0.events() {
                let Some(pmc) = slot.pmc() else { continue };
                match slot.period.load() {
                    0 => period::count_only(t, pmc),
                    period => period::set(t, pmc, period, slot.jitter.load()),
                }
            }
            // Of these two each counts beside the other.
            for (one, other) in [(Pmc::Pmc5, Pmc::Pmc6), (Pmc::Pmc6, Pmc::Pmc5)] {
                if self.0.find(one).is_some() && self.0.find(other).is_none() {
                    period::ignore(t, other);
                }
            }
            Mmcr0::FC.write_always();
            // For `enable` to set them going. While `evicted` still tells the next `resume` of a session
            // that had no PMU: a signal's handler may leave this by a jump.
            t.note_active();
            t.evicted.store(0);
            for pmc in Pmc::ALL {
                period::begin(t, pmc);
            }
            // Again: a signal's handler may have resumed the session, and an EBB's stopped it.
            t.note_active();
            // Not to be taken for what an eviction in a handler leaves.
            t.reset_rearm();
            self.0.set_loaded(t.evicted.load() == 0);
        });
    }

    /// What the session is doing.
    #[must_use]
    pub fn state(&self) -> State {
        let state = self.state_unless_closed();
        // A signal's handler or another thread may have closed it meanwhile.
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
