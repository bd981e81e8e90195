// SPDX-License-Identifier: GPL-2.0
//! Processes that share a CPU with the test, each of which takes EBBs but has no
//! reason for one: what comes is somebody else's.

use crate::alert;
use crate::session;
use ebb::Attr;
use ebb::Pmc;
use ebb::pmc;
use ebb::reg::Bescr;
use ktap::Failure;
use ktap::OrFail;
use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use ktap::process::Peer;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

static STOP: AtomicBool = AtomicBool::new(false);

/// Whether a neighbour that is started turns GE off and on.
static GUARDING: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: libc::c_int) {
    STOP.store(true, Relaxed);
}

/// A process that works until it is told to stop.
pub struct Neighbour {
    peer: Peer,
}

impl Neighbour {
    /// One without events.
    ///
    /// # Errors
    ///
    /// A failure of the test.
    pub fn plain(cpu: usize) -> Result<Self, Failure> {
        Self::spawn(cpu, || Ok(None))
    }

    /// One that counts, without EBB.
    ///
    /// # Errors
    ///
    /// A failure of the test.
    pub fn counting(cpu: usize) -> Result<Self, Failure> {
        Self::spawn(cpu, || {
            let event = Attr::raw(session::CYCLES)
                .user_only()
                .open()
                .or_fail("open")?;
            event.enable().or_fail("enable")?;
            Ok(Some(event))
        })
    }

    /// One with GE and PME on and a counter far from its overflow.
    ///
    /// # Errors
    ///
    /// A failure of the test.
    pub fn expecting(cpu: usize) -> Result<Self, Failure> {
        Self::spawn(cpu, || {
            let event = alert::begin(ebb::reg::Bescr(0))?;
            alert::on();
            Ok(Some(event))
        })
    }

    /// Like [`expecting`](Self::expecting), but it turns GE off and on all the
    /// time, so that the other may come and go in either.
    ///
    /// # Errors
    ///
    /// A failure of the test.
    pub fn guarding(cpu: usize) -> Result<Self, Failure> {
        GUARDING.store(true, Relaxed);
        let neighbour = Self::expecting(cpu);
        GUARDING.store(false, Relaxed);
        neighbour
    }

    fn spawn(
        cpu: usize,
        begin: fn() -> Result<Option<ebb::Event>, Failure>,
    ) -> Result<Self, Failure> {
        let mut peer = Peer::spawn(|parent| {
            cpu::pin_to(cpu)?;
            // SAFETY: the signal handler stores to an atomic.
            unsafe { libc::signal(libc::SIGTERM, stop as *const () as usize) };
            let event = begin()?;
            parent.tell()?;
            while !STOP.load(Relaxed) {
                if GUARDING.load(Relaxed) {
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
            let (came, spurious) = (ebb::count(), ebb::spurious());
            check!(
                came + spurious == 0,
                "{came} EBBs of somebody else, {spurious} spurious"
            );
            if let Some(event) = event {
                event.check_scheduled().or_fail("neighbour, at the end")?;
                session::end(event);
            }
            Ok(())
        })?;
        peer.listen()?;
        Ok(Self { peer })
    }

    /// Stops it.
    ///
    /// # Errors
    ///
    /// A failure of the test if an EBB came to it.
    pub fn join(self) -> Outcome {
        // SAFETY: our own child, which we have not waited for.
        unsafe { libc::kill(self.peer.pid(), libc::SIGTERM) };
        self.peer.join()
    }
}
