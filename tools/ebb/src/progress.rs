// SPDX-License-Identifier: MIT OR Apache-2.0
//! Determines whether the calling code runs on top of an EBB handler, and how far that EBB is.
//!
//! A handler may call the library, and so may a signal handler that interrupted it, on any stack.
//! All of them have the entry's [`Link`] in their chain of frames, because the kernel chains a
//! signal's frame to the interrupted one. Code that was reached by longjmp() out of the handler has
//! no such frame.
//!
//! A signal may also interrupt the entry itself: before the `Link` exists, after the handler
//! returned, or at `rfebb`, which has no frame any more. So the walk also looks at the address in
//! each signal's frame. If the entry has already read [`Thread::rearm`], it is sent back to read it
//! again. What it must not do is reload the counters twice:
//!
//! * After the reloading, `rearm` is [`Rearm::Restart`] if the counters were reloaded, and also if
//!   the handler requested [`Rearm::Keep`], which is for one EBB. It is changed to `Keep`, which
//!   leaves the counters as they are.
//! * If the counters run already, one may have overflowed during the signal handler, so they are
//!   reloaded.
//! * An EBB that `disable` stopped has not reloaded them, so it does if a signal handler enables
//!   EBBs again.

use core::ptr;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::context::Rearm;
use crate::entry;
use crate::frame::Frame;
use crate::frame::FullFrame;
use crate::frame::GprFrame;
use crate::frame::Link;
use crate::frame::RED_ZONE;
use crate::owner;
use crate::owner::Owner;
use crate::reg::Bescr;
use crate::spr;
use crate::thread::Thread;

/// The remaining work of an EBB in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// No EBB is in progress, but a handler may have been left by longjmp().
    None,
    /// The entry will still act on `Thread::rearm`.
    Handler,
    /// Only `rfebb`, which sets GE, remains.
    Returning,
}

/// Distance from the frame that called a signal handler to the kernel's `struct ucontext`
/// (`__SIGNAL_FRAMESIZE`), and the offsets in that of the registers' address and the registers
/// (uapi/asm/ucontext.h, sigcontext.h), which the libc crate does not describe.
const SIGNAL_FRAME: u64 = 128;
pub(crate) const REGS_OFFSET: usize = 168 + 56;
const GP_REGS: u64 = 168 + 64;
/// Index of the next instruction's address in the registers (uapi/asm/ptrace.h).
pub(crate) const PT_NIP: usize = 32;

/// Upper bound of the vDSO's size.
const VDSO_SIZE: u64 = 0x1_0000;
/// The code that a signal handler returns to: `addi 1,1,128`, `li 0,__NR_rt_sigreturn`, `sc`.
const TRAMPOLINE: [u32; 3] = [0x3821_0080, 0x3800_00ac, 0x4400_0002];

/// Address of the vDSO, stored when a handler is installed, because handlers must not call the C
/// library.
static VDSO: AtomicU64 = AtomicU64::new(0);

/// Stores the vDSO's address, with which the frames of signals are recognised.
pub(crate) fn find_vdso() {
    // SAFETY: getauxval() only reads the auxiliary vector.
    VDSO.store(unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) }, Relaxed);
}

/// The bit that Rearm::Stop and Rearm::Keep have in common: the counters are not reloaded.
const NOT_RELOADED: u64 = Rearm::Stop as u64 & Rearm::Keep as u64;

/// Returns how far the EBB of this thread is. `bescr` is the thread's BESCR.
pub(crate) fn of(t: &Thread, bescr: Bescr) -> Progress {
    // Near the end of the entry, this is the only sign of an EBB with Rearm::Stop.
    let stopped = t.rearm.load() & NOT_RELOADED != 0;
    if bescr.has(Bescr::GE) || !(stopped || may_be_left(t, bescr)) {
        return Progress::None;
    }
    look_down(t, bescr)
}

/// Returns whether a handler was left by longjmp(), provided that none is in progress. A handler
/// that was left inside the entry leaves GE off but PME on, whereas `disable` turns both off.
pub(crate) fn may_be_left(t: &Thread, bescr: Bescr) -> bool {
    let unfinished = bescr.has(Bescr::PMEO) || bescr.has(Bescr::PME);
    t.active.load() != 0 || unfinished && !bescr.has(Bescr::GE)
}

/// Returns whether a handler was left by longjmp().
pub(crate) fn is_left(t: &Thread, bescr: Bescr) -> bool {
    may_be_left(t, bescr) && of(t, bescr) == Progress::None
}

