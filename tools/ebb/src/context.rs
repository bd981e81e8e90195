// SPDX-License-Identifier: MIT OR Apache-2.0
//! The view that a handler has of its EBB, and what it may change.

use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;

use crate::bhrb::Branches;
use crate::control;
use crate::frame::Frame;
use crate::frame::Link;
use crate::frame::RESUME;
use crate::pmc;
use crate::pmc::OVERFLOW;
use crate::pmc::Pmc;
use crate::spr;
use crate::thread::Thread;

/// Action of the performance monitor after a handler returns.
///
/// A value is the word that the entry writes to MMCR0 (FC and PMAE), plus two flags: bit 63 is the
/// new value of BESCR\[PME\], and bit 62 means that the counters are not reloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Rearm {
    /// Reload the counters that are negative (with 0 if they have no period) and continue
    /// counting.
    Restart = 0x0400_0001,
    /// Continue counting with the counters as the handler left them. A counter that is still
    /// negative raises the next EBB at once.
    Keep = 0x0400_0003,
    /// Leave the counters frozen and PME off: no EBB occurs until [`resume`](crate::resume).
    Stop = 0x8000_0002,
}

/// An event-based branch, as its handler sees it.
///
/// The counters are frozen while the handler runs, so the methods read the registers at each call.
/// If the thread loses the PMU in the meantime, all PMU registers read as 0 and
/// [`evicted`](crate::evicted) returns `true`.
#[repr(transparent)]
pub struct EbbContext<'a> {
    frame: Frame,
    interrupted: PhantomData<&'a mut Frame>,
}

