// SPDX-License-Identifier: GPL-2.0
//! From the entry to the program's handler: per-thread state, what a handler
//! sees, and how the counters are armed again afterwards.
//!
//! BESCR is always written whole, never through its set and reset registers
//! (BESCRS, BESCRR): QEMU up to 11 keeps those as separate registers without
//! effect. Whole writes are sound: outside the handler they do not depend on
//! the old value, inside it GE is off and nobody else changes BESCR.

use crate::entry::Frame;
use crate::entry::ebb_entry;
use crate::error::Error;
use crate::pmc::OVERFLOW;
use crate::pmc::Pmc;
use crate::reg::Bescr;
use crate::reg::Mmcr0;
use crate::spr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// A program's handler. It runs like a signal handler, on the interrupted
/// thread's stack; see [`install`] for what it may do.
pub type Handler = fn(&mut EbbContext<'_>);

/// How the performance monitor goes on after a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rearm {
    /// Reload the counters that overflowed, with 0 if they have no period, and
    /// count on.
    Restart,
    /// Count on with the counters as the handler left them. One that is still
    /// negative raises the next EBB at once.
    Keep,
    /// Leave the counters frozen and PME off: no EBB comes until
    /// [`enable`] and [`pmc::unfreeze`](crate::pmc::unfreeze).
    Stop,
}

/// What a thread needs for its EBBs. Const-initialised and without destructor,
/// so that the compiler makes it a plain thread-local variable, reached from
/// r13 without a call, a lock or an allocation. Atomics, because the handler
/// changes it between any two instructions of the program.
struct Thread {
    handler: AtomicUsize,
    period: [AtomicU32; 6],
    ebbs: AtomicU64,
    spurious: AtomicU64,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            handler: AtomicUsize::new(0),
            period: [const { AtomicU32::new(0) }; 6],
            ebbs: AtomicU64::new(0),
            spurious: AtomicU64::new(0),
        }
    };
}

/// One event-based branch, as its handler sees it.
pub struct EbbContext<'a> {
    frame: &'a Frame,
    interrupted: u64,
    value: [u32; 6],
    number: u64,
    rearm: Rearm,
}

impl EbbContext<'_> {
    /// Address of the instruction the program goes on with (EBBRR).
    #[must_use]
    pub fn interrupted(&self) -> u64 {
        self.interrupted
    }

    /// The interrupted code's stack pointer.
    #[must_use]
    pub fn stack_pointer(&self) -> u64 {
        self.frame.back_chain
    }

    /// The interrupted code's link register.
    #[must_use]
    pub fn link_register(&self) -> u64 {
        self.frame.lr
    }

    /// Number of this EBB on this thread since [`install`], from 1.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether `pmc` was negative when the handler began.
    #[must_use]
    pub fn overflowed(&self, pmc: Pmc) -> bool {
        self.value[pmc.index()] >= OVERFLOW
    }

    /// Value of `pmc` when the handler began.
    #[must_use]
    pub fn value(&self, pmc: Pmc) -> u32 {
        self.value[pmc.index()]
    }

    /// How the performance monitor goes on; [`Rearm::Restart`] if never called.
    pub fn rearm(&mut self, rearm: Rearm) {
        self.rearm = rearm;
    }
}

/// Makes `handler` the handler of this thread's EBBs and points EBBHR at the
/// entry. Statistics and periods start from zero. No EBB comes before
/// [`enable`]. A new thread or process does not inherit any of this.
///
/// # Errors
///
/// [`Error::NoEbb`] if the kernel does not offer EBB on this machine (HWCAP2).
///
/// # Safety
///
/// `handler` runs between any two instructions of this thread, so it must keep
/// to what a signal handler may do: no allocation, no lock, no thread-local
/// variable that is lazily initialised or has a destructor, no state that the
/// interrupted code may be changing unless it is atomic. It must not panic
/// (the program aborts), must not disable or close the EBB event (the way back
/// uses the performance monitor's registers) and must return.
pub unsafe fn install(handler: Handler) -> Result<(), Error> {
    if !supported() {
        return Err(Error::NoEbb);
    }
    disable();
    THREAD.with(|t| {
        t.handler.store(handler as usize, Relaxed);
        t.ebbs.store(0, Relaxed);
        t.spurious.store(0, Relaxed);
        for period in &t.period {
            period.store(0, Relaxed);
        }
    });
    // SAFETY: `ebb_entry` keeps every register of the interrupted code, and
    // finds the handler of this thread in THREAD.
    unsafe { spr::write::<{ spr::EBBHR }>(ebb_entry as *const () as u64) };
    Ok(())
}

/// Whether the kernel offers EBB to programs (`PPC_FEATURE2_EBB` in HWCAP2).
#[must_use]
pub fn supported() -> bool {
    const PPC_FEATURE2_EBB: u64 = 0x1000_0000;
    // SAFETY: getauxval only reads the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & PPC_FEATURE2_EBB != 0 }
}

/// Lets EBBs happen on this thread: BESCR = GE | PME.
///
/// # Errors
///
/// [`Error::NotInstalled`] before [`install`].
pub fn enable() -> Result<(), Error> {
    if THREAD.with(|t| t.handler.load(Relaxed)) == 0 {
        return Err(Error::NotInstalled);
    }
    // SAFETY: `install` has put the entry into this thread's EBBHR.
    unsafe { (Bescr::GE | Bescr::PME).write() };
    Ok(())
}

