// SPDX-License-Identifier: MIT OR Apache-2.0
//! Installing a handler on a thread, and letting its EBBs come or not.
//!
//! BESCR is never written whole: a program of somebody else's may use its other bits, and TS is
//! the state of a transaction (POWER8, POWER9). Its set and reset registers (BESCRS, BESCRR) would
//! be the way, but QEMU up to 11 keeps those as separate registers without effect. So it is read,
//! changed and written. An EBB between the two is harmless: all it changes of BESCR are bits that
//! the write sets or clears, or has put back before it ends.

use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::attached;
use crate::context::Call;
use crate::context::EbbContext;
use crate::context::call;
use crate::context::data_of;
use crate::error::Error;
use crate::fixup;
use crate::owner::Owner;
use crate::owner::check_installed;
use crate::owner::owner;
use crate::period;
use crate::pmc::OVERFLOW;
use crate::pmc::Pmc;
use crate::progress;
use crate::progress::Progress;
use crate::reg::Bescr;
use crate::reg::Mmcr0;
use crate::reload;
use crate::save::Save;
use crate::spr;
use crate::thread;
use crate::thread::Thread;

/// A handler as a plain function. It runs like a signal handler, on the interrupted thread's
/// stack; see [`install`] for what it may do.
pub type Handler = fn(&mut EbbContext<'_>);

/// Makes `handler` the handler of this thread's EBBs and points EBBHR at the entry that saves
/// all registers. Statistics and periods start from zero. No EBB comes before
/// [`enable`]. A new thread or process does not inherit any of this.
///
/// Also has SIGILL handled where a thread loses the PMU while its handler runs, and unblocks it
/// for this thread; see [`step_over`](crate::step_over). It must not be blocked again while EBBs
/// may come.
///
/// # Errors
///
/// [`Error::NoEbb`] if the kernel does not offer EBB on this machine (HWCAP2),
/// [`Error::Foreign`] if EBBHR holds an address of somebody else, another copy of
/// this library for example; [`Error::InProgress`] in a handler, [`Error::InUse`] if the thread
/// has a [`Session`](crate::Session) that takes EBBs, [`Error::NotInstalled`] if a signal's
/// handler that has interrupted it has called [`uninstall`] or [`install`].
///
/// # Safety
///
/// `handler` runs between any two instructions of this thread, so it must keep
/// to what a signal handler may do: no allocation, no lock, no thread-local
/// variable that is lazily initialised or has a destructor, no state that the
/// interrupted code may be changing unless it is atomic. It must not panic (the program
/// aborts), must not disable or close the EBB event, and must return.
pub unsafe fn install<F>(handler: F) -> Result<(), Error>
where
    F: Fn(&mut EbbContext<'_>) + Copy + 'static,
{
    // SAFETY: the caller's contract.
    unsafe { install_saving(Save::Full, handler) }
}

/// [`install`] with what is to be saved. `F` has 8 bytes at most: a function, or a closure
/// that captures one reference.
///
/// # Errors
///
/// As [`install`].
///
/// # Safety
///
/// As [`install`]; and with [`Save::Gprs`] the handler is as that says.
pub unsafe fn install_saving<F>(save: Save, handler: F) -> Result<(), Error>
where
    F: Fn(&mut EbbContext<'_>) + Copy + 'static,
{
    attached::release_ended();
    if thread::with(|t| t.session.load()) != 0 {
        return Err(Error::InUse);
    }
    // SAFETY: the caller's contract.
    unsafe { install_call(save, call::<F>, data_of(handler), false) }
}

/// [`install_saving`] of a function that takes `data` as its second argument; `marked` is as in
/// [`set_marked`].
///
/// A signal's handler may call [`enable`] at any instruction of this function. That is refused
/// until all that an EBB uses belongs to the new handler.
///
/// # Safety
///
/// As [`install_saving`].
pub(crate) unsafe fn install_call(
    save: Save,
    call: Call,
    data: MaybeUninit<u64>,
    marked: bool,
) -> Result<(), Error> {
    if !supported() {
        return Err(Error::NoEbb);
    }
    progress::find_vdso();
    if let Owner::Foreign(ebbhr) = owner() {
        return Err(Error::Foreign { ebbhr });
    }
    if thread::with(|t| progress::of(t, Bescr::read())) != Progress::None {
        return Err(Error::InProgress);
    }
    fixup::install();
    thread::publish_offset();
    // Before `disable`, after which a signal's handler could turn EBBs on again.
    thread::with(|t| t.changing.store(1));
    disable();
    thread::with(|t| {
        // If the program turns EBBs on by BESCR itself, they call no handler, not a wrong one.
        t.handler.store(0);
        t.call.store(nothing as *const () as u64);
        // SAFETY: an EBB passes this word on to `nothing` only, which ignores it.
        unsafe { t.data.get().write(data) };
        t.reset_rearm();
        // `active` stays: `enable` sees by it that a handler was left by a jump.
        for zero in [&t.ebbs, &t.spurious, &t.evicted, &t.drawn] {
            zero.store(0);
        }
        t.marked.store(marked.into());
        for of_counters in [&t.start, &t.period, &t.jitter, &t.rounds] {
            of_counters.iter().for_each(|value| value.store(0));
        }
        t.reload.store(reload::ebb_reload_any as *const () as u64);
    });
    // SAFETY: the entry keeps what the handler may change, and finds it in the block.
    unsafe { spr::write::<{ spr::EBBHR }>(save.entry()) };
    let is_installed = thread::with(|t| {
        t.call.store(call as *const () as u64);
        t.handler.store(call as *const () as u64);
        // From here on EBBs can be turned on, and their handler finds all that was stored above.
        // The word is 0 if a signal's handler has uninstalled the handler, or installed another.
        t.changing.swap(0) != 0
    });
    if !is_installed {
        uninstall()?;
        return Err(Error::NotInstalled);
    }
    Ok(())
}

/// Takes this thread's handler away: EBBs off and EBBHR 0, if it was this library's. In the
/// handler, see [`disable`].
///
/// # Errors
///
/// [`Error::Foreign`] if it is somebody else's; nothing is changed then.
pub fn uninstall() -> Result<(), Error> {
    if let Owner::Foreign(ebbhr) = owner() {
        return Err(Error::Foreign { ebbhr });
    }
    // Before EBBs are turned off, as in `install_call`: with EBBHR 0 one would branch to 0.
    thread::with(|t| t.changing.store(1));
    let progress = turn_off();
    thread::with(|t| {
        if progress == Progress::None {
            // The next call would look for an EBB that `Rearm::Stop` has ended, on a stack that may
            // have no end.
            t.reset_rearm();
        }
        t.handler.store(0);
        // An entry that a signal's handler has interrupted may be about to call the handler.
        t.call.store(nothing as *const () as u64);
    });
    // SAFETY: GE is off.
    unsafe { spr::write::<{ spr::EBBHR }>(0) };
    // An `install` that a signal's handler has interrupted fails by this.
    thread::with(|t| t.changing.store(0));
    Ok(())
}

/// What an entry calls if there is no handler any more.
extern "C" fn nothing(_: &mut EbbContext<'_>, _: MaybeUninit<u64>) {}

/// HWCAP2 once a handler was installed: handlers do not call the C library.
static HWCAP2: AtomicU64 = AtomicU64::new(0);

/// Whether the kernel offers EBB to programs (`PPC_FEATURE2_EBB` in HWCAP2).
#[must_use]
pub fn supported() -> bool {
    const PPC_FEATURE2_EBB: u64 = 0x1000_0000;
    // SAFETY: getauxval only reads the auxiliary vector.
    let hwcap2 = unsafe { libc::getauxval(libc::AT_HWCAP2) };
    HWCAP2.store(hwcap2, Relaxed);
    hwcap2 & PPC_FEATURE2_EBB != 0
}

/// Whether this CPU is of Power ISA v3.1 or later, for a handler.
pub(crate) fn is_isa_v31() -> bool {
    const PPC_FEATURE2_ARCH_3_1: u64 = 0x0004_0000;
    HWCAP2.load(Relaxed) & PPC_FEATURE2_ARCH_3_1 != 0
}

/// Lets EBBs happen on this thread: BESCR\[GE\] and \[PME\] on, \[PMEO\] off.
///
/// In a handler, or in a signal's that came on top of one, it only undoes [`disable`]: EBBs are
/// on when the handler has ended. If the program has left a handler by `longjmp`, the counters
/// still stand: they are reloaded and set going as the handler's way back would have done.
///
/// # Errors
///
/// [`Error::NotInstalled`] before [`install`], and in a signal's handler that has interrupted that
/// or [`uninstall`]; [`Error::Gone`] if a handler was installed but EBBHR is 0 (after fork),
/// [`Error::Foreign`] if EBBHR is not this library's.
pub fn enable() -> Result<(), Error> {
    check_installed()?;
    let progress = thread::with(|t| {
        let progress = progress::of(t, Bescr::read());
        match progress {
            Progress::None => {}
            Progress::Handler => t.enable_rearm(),
            Progress::Returning => enable_at_rfebb(t),
        }
        progress
    });
    match progress {
        Progress::None => enable_outside(),
        _ => check_owner(),
    }
}

/// [`enable`] where no handler is in progress, which the caller knows: the stack is not looked at,
/// which may have no end.
pub(crate) fn enable_outside() -> Result<(), Error> {
    thread::with(|t| {
        let mut bescr = Bescr::read();
        if bescr.has(Bescr::GE) && t.active.load() != 0 {
            // A signal's handler has let EBBs come before `active` told it that the counters stand.
            bescr = bescr.without(Bescr::GE | Bescr::PME);
            // SAFETY: GE is clear.
            unsafe { bescr.write() };
        }
        if bescr.has(Bescr::GE) && bescr.has(Bescr::PME) {
            // EBBs are on. One may come any time, and what its handler asks for holds.
            return;
        }
        if progress::may_be_left(t, bescr) {
            restart(t);
        }
        // Before EBBs are on: from then on it has what a handler asks for.
        t.reset_rearm();
        // Last. An alert since the counters run waits in MMCR0[PMAO] for PME, and its handler finds
        // all of this done.
        // SAFETY: `install` has put an entry into this thread's EBBHR.
        unsafe { (bescr.without(Bescr::PMEO) | Bescr::GE | Bescr::PME).write() };
    });
    check_owner()
}

/// A signal's handler may have uninstalled it before EBBs were on: GE would be on, and EBBHR 0, for
/// an event of the next owner. In the child of a fork in an EBB's handler it is not of use.
fn check_owner() -> Result<(), Error> {
    if owner() == Owner::Nobody {
        disable();
        return Err(Error::NotInstalled);
    }
    Ok(())
}

/// Has EBBs come from the `rfebb` on that sets GE.
fn enable_at_rfebb(t: &Thread) {
    // First: with neither it nor `rearm` a further signal's handler would find no EBB, and turn GE on.
    // SAFETY: GE is clear.
    unsafe { (Bescr::read() | Bescr::PME).write() };
    t.reset_rearm();
}

/// Goes on after [`Rearm::Stop`](crate::Rearm), or after [`disable`] in a handler: reloads the
/// counters that are negative, with 0 if they have no period, sets them going, and lets EBBs
/// happen as [`enable`] does. In a handler it is as if that had asked for
/// [`Rearm::Restart`](crate::Rearm).
///
/// If the thread has no EBB event that is scheduled, [`evicted`] tells.
///
/// # Errors
///
/// As [`enable`].
pub fn resume() -> Result<(), Error> {
    check_installed()?;
    thread::with(|t| {
        let bescr = Bescr::read();
        match progress::of(t, bescr) {
            Progress::None => {
                // SAFETY: GE is clear. No EBB comes before `enable` has set the counters going.
                unsafe { bescr.without(Bescr::GE | Bescr::PME).write() };
                // As if one had been left by a jump.
                t.active.store(1);
                return enable_outside();
            }
            Progress::Handler => t.reset_rearm(),
            // Not by `enable`, which may find nothing any more that tells of it.
            Progress::Returning => {
                restart(t);
                enable_at_rfebb(t);
            }
        }
        Ok(())
    })
}

/// Does the end of an EBB that has not come to it. EBBs may be on, the PMU may go at any time.
///
/// The counters run last: one that is negative then raises an alert at once. Until they do, `active`
/// tells a signal's handler that calls `enable`, or leaves this by a jump and does so later, that the
/// EBB has still to end; at `rfebb` nothing else did. What was done here may be done again.
fn restart(t: &Thread) {
    t.active.store(1);
    // One that overflows behind its reading would lose its alert to PMAE; POWER8 raises no other.
    Mmcr0::FC.write_always();
    t.note_active(); // The end of an EBB that came before FC has undone it.
    for pmc in Pmc::ALL {
        if pmc.read_always() >= OVERFLOW && !period::next_round(t, pmc) {
            period::begin(t, pmc);
        }
    }
    Mmcr0::PMAE.write_always();
    t.active.store(0);
}

/// Lets no more EBBs happen on this thread: BESCR\[GE\], \[PME\] and \[PMEO\] off. The counters
/// go on. If EBBHR is somebody else's, so are their EBBs, and nothing is changed.
///
/// In a handler, or in a signal's that came on top of one, the handler ends as with
/// [`Rearm::Stop`](crate::Rearm), the counters frozen and PME off: [`resume`] goes on.
pub fn disable() {
    turn_off();
}

/// [`disable`]; tells how far an EBB is.
fn turn_off() -> Progress {
    if let Owner::Foreign(_) = owner() {
        return Progress::None;
    }
    thread::with(|t| {
        let bescr = Bescr::read();
        let progress = progress::of(t, bescr);
        match progress {
            Progress::Handler => {
                t.disable_rearm();
                return progress;
            }
            // `enable` will see by it that a handler was left by a jump.
            Progress::None if progress::may_be_left(t, bescr) => t.active.store(1),
            Progress::None => {}
            // Tells `enable` of it, in the same signal's handler or later.
            Progress::Returning => t.disable_rearm(),
        }
        // SAFETY: GE is clear.
        unsafe { bescr.without(Bescr::GE | Bescr::PME | Bescr::PMEO).write() };
        progress
    })
}

/// Tells the library whether an event of this thread samples marked instructions, as those with
/// [`MARKED`](crate::config::MARKED) in their code do: SIER says of these whether
/// [`sampled`](EbbContext::sampled) and [`sampled_data`](EbbContext::sampled_data) are valid.
/// [`install`] takes it back; a [`Session`](crate::Session) does it itself.
pub fn set_marked(marked: bool) {
    thread::with(|t| t.marked.store(marked.into()));
}

/// Number of EBBs this thread has had since [`install`].
#[must_use]
pub fn count() -> u64 {
    thread::with(|t| t.ebbs.load())
}

/// Number of branches to the handler that no performance monitor exception
/// explains (BESCR\[PMEO\] clear), since [`install`]. 0 on a sound machine.
#[must_use]
pub fn spurious() -> u64 {
    thread::with(|t| t.spurious.load())
}

/// Whether this thread has lost the PMU in the middle of a handler since [`install`] or the
/// last call of this function: the event's `read` tells whether it is still so.
pub fn evicted() -> bool {
    thread::with(|t| t.evicted.swap(0)) != 0
}
