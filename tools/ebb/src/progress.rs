// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a handler is in progress below the code that asks.
//!
//! A handler itself may call the library, and so may a signal's handler that came on top of
//! it, on any stack. All of them have the entry's [`Link`] in their chain of frames, for the
//! kernel chains a signal's frame to the interrupted one. Code that was reached by a jump out
//! of the handler has not.
//!
//! A signal may also come to the entry itself: before the `Link` is there, on the way back, or at
//! `rfebb`, which has no frame any more. So the walk looks at the address in each signal's
//! frame. Where the entry has read [`Thread::rearm`], it is sent back to read it again. Behind the
//! reloading that is [`Rearm::Restart`] if the counters were reloaded, and if the handler has asked
//! for [`Rearm::Keep`], which is for one EBB: it becomes `Keep`, so that they stay as they are. But
//! where they run already, one may have overflowed in the signal's handler, and is reloaded. And an
//! EBB that `disable` has stopped has not reloaded them: if a signal's handler has it go on, it does.

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

/// What an EBB that is in progress has still to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// None is in progress, but one may have been left by a jump.
    None,
    /// The entry will go on as `Thread::rearm` says.
    Handler,
    /// Only `rfebb`, which sets GE.
    Returning,
}

/// Bytes from the frame that a signal's handler was called from to the kernel's `struct ucontext`
/// (`__SIGNAL_FRAMESIZE`), and in that to the registers' address and the registers
/// (uapi/asm/ucontext.h, sigcontext.h), which the libc crate does not describe.
const SIGNAL_FRAME: u64 = 128;
pub(crate) const REGS_OFFSET: usize = 168 + 56;
const GP_REGS: u64 = 168 + 64;
/// Place of the address of the next instruction in the registers (uapi/asm/ptrace.h).
pub(crate) const PT_NIP: usize = 32;

/// More than the vDSO has.
const VDSO_SIZE: u64 = 0x1_0000;
/// What a signal's handler returns to: `addi 1,1,128`, `li 0,__NR_rt_sigreturn`, `sc`.
const TRAMPOLINE: [u32; 3] = [0x3821_0080, 0x3800_00ac, 0x4400_0002];

/// The vDSO's address once a handler was installed: handlers do not call the C library.
static VDSO: AtomicU64 = AtomicU64::new(0);

/// Has the frames of signals be known.
pub(crate) fn find_vdso() {
    // SAFETY: getauxval only reads the auxiliary vector.
    VDSO.store(unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) }, Relaxed);
}

/// What Rearm::Stop and ::Keep have in common.
const NOT_RELOADED: u64 = Rearm::Stop as u64 & Rearm::Keep as u64;

/// How far the EBB of this thread is. `bescr` is the thread's.
pub(crate) fn of(t: &Thread, bescr: Bescr) -> Progress {
    // The entry's last instructions leave nothing but this of Rearm::Stop.
    let stopped = t.rearm.load() & NOT_RELOADED != 0;
    if bescr.has(Bescr::GE) || !(stopped || may_be_left(t, bescr)) {
        return Progress::None;
    }
    look_down(t, bescr)
}

/// Whether a handler was left by a jump, if none is in progress. One that was left in the entry
/// leaves GE off, which `disable` turns off with PME.
pub(crate) fn may_be_left(t: &Thread, bescr: Bescr) -> bool {
    let unfinished = bescr.has(Bescr::PMEO) || bescr.has(Bescr::PME);
    t.active.load() != 0 || unfinished && !bescr.has(Bescr::GE)
}

/// Whether a handler was left by a jump.
pub(crate) fn is_left(t: &Thread, bescr: Bescr) -> bool {
    may_be_left(t, bescr) && of(t, bescr) == Progress::None
}