/// Lets no more EBBs happen on this thread: BESCR = 0. The counters go on.
pub fn disable() {
    // SAFETY: GE is clear.
    unsafe { Bescr::default().write() };
}

/// Sets the period of `pmc` on this thread: [`Rearm::Restart`] loads the
/// counter so that it overflows after `period` counts.
///
/// # Errors
///
/// [`Error::Period`] unless `period` is 1 to 0x8000_0000.
pub fn set_period(pmc: Pmc, period: u32) -> Result<(), Error> {
    if !(1..=OVERFLOW).contains(&period) {
        return Err(Error::Period);
    }
    THREAD.with(|t| t.period[pmc.index()].store(period, Relaxed));
    Ok(())
}

/// [`set_period`], and loads the counter for the first time. SIGILL while no
/// EBB event is scheduled.
///
/// # Errors
///
/// As [`set_period`].
pub fn start(pmc: Pmc, period: u32) -> Result<(), Error> {
    set_period(pmc, period)?;
    pmc.write(Pmc::start_value(period));
    Ok(())
}

/// Number of EBBs this thread has had since [`install`].
#[must_use]
pub fn count() -> u64 {
    THREAD.with(|t| t.ebbs.load(Relaxed))
}

/// Number of branches to the handler that no performance monitor exception
/// explains (BESCR\[PMEO\] clear), since [`install`]. 0 on a sound machine.
#[must_use]
pub fn spurious() -> u64 {
    THREAD.with(|t| t.spurious.load(Relaxed))
}

/// Runs this thread's handler here and now, through the whole entry and the
/// return by `rfebb`, as if a performance monitor EBB had happened. For
/// measuring what an EBB costs. SIGILL while no EBB event is scheduled.
///
/// # Errors
///
/// [`Error::NotInstalled`] before [`install`].
pub fn inject() -> Result<(), Error> {
    if THREAD.with(|t| t.handler.load(Relaxed)) == 0 {
        return Err(Error::NotInstalled);
    }
    // SAFETY: with GE off no real EBB can disturb; EBBRR and BESCR are as the
    // hardware leaves them at a branch, and the entry in EBBHR keeps all
    // registers and returns to label 3 by rfebb.
    unsafe {
        core::arch::asm!(
            "mfspr {t}, 806",
            "clrldi {t}, {t}, 1",
            "ori {t}, {t}, 1",
            "mtspr 806, {t}",
            "bcl 20, 31, 2f",
            "2: mflr {t}",
            "addi {t}, {t}, 3f - 2b",
            "mtspr 805, {t}",
            "mfspr {t}, 804",
            "mtctr {t}",
            "bctr",
            "3:",
            t = out(reg_nonzero) _,
            out("lr") _,
            out("ctr") _,
        );
    }
    Ok(())
}

/// Called by the entry; returns the value it writes to MMCR0.
pub(crate) extern "C" fn ebb_dispatch(frame: &Frame) -> u64 {
    THREAD.with(|t| {
        let mmcr0 = Mmcr0::read();
        let handler = t.handler.load(Relaxed);
        if !Bescr::read().has(Bescr::PMEO) || handler == 0 {
            bump(&t.spurious);
            return mmcr0.0;
        }
        // The overflow freezes the counters on hardware (the kernel sets FCECE).
        // QEMU does so only once; without this a second counter could overflow
        // unseen behind the reading below. PMAE is clear after an overflow, and
        // only a call of `inject` comes with it set: there they shall count on.
        if mmcr0.0 & (Mmcr0::FC | Mmcr0::PMAE).0 == 0 {
            (mmcr0 | Mmcr0::FC).write();
        }
        // SAFETY: `install` stored a `Handler`, and nothing else does.
        let handler = unsafe { core::mem::transmute::<usize, Handler>(handler) };

        let mut context = EbbContext {
            frame,
            // SAFETY: EBBRR is always readable.
            interrupted: unsafe { spr::read::<{ spr::EBBRR }>() },
            value: Pmc::ALL.map(Pmc::read),
            number: bump(&t.ebbs),
            rearm: Rearm::Restart,
        };
        handler(&mut context);
        resume(t, mmcr0, &context)
    })
}

/// Arms the next exception; returns the MMCR0 to go on with.
fn resume(t: &Thread, mmcr0: Mmcr0, context: &EbbContext<'_>) -> u64 {
    if context.rearm == Rearm::Restart {
        for pmc in Pmc::ALL {
            if context.overflowed(pmc) {
                // One that stays negative would raise the next EBB at once.
                let period = t.period[pmc.index()].load(Relaxed);
                pmc.write(if period == 0 {
                    0
                } else {
                    Pmc::start_value(period)
                });
            }
        }
    }
    let mmcr0 = mmcr0.without(Mmcr0::PMAO | Mmcr0::FC | Mmcr0::PMAE);
    let (bescr, mmcr0) = match context.rearm {
        Rearm::Stop => (Bescr::default(), mmcr0 | Mmcr0::FC),
        Rearm::Restart | Rearm::Keep => (Bescr::PME, mmcr0 | Mmcr0::PMAE),
    };
    // SAFETY: GE stays off here; rfebb turns it on with the entry in EBBHR.
    unsafe { bescr.write() };
    mmcr0.0
}

/// Adds one; plain load and store, as only this thread's handler counts.
fn bump(counter: &AtomicU64) -> u64 {
    let value = counter.load(Relaxed) + 1;
    counter.store(value, Relaxed);
    value
}