/// Follows the frames of this thread to an entry.
fn look_down(t: &Thread, bescr: Bescr) -> Progress {
    let mut frame: u64;
    // SAFETY: Only reads r1.
    unsafe {
        core::arch::asm!("mr {}, 1", out(reg) frame,
            options(nomem, nostack, preserves_flags));
    }
    // SAFETY: Problem state can always read EBBRR.
    let ebbrr = unsafe { spr::read::<{ spr::EBBRR }>() };
    let vdso = VDSO.load(Relaxed);
    let entrys_frame = t.active.load();
    // This copy does not know the frame of a handler that another copy of the library has called,
    // and its own `active` may be stale. If such a handler closes its session, EBBHR is 0: then
    // `install` is refused until the EBB has ended. Its end clears PMEO, and so does `disable`.
    let in_another_copys = bescr.has(Bescr::PMEO) && owner::owner() != Owner::Library;
    let mut of_signal = false;
    loop {
        // SAFETY: The ABI requires r1 to point at a frame, whose first word is the address of the
        // next frame, or 0 in the last one.
        let next = unsafe { ptr::with_exposed_provenance::<u64>(frame as usize).read_volatile() };
        // Each frame is above the previous one; only a signal's frame may lead to another stack.
        if next == 0 || !next.is_multiple_of(8) || next <= frame && !of_signal {
            return Progress::None;
        }
        frame = next;
        // SAFETY: Every frame begins with a header of this size.
        let link = unsafe { ptr::with_exposed_provenance::<Link>(frame as usize).read_volatile() };
        let distance = (size_of::<Link>() + RED_ZONE) as u64;
        // A function's frame may look like a `Link`, if it has the same size and the last EBB
        // interrupted that function exactly where this call returns to; hence the other conditions.
        if (in_another_copys || is_above(frame, entrys_frame))
            && link.nip == ebbrr
            && link.back_chain == frame + distance
        {
            return Progress::Handler;
        }
        // A frame's header holds the return address of the function below it, at the same offset.
        of_signal = is_trampoline(vdso, link.nip);
        if of_signal {
            // SAFETY: The return address shows that a signal's frame was at this place.
            let progress = unsafe { interrupted(t, frame, link.back_chain) };
            if let Some(progress) = progress {
                return progress;
            }
        }
    }
}

/// Returns whether `link` is at the distance from an entry's frame at which its [`Link`] is.
fn is_above(link: u64, entrys_frame: u64) -> bool {
    let size = link.wrapping_sub(entrys_frame) as usize;
    [
        size_of::<Frame>(),
        size_of::<GprFrame>(),
        size_of::<FullFrame>(),
    ]
    .contains(&size)
}

/// Returns whether `address` is the code that signal handlers return to.
fn is_trampoline(vdso: u64, address: u64) -> bool {
    if vdso == 0 || address.wrapping_sub(vdso) >= VDSO_SIZE || !address.is_multiple_of(4) {
        return false;
    }
    let code = ptr::with_exposed_provenance::<[u32; 3]>(address as usize);
    // SAFETY: A return address inside the vDSO's range is in the vDSO, so code is mapped there.
    unsafe { code.read() == TRAMPOLINE }
}

/// Returns how far an entry is that a signal has interrupted, or `None` if the signal has not
/// interrupted an entry. The signal handler was called from `frame`, chained to `back_chain`.
///
/// # Safety
///
/// `frame` is or was a signal's frame, perhaps that of an earlier signal.
unsafe fn interrupted(t: &Thread, frame: u64, back_chain: u64) -> Option<Progress> {
    let context = frame + SIGNAL_FRAME;
    let regs = context + GP_REGS;
    let place = ptr::with_exposed_provenance::<u64>(context as usize + REGS_OFFSET);
    let regs_of_context = ptr::with_exposed_provenance_mut::<u64>(regs as usize);
    // SAFETY: The caller guarantees that a signal's frame is or was here, so the memory is mapped.
    let (address, r1) = unsafe {
        (
            place.read_volatile(),
            regs_of_context.add(1).read_volatile(),
        )
    };
    if address != regs || r1 != back_chain {
        return None;
    }
    // SAFETY: The checks above show that these are the registers that the kernel restores.
    let nip = unsafe { &mut *regs_of_context.add(PT_NIP) };
    let (entry, places) = entry::at(*nip)?;
    let offset = *nip - entry;
    if offset == places.rfebb {
        return Some(Progress::Returning);
    }
    if (places.abort..places.abort_end).contains(&offset) {
        return Some(Progress::Handler);
    }
    let counters_run = (places.counters_run..places.rfebb).contains(&offset);
    let reloaded = t.rearm.load() == Rearm::Restart as u64;
    if reloaded && offset >= places.reloaded && !counters_run {
        t.set_rearm(Rearm::Keep as u64);
    }
    if offset >= places.way_back {
        *nip = entry + places.way_back;
        // The entry may already have stored the address there at which the program continues. A
        // signal in the reload routine finds its frame by the interrupted address.
        // SAFETY: r1 is that of the entry, whose frame leads to its `Link`.
        unsafe {
            let link = ptr::with_exposed_provenance::<u64>(r1 as usize).read_volatile();
            let link = ptr::with_exposed_provenance::<Link>(link as usize).read_volatile();
            spr::write::<{ spr::EBBRR }>(link.nip);
        }
        // The entry may have cleared it already, and a signal in the reload routine needs it.
        t.active.store(r1);
    }
    Some(Progress::Handler)
}
