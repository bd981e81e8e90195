// SPDX-License-Identifier: MIT OR Apache-2.0
//! Typed values of BESCR, MMCR0 and MMCR2.
//!
//! Bit numbers in the docs are those of the ISA (0 is the most significant of 64). Source: Power
//! ISA v3.1, Book II section 7.2 (BESCR) and Book III section 10.4 (MMCR0, MMCR2).

use crate::pmc::Pmc;
use crate::spr;
use core::fmt;
use core::ops::BitOr;

/// A value of the Branch Event Status and Control Register.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Bescr(pub u64);

impl Bescr {
    /// GE (bit 0): event-based branches are enabled.
    pub const GE: Self = Self(1 << 63);
    /// PME (bit 31): performance monitor event-based exceptions are enabled.
    pub const PME: Self = Self(1 << 32);
    /// PMEO (bit 63): such an exception has occurred.
    pub const PMEO: Self = Self(1);

    /// Reads the register.
    #[inline(always)]
    #[must_use]
    pub fn read() -> Self {
        // SAFETY: Problem state can always read BESCR, without side effects.
        Self(unsafe { spr::read::<{ spr::BESCR }>() })
    }

    /// Writes the register.
    ///
    /// # Safety
    ///
    /// If GE is set, EBBHR holds the address of a valid entry ([`install`](crate::install) was
    /// called on this thread), or it is 0 and nothing can raise an exception.
    #[inline(always)]
    pub unsafe fn write(self) {
        // SAFETY: The caller guarantees what `spr::write` requires.
        unsafe { spr::write::<{ spr::BESCR }>(self.0) }
    }
}

/// A value of Monitor Mode Control Register 0. Problem state can access three of its bits.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Mmcr0(pub u64);

impl Mmcr0 {
    /// FC (bit 32): all counters are frozen.
    pub const FC: Self = Self(0x8000_0000);
    /// PMAE (bit 37): a counter that turns negative raises an alert. The kernel
    /// calls it PMXE.
    pub const PMAE: Self = Self(0x0400_0000);
    /// PMAO (bit 56): an alert has occurred.
    pub const PMAO: Self = Self(0x80);

    /// Reads the register. Raises SIGILL if no EBB event is scheduled.
    #[inline(always)]
    #[must_use]
    pub fn read() -> Self {
        // SAFETY: Reading MMCR0 has no side effect.
        Self(unsafe { spr::read::<{ spr::MMCR0 }>() })
    }

    /// Writes FC, PMAE and PMAO. Raises SIGILL if no EBB event is scheduled.
    #[inline(always)]
    pub fn write(self) {
        // SAFETY: Problem state can only freeze counters and gate alerts here; BESCR decides
        // whether a branch may occur.
        unsafe { spr::write::<{ spr::MMCR0 }>(self.0) }
    }

    /// Writes FC, PMAE and PMAO, without effect if no EBB event is scheduled.
    pub(crate) fn write_always(self) {
        // SAFETY: Problem state can only freeze counters and gate alerts here; BESCR decides
        // whether a branch may occur.
        unsafe { spr::write_always::<{ spr::MMCR0 }>(self.0) }
    }
}

/// A value of Monitor Mode Control Register 2.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Mmcr2(pub u64);

impl Mmcr2 {
    /// FC1P to FC6P (bits 1, 10, 19, 28, 37, 46): the bits a program may set.
    pub const USER: Self = Self(0x4020_1008_0402_0000);

    /// Returns FCnP, which freezes `pmc` (PMCn) in problem state.
    #[must_use]
    pub const fn freeze_problem(pmc: Pmc) -> Self {
        Self((1 << 62) >> (pmc.index() * 9))
    }

    /// Reads the register. Raises SIGILL if no EBB event is scheduled.
    #[inline(always)]
    #[must_use]
    pub fn read() -> Self {
        // SAFETY: Reading MMCR2 has no side effect.
        Self(unsafe { spr::read::<{ spr::MMCR2 }>() })
    }

    /// Writes the bits of [`Mmcr2::USER`]. Raises SIGILL if no EBB event is scheduled.
    #[inline(always)]
    pub fn write(self) {
        // SAFETY: The register only freezes counters.
        unsafe { spr::write::<{ spr::MMCR2 }>(self.0) }
    }
}

/// Implements the methods of register values; `Debug` prints the names of the `$bit`s.
macro_rules! value_type {
    ($type:ident, $($bit:ident),*) => {
        impl $type {
            /// Returns whether every bit of `bits` is set.
            #[must_use]
            pub const fn has(self, bits: Self) -> bool {
                self.0 & bits.0 == bits.0
            }

            /// Returns this value with `bits` cleared.
            #[must_use]
            pub const fn without(self, bits: Self) -> Self {
                Self(self.0 & !bits.0)
            }
        }

        impl BitOr for $type {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:#x}", stringify!($type), self.0)?;
                $(if self.has(Self::$bit) {
                    write!(f, " {}", stringify!($bit))?;
                })*
                f.write_str(")")
            }
        }
    };
}

value_type!(Bescr, GE, PME, PMEO);
value_type!(Mmcr0, FC, PMAE, PMAO);
value_type!(Mmcr2,);
