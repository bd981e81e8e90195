// SPDX-License-Identifier: MIT OR Apache-2.0
//! Installs and removes a thread's handler, and turns its EBBs on and off.
//!
//! BESCR is never written with a value of our own, because other code in the program may use its
//! other bits, and TS is the state of a transaction (POWER8, POWER9). The set and reset registers
//! (BESCRS, BESCRR) would be the usual way, but QEMU up to 11 implements them as separate registers
//! without effect. So BESCR is read, changed and written. An EBB between the read and the write is
//! harmless: it changes only bits that the write sets or clears, or that it restores before it
//! ends.

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

/// A handler that is a plain function. It runs like a signal handler, on the interrupted thread's
/// stack; see [`install`] for what it may do.
pub type Handler = fn(&mut EbbContext<'_>);

/// Installs `handler` for this thread's EBBs: points EBBHR at the entry that saves all registers.
/// Statistics and periods start from zero. No EBB occurs before [`enable`]. A new thread or process
/// inherits none of this.
///
/// Also installs a handler for SIGILL, which occurs if a thread loses the PMU while its EBB handler
/// runs, and unblocks the signal for this thread; see [`step_over`](crate::step_over). The thread
/// must not block it again while EBBs are on.
///
/// # Errors
///
/// * [`Error::NoEbb`]: the kernel does not offer EBB on this machine (HWCAP2).
/// * [`Error::Foreign`]: EBBHR holds an address that is not of this copy of the library, for
///   example of another copy.
/// * [`Error::InProgress`]: the caller runs in a handler.
/// * [`Error::InUse`]: the thread has a [`Session`](crate::Session) that takes EBBs.
/// * [`Error::NotInstalled`]: a signal handler interrupted the call and itself called
///   [`uninstall`] or [`install`].
///
/// # Safety
///
/// `handler` runs between any two instructions of this thread, so the rules for signal handlers
/// apply: no allocation, no lock, no thread-local variable that is lazily initialised or has a
/// destructor, no state that the interrupted code may be changing unless it is atomic. It must not
/// panic (the program aborts), must not disable or close the EBB event ([`disable`] is allowed),
/// and must return.
pub unsafe fn install<F>(handler: F) -> Result<(), Error>
where
    F: Fn(&mut EbbContext<'_>) + Copy + 'static,
{
    // SAFETY: The caller guarantees what `install_saving` requires of the handler.
    unsafe { install_saving(Save::Full, handler) }
}

/// Installs `handler` like [`install`], with the entry that saves the registers of `save`. `F` has
/// at most 8 bytes: a function, or a closure that captures one reference.
///
/// # Errors
///
/// The errors of [`install`].
///
/// # Safety
///
/// `handler` meets the requirements of [`install`], and with [`Save::Gprs`] also that variant's.
pub unsafe fn install_saving<F>(save: Save, handler: F) -> Result<(), Error>
where
    F: Fn(&mut EbbContext<'_>) + Copy + 'static,
{
    attached::release_ended();
    if thread::with(|t| t.session.load()) != 0 {
        return Err(Error::InUse);
    }
    // SAFETY: The caller guarantees what is required of the handler, and `data` is of type `F`.
    unsafe { install_call(save, call::<F>, data_of(handler), false) }
}

/// Installs `call` for this thread's EBBs, which gets `data` as its second argument. `marked` is
/// the initial value for [`set_marked`].
///
/// A signal handler may call [`enable`] at any instruction of this function. It is refused until
/// everything that an EBB uses belongs to the new handler.
///
/// # Safety
///
/// `call` meets the requirements of [`install_saving`].
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
    // Must precede `disable`: after that a signal handler could turn EBBs on again.
    thread::with(|t| t.changing.store(1));
    disable();
    thread::with(|t| {
        // If the program sets BESCR itself, an EBB then calls no handler instead of a wrong one.
        t.handler.store(0);
        t.call.store(nothing as *const () as u64);
        // SAFETY: `call` is `nothing` here, which ignores the word, so no EBB reads it now.
        unsafe { t.data.get().write(data) };
        t.reset_rearm();
        // `active` must keep its value: it shows `enable` that a handler was left by longjmp().
        for zero in [&t.ebbs, &t.spurious, &t.evicted, &t.drawn] {
            zero.store(0);
        }
        t.marked.store(marked.into());
        for of_counters in [&t.start, &t.period, &t.jitter, &t.rounds] {
            of_counters.iter().for_each(|value| value.store(0));
        }
        t.reload.store(reload::ebb_reload_any as *const () as u64);
    });
    // SAFETY: The entry saves what the handler may change, and finds it in the thread's block.
    unsafe { spr::write::<{ spr::EBBHR }>(save.entry()) };
    let is_installed = thread::with(|t| {
        t.call.store(call as *const () as u64);
        t.handler.store(call as *const () as u64);
        // From here on EBBs can be turned on, and their handler finds everything stored above. The
        // word is 0 if a signal handler has called `uninstall` or `install` since.
        t.changing.swap(0) != 0
    });
    if !is_installed {
        uninstall()?;
        return Err(Error::NotInstalled);
    }
    Ok(())
}

/// Removes this thread's handler: turns EBBs off and sets EBBHR to 0. In a handler, EBBs are turned
/// off as by [`disable`].
///
/// # Errors
///
/// [`Error::Foreign`] if EBBHR is not this library's; nothing is changed then.
pub fn uninstall() -> Result<(), Error> {
    if let Owner::Foreign(ebbhr) = owner() {
        return Err(Error::Foreign { ebbhr });
    }
    // Must precede `turn_off`: a signal handler could enable EBBs again, and with EBBHR 0 the next
    // one would branch to address 0.
    thread::with(|t| t.changing.store(1));
    let progress = turn_off();
    thread::with(|t| {
        if progress == Progress::None {
            // Otherwise the next call would search the stack for the EBB that `Rearm::Stop` ended,
            // and a stack may have no end.
            t.reset_rearm();
        }
        t.handler.store(0);
        // Needed in a signal handler that interrupted an entry that is about to call the handler.
        t.call.store(nothing as *const () as u64);
    });
    // SAFETY: GE is clear, so no EBB branches to the address.
    unsafe { spr::write::<{ spr::EBBHR }>(0) };
    // Makes an `install` fail that a signal handler with this call has interrupted.
    thread::with(|t| t.changing.store(0));
    Ok(())
}

/// Does nothing. An entry calls it if no handler is installed any more.
extern "C" fn nothing(_: &mut EbbContext<'_>, _: MaybeUninit<u64>) {}

/// HWCAP2, stored when a handler is installed, because handlers must not call the C library.
static HWCAP2: AtomicU64 = AtomicU64::new(0);

/// Returns whether the kernel offers EBB to programs (`PPC_FEATURE2_EBB` in HWCAP2).
#[must_use]
pub fn supported() -> bool {
    const PPC_FEATURE2_EBB: u64 = 0x1000_0000;
    // SAFETY: getauxval() only reads the auxiliary vector.
    let hwcap2 = unsafe { libc::getauxval(libc::AT_HWCAP2) };
    HWCAP2.store(hwcap2, Relaxed);
    hwcap2 & PPC_FEATURE2_EBB != 0
}

/// Returns whether this CPU implements Power ISA v3.1 or later. Handlers may call it.
pub(crate) fn is_isa_v31() -> bool {
    const PPC_FEATURE2_ARCH_3_1: u64 = 0x0004_0000;
    HWCAP2.load(Relaxed) & PPC_FEATURE2_ARCH_3_1 != 0
}

/// Turns EBBs on for this thread: BESCR\[GE\] and \[PME\] on, \[PMEO\] off.
///
/// In a handler, or in a signal handler that interrupted one, it only undoes [`disable`]: EBBs are
/// on when the handler has ended. If the program left a handler by `longjmp`, the counters are
/// still frozen; they are reloaded and started like at the end of a handler.
///
/// # Errors
///
/// * [`Error::NotInstalled`]: before [`install`], or in a signal handler that interrupted that
///   or [`uninstall`].
/// * [`Error::Gone`]: a handler was installed but EBBHR is 0 (after fork).
/// * [`Error::Foreign`]: EBBHR is not this library's.
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

/// Turns EBBs on if the caller knows that no handler is in progress. Does not search the stack for
/// one, which would not terminate on a stack without an end.
pub(crate) fn enable_outside() -> Result<(), Error> {
    thread::with(|t| {
        let mut bescr = Bescr::read();
        if bescr.has(Bescr::GE) && t.active.load() != 0 {
            // A signal handler has turned EBBs on before `active` recorded that the counters are
            // frozen.
            bescr = bescr.without(Bescr::GE | Bescr::PME);
            // SAFETY: GE is clear in the new value, so no EBB follows.
            unsafe { bescr.write() };
        }
        if bescr.has(Bescr::GE) && bescr.has(Bescr::PME) {
            // EBBs are on already. One may occur at any time, and what its handler requests must
            // hold.
            return;
        }
        if progress::may_be_left(t, bescr) {
            restart(t);
        }
        // Must precede the write of BESCR: once EBBs are on, a handler may change this.
        t.reset_rearm();
        // Must be last: an overflow since the counters run is pending in MMCR0[PMAO] and causes an
        // EBB as soon as PME is set, whose handler must find everything above done.
        // SAFETY: `install` has put an entry into this thread's EBBHR.
        unsafe { (bescr.without(Bescr::PMEO) | Bescr::GE | Bescr::PME).write() };
    });
    check_owner()
}

/// Checks that the handler is still installed after EBBs were turned on. A signal handler may have
/// uninstalled it just before: GE would then be on with EBBHR 0, and the event of the next owner
/// would branch there. A child that was forked inside a handler cannot rely on this check.
fn check_owner() -> Result<(), Error> {
    if owner() == Owner::Nobody {
        disable();
        return Err(Error::NotInstalled);
    }
    Ok(())
}

/// Turns EBBs on in an entry that is about to execute `rfebb`, which sets GE.
fn enable_at_rfebb(t: &Thread) {
    // PME must be set first: with both PME and `rearm` cleared, another signal handler would find
    // no EBB in progress and turn GE on.
    // SAFETY: GE is clear in an entry, so no EBB follows.
    unsafe { (Bescr::read() | Bescr::PME).write() };
    t.reset_rearm();
}

/// Continues after [`Rearm::Stop`](crate::Rearm), or after [`disable`] in a handler: reloads the
/// counters that are negative (with 0 if they have no period), starts them, and turns EBBs on like
/// [`enable`]. In a handler it is equivalent to [`Rearm::Restart`](crate::Rearm).
///
/// If the thread has no EBB event that is scheduled, [`evicted`] returns `true` afterwards.
///
/// # Errors
///
/// The errors of [`enable`].
pub fn resume() -> Result<(), Error> {
    check_installed()?;
    thread::with(|t| {
        let bescr = Bescr::read();
        match progress::of(t, bescr) {
            Progress::None => {
                // SAFETY: GE is clear in the new value. No EBB occurs before `enable_outside`
                // below.
                unsafe { bescr.without(Bescr::GE | Bescr::PME).write() };
                // The state after a handler was left by longjmp(), which `enable_outside`
                // completes.
                t.active.store(1);
                return enable_outside();
            }
            Progress::Handler => t.reset_rearm(),
            // Not with `enable`: nothing may indicate any more that this EBB has still to end.
            Progress::Returning => {
                restart(t);
                enable_at_rfebb(t);
            }
        }
        Ok(())
    })
}

/// Completes an EBB whose handler never returned: reloads the counters and starts them. Idempotent.
/// EBBs may be on, and the thread may lose the PMU at any time.
///
/// The counters are started last, because one that is negative then raises an alert at once. Until
/// then `active` records that the EBB has still to end, for a signal handler that calls `enable` or
/// that leaves this function by longjmp(). At `rfebb` no other state records it.
fn restart(t: &Thread) {
    t.active.store(1);
    // A counter that overflows after it was read here would lose its alert, because PMAE is set
    // only below, and POWER8 raises no other.
    Mmcr0::FC.write_always();
    t.note_active(); // Set again, because an EBB that occurred before FC was set has cleared it.
    for pmc in Pmc::ALL {
        if pmc.read_always() >= OVERFLOW && !period::next_round(t, pmc) {
            period::begin(t, pmc);
        }
    }
    Mmcr0::PMAE.write_always();
    t.active.store(0);
}

/// Turns EBBs off for this thread: BESCR\[GE\], \[PME\] and \[PMEO\] off. The counters keep
/// counting. Changes nothing if EBBHR is not this library's, because the EBBs are then not either.
///
/// In a handler, or in a signal handler that interrupted one, the handler ends as with
/// [`Rearm::Stop`](crate::Rearm), with the counters frozen and PME off: [`resume`] continues.
pub fn disable() {
    turn_off();
}

/// Turns EBBs off like [`disable`]. Returns how far an EBB has progressed.
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
            // Shows `enable` that a handler was left by longjmp().
            Progress::None if progress::may_be_left(t, bescr) => t.active.store(1),
            Progress::None => {}
            // Records it for `enable`, in the same signal handler or later.
            Progress::Returning => t.disable_rearm(),
        }
        // SAFETY: GE is clear in the new value, so no EBB follows.
        unsafe { bescr.without(Bescr::GE | Bescr::PME | Bescr::PMEO).write() };
        progress
    })
}

/// Declares whether an event of this thread samples marked instructions, as those with
/// [`MARKED`](crate::config::MARKED) in their code do. SIER then indicates whether
/// [`sampled`](EbbContext::sampled) and [`sampled_data`](EbbContext::sampled_data) are valid.
/// [`install`] resets it to `false`; a [`Session`](crate::Session) sets it itself.
pub fn set_marked(marked: bool) {
    thread::with(|t| t.marked.store(marked.into()));
}

/// Returns the number of EBBs of this thread since [`install`].
#[must_use]
pub fn count() -> u64 {
    thread::with(|t| t.ebbs.load())
}

/// Returns the number of branches to the handler since [`install`] that no performance monitor
/// exception explains (BESCR\[PMEO\] clear). It is 0 unless the machine is faulty.
#[must_use]
pub fn spurious() -> u64 {
    thread::with(|t| t.spurious.load())
}

/// Returns whether this thread has lost the PMU inside a handler since [`install`] or the last call
/// of this function. The event's `read` shows whether the PMU is still lost.
pub fn evicted() -> bool {
    thread::with(|t| t.evicted.swap(0)) != 0
}
