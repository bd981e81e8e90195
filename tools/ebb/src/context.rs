// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a handler sees of the EBB it handles, and what it may change.

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

/// How the performance monitor goes on after a handler.
///
/// A value is what the entry writes to MMCR0 (FC and PMAE), beside bit 63, which is for
/// BESCR\[PME\], and bit 62, with which the counters are not reloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Rearm {
    /// Reload the counters that are negative, with 0 if they have no period, and
    /// count on.
    Restart = 0x0400_0001,
    /// Count on with the counters as the handler left them. One that is still
    /// negative raises the next EBB at once.
    Keep = 0x0400_0003,
    /// Leave the counters frozen and PME off: no EBB comes until [`resume`](crate::resume).
    Stop = 0x8000_0002,
}

/// One event-based branch, as its handler sees it.
///
/// The counters stand still while the handler runs, so they are read when asked for. When
/// the thread loses the PMU meanwhile, all PMU registers read as 0 and
/// [`evicted`](crate::evicted) tells.
#[repr(transparent)]
pub struct EbbContext<'a> {
    frame: Frame,
    interrupted: PhantomData<&'a mut Frame>,
}

impl EbbContext<'_> {
    #[inline]
    fn link(&self) -> &Link {
        // SAFETY: the entry has put the address of its `Link` there.
        unsafe { &*core::ptr::with_exposed_provenance(self.frame.back_chain as usize) }
    }

    /// Whether the frame is the first part of a longer one, with r14 to r31.
    #[inline]
    fn has_all_gprs(&self) -> bool {
        self.frame.back_chain - (&raw const self.frame).addr() as u64 > size_of::<Frame>() as u64
    }

    #[inline]
    pub(crate) fn thread(&self) -> &Thread {
        // SAFETY: the entry has put the address of this thread's block there.
        unsafe { &*core::ptr::with_exposed_provenance(self.frame.thread as usize) }
    }

    /// Address of the interrupted instruction (EBBRR, Power ISA Book II, "Event-Based Branch
    /// Facility"), some instructions after the one that made the counter overflow. The program goes
    /// on there, unless it is in a restartable sequence, which the EBB aborts.
    #[inline]
    #[must_use]
    pub fn interrupted(&self) -> u64 {
        self.link().nip
    }

    /// Has the program go on at `address` instead.
    ///
    /// # Safety
    ///
    /// The program may go on there with the registers as they were interrupted, its stack
    /// pointer among them.
    #[inline]
    pub unsafe fn set_interrupted(&mut self, address: u64) {
        // Nothing but this: by `Link::nip` and EBBRR a signal's handler finds the EBB in progress.
        self.frame.gpr[RESUME] = address;
    }

    /// General purpose register `n` of the interrupted code. `None` for 32 and above, and for
    /// r14 to r31 under [`Save::Gprs`](crate::Save::Gprs), which leaves them where they are.
    #[inline]
    #[must_use]
    pub fn gpr(&self, n: usize) -> Option<u64> {
        match n {
            1 => Some(self.stack_pointer()),
            13 => {
                let thread_pointer;
                // SAFETY: reads a register, which nobody changes.
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

    /// The interrupted code's stack pointer, r1.
    #[inline]
    #[must_use]
    pub fn stack_pointer(&self) -> u64 {
        self.link().back_chain
    }

    /// The interrupted code's link register.
    #[inline]
    #[must_use]
    pub fn link_register(&self) -> u64 {
        self.frame.lr
    }

    /// The interrupted code's count register.
    #[inline]
    #[must_use]
    pub fn count_register(&self) -> u64 {
        self.frame.ctr
    }

    /// The interrupted code's condition register, CR0 in bits 32-35.
    #[inline]
    #[must_use]
    pub fn condition_register(&self) -> u64 {
        self.frame.cr
    }

    /// The interrupted code's fixed-point exception register.
    #[inline]
    #[must_use]
    pub fn xer(&self) -> u64 {
        self.frame.xer
    }

    /// The interrupted code's target address register.
    #[inline]
    #[must_use]
    pub fn tar(&self) -> u64 {
        self.frame.tar
    }

    /// The sampled instruction's address, SIAR, if it is one: the instruction that was being
    /// executed, possibly, when the counter overflowed; or with random sampling the last that was
    /// marked, if SIER says so (Power ISA Book III, "Performance Monitor Facility"). The library
    /// knows which it is of a [`Session`](crate::Session), else by
    /// [`set_marked`](crate::set_marked).
    #[inline]
    #[must_use]
    pub fn sampled(&self) -> Option<u64> {
        /// SIER\[SIARV\] (bit 41): SIAR is valid.
        const SIARV: u64 = 1 << 22;
        self.sample(SIARV, pmc::siar)
    }

    /// The address of an operand, SDAR, if it is one: with random sampling the marked
    /// instruction's, else one of about that time.
    #[inline]
    #[must_use]
    pub fn sampled_data(&self) -> Option<u64> {
        /// SIER\[SDARV\] (bit 42): SDAR is valid.
        const SDARV: u64 = 1 << 21;
        self.sample(SDARV, pmc::sdar)
    }

    /// The address that `read` gives, if it is one. The bits `valid` of SIER tell of marked
    /// instructions only, as the kernel has it (`siar_valid()`). Whether these are sampled is in
    /// MMCRA\[SE\], which problem state reads as 0.
    #[inline]
    fn sample(&self, valid: u64, read: fn() -> u64) -> Option<u64> {
        let marked = self.thread().marked.load() != 0;
        let address = read();
        let known = address != 0 && (!marked || pmc::sier() & valid != 0);
        known.then_some(address)
    }

    /// SIER, SIER2 or SIER3, by `n` of 1 to 3: what is known of the sampled instruction. `None` of
    /// any other, and before Power ISA v3.1 of the last two, which are not there.
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

    /// The time base, which counts at the frequency that `/proc/cpuinfo` shows.
    #[inline]
    #[must_use]
    pub fn time_base(&self) -> u64 {
        // SAFETY: the time base is always readable.
        unsafe { spr::read::<{ spr::TB }>() }
    }

    /// Reads the BHRB into `entries`, the most recent first; see [`Branches`].
    ///
    /// Branches of the entry and the handler are not among them, but after
    /// [`inject`](crate::inject()): an alert clears MMCR0\[PMAE\], without which none is recorded.
    pub fn branches<'b>(&self, entries: &'b mut [u64]) -> Branches<'b> {
        Branches::read(entries)
    }

    /// Number of this EBB on this thread since [`install`](crate::install), from 1.
    #[inline]
    #[must_use]
    pub fn number(&self) -> u64 {
        self.thread().ebbs.load()
    }

    /// Whether `pmc` is negative.
    #[inline]
    #[must_use]
    pub fn overflowed(&self, pmc: Pmc) -> bool {
        pmc.read() >= OVERFLOW
    }

    /// Value of `pmc`.
    #[inline]
    #[must_use]
    pub fn value(&self, pmc: Pmc) -> u32 {
        pmc.read()
    }

    /// How the performance monitor goes on; [`Rearm::Restart`] if never called. After
    /// [`disable`](crate::disable), how it would go on if EBBs are enabled again in the handler.
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

/// A function that an entry calls.
pub(crate) type Call = extern "C" fn(&mut EbbContext<'_>, MaybeUninit<u64>);

/// A value of at most 8 bytes as [`Call`] gets it.
pub(crate) const fn data_of<T: Copy>(value: T) -> MaybeUninit<u64> {
    const {
        assert!(
            size_of::<T>() <= 8 && align_of::<T>() <= 8,
            "a handler captures one reference at most"
        );
    }
    let mut data = MaybeUninit::<u64>::uninit();
    // SAFETY: it fits.
    unsafe { data.as_mut_ptr().cast::<T>().write(value) };
    data
}

/// What [`Thread::call`] points at for the handler `F`, whose value is in `data`.
pub(crate) extern "C" fn call<F>(context: &mut EbbContext<'_>, data: MaybeUninit<u64>)
where
    F: Fn(&mut EbbContext<'_>) + Copy,
{
    // SAFETY: `install` has put a value of `F` there, of at most this size.
    let handler = unsafe { &*data.as_ptr().cast::<F>() };
    handler(context);
}
