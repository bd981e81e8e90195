// SPDX-License-Identifier: MIT OR Apache-2.0
//! The performance monitor counters, the sampled registers and the BHRB, as a program with a
//! scheduled EBB event may use them.
//!
//! Outside of a handler every access here raises SIGILL while this thread has no scheduled EBB
//! event (see [`Event::is_scheduled`](crate::Event::is_scheduled)). In a handler it has no effect
//! then and reads 0. With the kernel's built-in driver before ISA v3.1, a read instead returns the
//! register's content, which may belong to another event.

use crate::bhrb;
use crate::fixup::fixed_up_in_handler;
use crate::reg::Mmcr0;
use crate::spr;

/// The value from which on a counter is negative and raises an alert.
pub const OVERFLOW: u32 = 0x8000_0000;

/// One of the six 32-bit performance monitor counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Pmc {
    /// PMC1.
    Pmc1 = 1,
    /// PMC2.
    Pmc2,
    /// PMC3.
    Pmc3,
    /// PMC4.
    Pmc4,
    /// PMC5, instructions completed.
    Pmc5,
    /// PMC6, cycles.
    Pmc6,
}

/// Calls a function of [`spr`] with the SPR number of `$pmc`, which is part of the instruction.
macro_rules! of_spr {
    ($pmc:expr, $function:ident($($value:ident)?)) => {
        match $pmc {
            Pmc::Pmc1 => spr::$function::<{ spr::PMC1 }>($($value)?),
            Pmc::Pmc2 => spr::$function::<{ spr::PMC2 }>($($value)?),
            Pmc::Pmc3 => spr::$function::<{ spr::PMC3 }>($($value)?),
            Pmc::Pmc4 => spr::$function::<{ spr::PMC4 }>($($value)?),
            Pmc::Pmc5 => spr::$function::<{ spr::PMC5 }>($($value)?),
            Pmc::Pmc6 => spr::$function::<{ spr::PMC6 }>($($value)?),
        }
    };
}

impl Pmc {
    /// All counters, in order.
    pub const ALL: [Self; 6] = [
        Self::Pmc1,
        Self::Pmc2,
        Self::Pmc3,
        Self::Pmc4,
        Self::Pmc5,
        Self::Pmc6,
    ];

    /// Returns the counter with the number `n`, 1-6.
    #[must_use]
    pub const fn new(n: u8) -> Option<Self> {
        match n {
            1..=6 => Some(Self::ALL[n as usize - 1]),
            _ => None,
        }
    }

    /// Returns the counter that the event code `code` names.
    #[must_use]
    pub const fn of_event(code: u64) -> Option<Self> {
        Self::new(crate::config::pmc_of(code))
    }

    /// Returns the counter's index in an array of six.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize - 1
    }

    /// Reads the counter.
    #[inline]
    #[must_use]
    pub fn read(self) -> u32 {
        // SAFETY: Reading a counter has no side effect.
        // CAST: A PMC has 32 bits; the upper half of the SPR reads as zero.
        unsafe { of_spr!(self, read()) as u32 }
    }

    /// Reads the counter like [`read`](Self::read), or returns 0 if the thread has no PMU.
    #[inline]
    pub(crate) fn read_always(self) -> u32 {
        // SAFETY: Reading a counter has no side effect.
        // CAST: A PMC has 32 bits; the upper half of the SPR reads as zero.
        unsafe { of_spr!(self, read_always()) as u32 }
    }

    /// Reads the counter outside of a handler, or returns `None` if the thread has no PMU.
    pub(crate) fn read_if_there(self) -> Option<u32> {
        // SAFETY: Reading a counter has no side effect.
        let value = unsafe { of_spr!(self, read_if_there()) };
        // CAST: A PMC has 32 bits; the upper half of the SPR reads as zero.
        value.map(|value| value as u32)
    }

    /// Writes the counter.
    #[inline]
    pub fn write(self, value: u32) {
        let value = u64::from(value);
        // SAFETY: A counter that turns negative raises an alert only if BESCR and MMCR0 were set up
        // for one, and BESCR's writer guarantees a valid EBBHR.
        unsafe { of_spr!(self, write(value)) }
    }

    /// Writes the counter like [`write`](Self::write), without effect if the thread has no PMU.
    #[inline]
    pub(crate) fn write_always(self, value: u32) {
        let value = u64::from(value);
        // SAFETY: A counter that turns negative raises an alert only if BESCR and MMCR0 were set up
        // for one, and BESCR's writer guarantees a valid EBBHR.
        unsafe { of_spr!(self, write_always(value)) }
    }

    /// Returns the value from which the counter turns negative after `period` counts, 1 to
    /// 0x8000_0000.
    #[must_use]
    pub const fn start_value(period: u32) -> u32 {
        OVERFLOW.wrapping_sub(period)
    }
}

/// Freezes all counters.
pub fn freeze() {
    (Mmcr0::read() | Mmcr0::FC).write();
}

/// Unfreezes all counters.
pub fn unfreeze() {
    Mmcr0::read().without(Mmcr0::FC).write();
}

/// Reads SIAR, the address of the sampled instruction.
#[must_use]
pub fn siar() -> u64 {
    // SAFETY: Reading SIAR has no side effect.
    unsafe { spr::read::<{ spr::SIAR }>() }
}

/// Reads SDAR, the address of the sampled instruction's operand.
#[must_use]
pub fn sdar() -> u64 {
    // SAFETY: Reading SDAR has no side effect.
    unsafe { spr::read::<{ spr::SDAR }>() }
}

/// Reads SIER, the attributes of the sampled instruction.
#[must_use]
pub fn sier() -> u64 {
    // SAFETY: Reading SIER has no side effect.
    unsafe { spr::read::<{ spr::SIER }>() }
}

/// Reads SIER2, which exists from ISA v3.1 on.
#[must_use]
pub fn sier2() -> u64 {
    // SAFETY: Reading SIER2 has no side effect.
    unsafe { spr::read::<{ spr::SIER2 }>() }
}

/// Reads SIER3, which exists from ISA v3.1 on.
#[must_use]
pub fn sier3() -> u64 {
    // SAFETY: Reading SIER3 has no side effect.
    unsafe { spr::read::<{ spr::SIER3 }>() }
}

/// Reads entry `N` (0-1023, the most recent first) of the Branch History Rolling Buffer; 0 means
/// that it is empty. See Power ISA Book II section 8.2.
///
/// From ISA v3.1 on the buffer is always empty unless the event was opened with
/// [`config::BHRB`](crate::config::BHRB); earlier processors record branches in any case.
#[must_use]
#[inline(always)]
pub fn bhrb_entry<const N: u16>() -> u64 {
    bhrb::entry::<N>()
}

/// Clears the Branch History Rolling Buffer.
pub fn bhrb_clear() {
    // SAFETY: clrbhrb touches no register and no memory.
    unsafe {
        core::arch::asm!(
            fixed_up_in_handler!("clrbhrb"),
            options(nostack, preserves_flags)
        )
    }
}