impl EbbContext<'_> {
    #[inline]
    fn link(&self) -> &Link {
        // SAFETY: The entry stored the address of its `Link` there, which lives as long as the
        // frame.
        unsafe { &*core::ptr::with_exposed_provenance(self.frame.back_chain as usize) }
    }

    /// Returns whether the frame is the first part of a longer one that includes r14 to r31.
    #[inline]
    fn has_all_gprs(&self) -> bool {
        self.frame.back_chain - (&raw const self.frame).addr() as u64 > size_of::<Frame>() as u64
    }

    #[inline]
    pub(crate) fn thread(&self) -> &Thread {
        // SAFETY: The entry stored the address of this thread's block there, which is thread-local.
        unsafe { &*core::ptr::with_exposed_provenance(self.frame.thread as usize) }
    }

    /// Returns the address of the interrupted instruction (EBBRR, Power ISA Book II, "Event-Based
    /// Branch Facility"), some instructions after the one that made the counter overflow. The
    /// program continues there, unless the EBB aborted a restartable sequence.
    #[inline]
    #[must_use]
    pub fn interrupted(&self) -> u64 {
        self.link().nip
    }

    /// Makes the program continue at `address` instead.
    ///
    /// # Safety
    ///
    /// The program must be able to continue there with its registers, including the stack pointer,
    /// as they were interrupted.
    #[inline]
    pub unsafe fn set_interrupted(&mut self, address: u64) {
        // Must not change `Link::nip` or EBBRR: a signal handler finds the EBB in progress by them.
        self.frame.gpr[RESUME] = address;
    }

    /// Returns general purpose register `n` of the interrupted code. Returns `None` for 32 and
    /// above, and for r14 to r31 under [`Save::Gprs`](crate::Save::Gprs), which does not save them.
    #[inline]
    #[must_use]
    pub fn gpr(&self, n: usize) -> Option<u64> {
        match n {
            1 => Some(self.stack_pointer()),
            13 => {
                let thread_pointer;
                // SAFETY: Only reads r13, which neither the handler nor the compiler changes.
                unsafe {
                    core::arch::asm!("mr {}, 13", out(reg) thread_pointer,
                        options(nomem, nostack, preserves_flags));
                }
                Some(thread_pointer)
            }
            14.. if !self.has_all_gprs() => None,
            _ => self.frame.gpr.get(n).copied(),
        }
    }

    /// Returns the interrupted code's stack pointer, r1.
    #[inline]
    #[must_use]
    pub fn stack_pointer(&self) -> u64 {
        self.link().back_chain
    }

    /// Returns the interrupted code's link register.
    #[inline]
    #[must_use]
    pub fn link_register(&self) -> u64 {
        self.frame.lr
    }

    /// Returns the interrupted code's count register.
    #[inline]
    #[must_use]
    pub fn count_register(&self) -> u64 {
        self.frame.ctr
    }

    /// Returns the interrupted code's condition register, with CR0 in bits 32-35.
    #[inline]
    #[must_use]
    pub fn condition_register(&self) -> u64 {
        self.frame.cr
    }

    /// Returns the interrupted code's fixed-point exception register.
    #[inline]
    #[must_use]
    pub fn xer(&self) -> u64 {
        self.frame.xer
    }

    /// Returns the interrupted code's target address register.
    #[inline]
    #[must_use]
    pub fn tar(&self) -> u64 {
        self.frame.tar
    }

    /// Returns the sampled instruction's address (SIAR) if it is valid. It is the instruction that
    /// was possibly executing when the counter overflowed; or, with random sampling, the last one
    /// that was marked, if SIER indicates that (Power ISA Book III, "Performance Monitor
    /// Facility"). A [`Session`](crate::Session) determines from its event codes which of the two
    /// applies; other programs call [`set_marked`](crate::set_marked).
    #[inline]
    #[must_use]
    pub fn sampled(&self) -> Option<u64> {
        /// SIER\[SIARV\] (bit 41): SIAR is valid.
        const SIARV: u64 = 1 << 22;
        self.sample(SIARV, pmc::siar)
    }

    /// Returns the address of an operand (SDAR) if it is valid. With random sampling it belongs to
    /// the marked instruction, else to an instruction of about that time.
    #[inline]
    #[must_use]
    pub fn sampled_data(&self) -> Option<u64> {
        /// SIER\[SDARV\] (bit 42): SDAR is valid.
        const SDARV: u64 = 1 << 21;
        self.sample(SDARV, pmc::sdar)
    }

    /// Returns the address that `read` returns, if it is valid. The `valid` bits of SIER apply to
    /// marked instructions only; the kernel's `siar_valid()` does the same. Whether instructions
    /// are marked is in MMCRA\[SE\], which problem state reads as 0, so `marked` records it.
    #[inline]
    fn sample(&self, valid: u64, read: fn() -> u64) -> Option<u64> {
        let marked = self.thread().marked.load() != 0;
        let address = read();
        let known = address != 0 && (!marked || pmc::sier() & valid != 0);
        known.then_some(address)
    }

    /// Returns SIER, SIER2 or SIER3 for `n` of 1 to 3: the attributes of the sampled instruction.
    /// Returns `None` for any other `n`, and for 2 and 3 before Power ISA v3.1, which lacks them.
    #[inline]
    #[must_use]
    pub fn sier(&self, n: usize) -> Option<u64> {
        match n {
            1 => Some(pmc::sier()),
            2 if control::is_isa_v31() => Some(pmc::sier2()),
            3 if control::is_isa_v31() => Some(pmc::sier3()),
            _ => None,
        }
    }

    /// Returns the time base, which counts at the frequency that `/proc/cpuinfo` shows.
    #[inline]
    #[must_use]
    pub fn time_base(&self) -> u64 {
        // SAFETY: Problem state can always read the time base.
        unsafe { spr::read::<{ spr::TB }>() }
    }

    /// Reads the BHRB into `entries`, the most recent first; see [`Branches`].
    ///
    /// Branches of the entry and the handler are normally not recorded, because an alert clears
    /// MMCR0\[PMAE\], which stops the BHRB. They are after [`inject`](crate::inject()).
    pub fn branches<'b>(&self, entries: &'b mut [u64]) -> Branches<'b> {
        Branches::read(entries)
    }

    /// Returns the number of this EBB on this thread since [`install`](crate::install), from 1.
    #[inline]
    #[must_use]
    pub fn number(&self) -> u64 {
        self.thread().ebbs.load()
    }

    /// Returns whether `pmc` is negative.
    #[inline]
    #[must_use]
    pub fn overflowed(&self, pmc: Pmc) -> bool {
        pmc.read() >= OVERFLOW
    }

    /// Returns the value of `pmc`.
    #[inline]
    #[must_use]
    pub fn value(&self, pmc: Pmc) -> u32 {
        pmc.read()
    }

    /// Sets what the performance monitor does after the handler; [`Rearm::Restart`] if never
    /// called. After [`disable`](crate::disable) it applies if EBBs are enabled again in the
    /// handler.
    #[inline]
    pub fn rearm(&mut self, rearm: Rearm) {
        self.thread().set_rearm(rearm as u64);
    }
}

impl fmt::Debug for EbbContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EbbContext")
            .field("interrupted", &self.interrupted())
            .field("stack_pointer", &self.stack_pointer())
            .finish_non_exhaustive()
    }
}

/// Type of the functions that an entry calls.
pub(crate) type Call = extern "C" fn(&mut EbbContext<'_>, MaybeUninit<u64>);

/// Packs a value of at most 8 bytes into the second argument of a [`Call`].
pub(crate) const fn data_of<T: Copy>(value: T) -> MaybeUninit<u64> {
    const {
        assert!(
            size_of::<T>() <= 8 && align_of::<T>() <= 8,
            "a handler captures one reference at most"
        );
    }
    let mut data = MaybeUninit::<u64>::uninit();
    // SAFETY: The assertion above checks that a `T` fits in 8 bytes at that alignment.
    unsafe { data.as_mut_ptr().cast::<T>().write(value) };
    data
}

/// Calls the handler `F`, whose value is in `data`. [`Thread::call`] points at this function.
pub(crate) extern "C" fn call<F>(context: &mut EbbContext<'_>, data: MaybeUninit<u64>)
where
    F: Fn(&mut EbbContext<'_>) + Copy,
{
    // SAFETY: `install` stored a value of `F` in `data`; `data_of` has checked its size.
    let handler = unsafe { &*data.as_ptr().cast::<F>() };
    handler(context);
}
