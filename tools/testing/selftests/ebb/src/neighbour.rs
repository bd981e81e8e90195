// SPDX-License-Identifier: GPL-2.0
//! Processes that share a CPU with the test. A [`Neighbour`] can take EBBs but causes none: each
//! one that it gets is foreign. A [`Pinned`] takes the PMU away.

use crate::alert;
use crate::session;
use ebb::Attr;
use ebb::Pmc;
use ebb::pmc;
use ebb::reg::Bescr;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use ktap::process::Peer;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: libc::c_int) {
    STOP.store(true, Relaxed);
}

/// Use that a neighbour makes of the PMU.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No event.
    Plain,
    /// An event that counts, without EBB.
    Counting,
    /// An EBB event with GE and PME on and a counter far from its overflow.
    Expecting,
    /// An EBB event, with GE turned off and on all the time, so that the other task is switched in
    /// and out in both states.
    Guarding,
}

/// A process that works until it is stopped.
pub struct Neighbour(Peer);

impl Neighbour {
    /// Starts a neighbour on `cpu`.
    pub fn spawn(cpu: usize, kind: Kind) -> Result<Self, Failure> {
        let mut peer = Peer::spawn(|parent| {
            cpu::pin_to(cpu)?;
            // SAFETY: The signal handler only stores to an atomic.
            unsafe { libc::signal(libc::SIGTERM, stop as *const () as usize) };
            let event = match kind {
                Kind::Plain => None,
                Kind::Counting => Some(session::schedule(&Attr::raw(session::CYCLES).user_only())?),
                Kind::Expecting | Kind::Guarding => Some(alert::begin(Bescr::GE | Bescr::PME)?),
            };
            parent.tell()?;
            while !STOP.load(Relaxed) {
                if kind == Kind::Guarding {
                    alert::hold();
                    session::work();
                    alert::on();
                }
                session::work();
                // Keep its own counter from overflowing, after two seconds of work.
                if Bescr::read().has(Bescr::PME) && Pmc::Pmc1.read() > pmc::OVERFLOW / 2 {
                    Pmc::Pmc1.write(0);
                }
            }
            let came = ebb::count();
            check!(came == 0, "{came} foreign EBBs");
            event.map_or(Ok(()), alert::end)
        })?;
        peer.listen()?;
        Ok(Self(peer))
    }

    /// Stops the process; fails if it got an EBB.
    pub fn join(self) -> Outcome {
        // SAFETY: The process is our own child, and has not been waited for.
        unsafe { libc::kill(self.0.pid(), libc::SIGTERM) };
        self.0.join()
    }
}

/// A process with a pinned event of the caller's CPU, on which the caller then stays. The event has
/// the PMU from the caller's next task switch on.
pub struct Pinned(Peer);

impl Pinned {
    /// Starts the process. It takes the PMU after `fork` has returned to the caller: in `fork` the C
    /// library blocks SIGILL, so a handler that runs there must not lose the PMU.
    pub fn here() -> Result<Self, Failure> {
        cpu::pin()?;
        let here = cpu::current()?;
        let mut peer = Peer::spawn(|parent| {
            parent.listen()?;
            let event = session::schedule(&Attr::raw(session::CYCLES).pinned(true).on_cpu(here))?;
            parent.tell()?;
            parent.listen()?;
            event.close();
            Ok(())
        })?;
        peer.tell()?;
        peer.listen()?;
        Ok(Self(peer))
    }

    /// Makes the process close its event and end.
    pub fn close(self) -> Outcome {
        self.0.tell_and_join()
    }
}