/// Follows the frames of this thread to an entry.
fn look_down(t: &Thread, bescr: Bescr) -> Progress {
    let mut frame: u64;
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mr {}, 1", out(reg) frame,
            options(nomem, nostack, preserves_flags));
    }
    // SAFETY: EBBRR is always readable.
    let ebbrr = unsafe { spr::read::<{ spr::EBBRR }>() };
    let vdso = VDSO.load(Relaxed);
    let entrys_frame = t.active.load();
    // Of a handler that another copy of the library has called this one knows no frame; `active` may
    // be left of its own. If such a handler closes its session EBBHR is 0: `install` is refused until
    // the EBB has ended. The end clears PMEO, and so does `disable`.
    let in_another_copys = bescr.has(Bescr::PMEO) && owner::owner() != Owner::Library;
    let mut of_signal = false;
    loop {
        // SAFETY: by the ABI r1 points at a frame, whose first word is the address of the
        // next one, or 0 in the last.
        let next = unsafe { ptr::with_exposed_provenance::<u64>(frame as usize).read_volatile() };
        // Each is above the one before. Only from a signal's it may go on to another stack.
        if next == 0 || !next.is_multiple_of(8) || next <= frame && !of_signal {
            return Progress::None;
        }
        frame = next;
        // SAFETY: a frame begins with a header of this size.
        let link = unsafe { ptr::with_exposed_provenance::<Link>(frame as usize).read_volatile() };
        let distance = (size_of::<Link>() + RED_ZONE) as u64;
        // A function's frame may look like a `Link`: one as large, if the last EBB interrupted that
        // function just where this call returns to.
        if (in_another_copys || is_above(frame, entrys_frame))
            && link.nip == ebbrr
            && link.back_chain == frame + distance
        {
            return Progress::Handler;
        }
        // The callee's address to return to is in the same place.
        of_signal = is_trampoline(vdso, link.nip);
        if of_signal {
            // SAFETY: that of a signal's handler, which has stored it here.
            let progress = unsafe { interrupted(t, frame, link.back_chain) };
            if let Some(progress) = progress {
                return progress;
            }
        }
    }
}

/// Whether `link` is where the [`Link`] above an entry's frame would be.
fn is_above(link: u64, entrys_frame: u64) -> bool {
    let size = link.wrapping_sub(entrys_frame) as usize;
    [
        size_of::<Frame>(),
        size_of::<GprFrame>(),
        size_of::<FullFrame>(),
    ]
    .contains(&size)
}

/// Whether `address` is where a signal's handler returns to.
fn is_trampoline(vdso: u64, address: u64) -> bool {
    if vdso == 0 || address.wrapping_sub(vdso) >= VDSO_SIZE || !address.is_multiple_of(4) {
        return false;
    }
    let code = ptr::with_exposed_provenance::<[u32; 3]>(address as usize);
    // SAFETY: nobody returns to, or has the address of, a place in the vDSO that is not there.
    unsafe { code.read() == TRAMPOLINE }
}

/// How far the entry is that the signal has interrupted whose handler was called from `frame`,
/// chained to `back_chain`; `None` if it was no entry.
///
/// # Safety
///
/// `frame` was that of a signal once, perhaps a former one's.
unsafe fn interrupted(t: &Thread, frame: u64, back_chain: u64) -> Option<Progress> {
    let context = frame + SIGNAL_FRAME;
    let regs = context + GP_REGS;
    let place = ptr::with_exposed_provenance::<u64>(context as usize + REGS_OFFSET);
    let regs_of_context = ptr::with_exposed_provenance_mut::<u64>(regs as usize);
    // SAFETY: the caller's contract.
    let (address, r1) = unsafe {
        (
            place.read_volatile(),
            regs_of_context.add(1).read_volatile(),
        )
    };
    if address != regs || r1 != back_chain {
        return None;
    }
    // SAFETY: they are the registers that the program goes on with.
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
        // The entry may have written there where the program goes on. A signal in what it calls to
        // reload finds its frame by the interrupted address.
        // SAFETY: r1 is that of the entry, whose frame leads to its `Link`.
        unsafe {
            let link = ptr::with_exposed_provenance::<u64>(r1 as usize).read_volatile();
            let link = ptr::with_exposed_provenance::<Link>(link as usize).read_volatile();
            spr::write::<{ spr::EBBRR }>(link.nip);
        }
        // The entry may have cleared it already. A signal in what it calls to reload looks for it.
        t.active.store(r1);
    }
    Some(Progress::Handler)
}
