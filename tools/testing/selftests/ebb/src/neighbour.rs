// SPDX-License-Identifier: GPL-2.0
//! Processes that share a CPU with the test. A [`Neighbour`] takes EBBs but has no reason for one:
//! what comes is somebody else's. A [`Pinned`] takes the PMU away.

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

/// What a neighbour has of the PMU.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No event.
    Plain,
    /// One that counts, without EBB.
    Counting,
    /// An EBB event with GE and PME on and a counter far from its overflow.
    Expecting,
    /// The same, but it turns GE off and on all the time, so that the other may
    /// come and go in either.
    Guarding,
}

/// A process that works until it is told to stop.
pub struct Neighbour(Peer);

impl Neighbour {
    /// Starts one on `cpu`.
    pub fn spawn(cpu: usize, kind: Kind) -> Result<Self, Failure> {
        let mut peer = Peer::spawn(|parent| {
            cpu::pin_to(cpu)?;
            // SAFETY: the signal handler stores to an atomic.
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
                // Never its own overflow, after two seconds of work.
                if Bescr::read().has(Bescr::PME) && Pmc::Pmc1.read() > pmc::OVERFLOW / 2 {
                    Pmc::Pmc1.write(0);
                }
            }
            let came = ebb::count();
            check!(came == 0, "{came} EBBs of somebody else");
            event.map_or(Ok(()), alert::end)
        })?;
        peer.listen()?;
        Ok(Self(peer))
    }

    /// Stops it; fails if an EBB came to it.
    pub fn join(self) -> Outcome {
        // SAFETY: our own child, which we have not waited for.
        unsafe { libc::kill(self.0.pid(), libc::SIGTERM) };
        self.0.join()
    }
}

/// A process with a pinned event of the CPU on which the caller is and then stays. It has the PMU
/// from the caller's next switch on.
pub struct Pinned(Peer);

impl Pinned {
    /// Starts one.
    pub fn here() -> Result<Self, Failure> {
        cpu::pin()?;
        let here = cpu::current()?;
        let mut peer = Peer::spawn(|parent| {
            let event = session::schedule(&Attr::raw(session::CYCLES).pinned(true).on_cpu(here))?;
            parent.tell()?;
            parent.listen()?;
            event.close();
            Ok(())
        })?;
        peer.listen()?;
        Ok(Self(peer))
    }

    /// Has it close the event.
    pub fn close(self) -> Outcome {
        self.0.tell_and_join()
    }
}
