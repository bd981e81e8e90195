// SPDX-License-Identifier: GPL-2.0

//! The PMU registers of a task that does not run, kept in its `struct thread_struct`.
//!
//! The kernel's context switch saves and restores BESCR, EBBHR and EBBRR itself. `ptrace` and core
//! dumps show the others.
//!
//! C header: [`arch/powerpc/include/asm/processor.h`](srctree/arch/powerpc/include/asm/processor.h)

use super::{
    pmu::LocalPmu,
    regs::{
        Bescr,
        Ebbhr,
        Ebbrr,
        Mmcr0,
        Sdar,
        Siar,
        Sier,
        Sier2,
        Sier3,
        MMCR2_USER, //
    },
    spr, //
};
use core::marker::PhantomData;
use kernel::{
    bindings,
    prelude::*, //
};

/// A register's value as C keeps it.
fn long(value: u64) -> c_ulong {
    // CAST: An `unsigned long` has 64 bits on this machine; in Rust it is a `usize`.
    value as c_ulong
}

/// A register's value that C keeps.
fn value(long: c_ulong) -> u64 {
    // CAST: As in `long`.
    long as u64
}

/// The PMU registers that the kernel keeps for the current task.
///
/// # Invariants
///
/// The pointer is to the `thread` of the current task. It stays the current one, and nobody else
/// writes these registers, as interrupts are off while the [`LocalPmu`] lives.
pub(crate) struct CurrentThread<'a>(*mut bindings::thread_struct, PhantomData<&'a LocalPmu<'a>>);

/// Which registers a CPU's PMU has.
///
/// The processor decides it, whatever ISA the kernel goes by: a partition in the compatibility mode
/// of an older processor has `CPU_FTR_ARCH_31` off, but its PMU is that of the processor, and the
/// compatibility mode (PCR) takes registers and fields away from problem state only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegisterSet {
    /// Those of ISA v2.07 and v3.0.
    V207,
    /// Those of ISA v3.1, which adds SIER2 and SIER3.
    V31,
}

/// The program's registers that an alert changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sampled {
    siar: u64,
    sier: u64,
    sdar: u64,
    /// 0 before ISA v3.1, as is SIER3.
    sier2: u64,
    sier3: u64,
}

impl Sampled {
    /// Reads them.
    #[inline]
    fn read(set: RegisterSet) -> Self {
        let v31 = set == RegisterSet::V31;
        Self {
            siar: Siar::read(),
            sier: Sier::read().into(),
            sdar: Sdar::read(),
            sier2: if v31 { Sier2::read() } else { 0 },
            sier3: if v31 { Sier3::read() } else { 0 },
        }
    }

    /// Writes SIAR and SDAR.
    #[inline]
    fn write_addresses(&self) {
        Siar::write(self.siar);
        Sdar::write(self.sdar);
    }

    /// Writes them.
    #[inline]
    fn write(&self, set: RegisterSet) {
        self.write_addresses();
        Sier::from(self.sier).write();
        if set == RegisterSet::V31 {
            Sier2::write(self.sier2);
            Sier3::write(self.sier3);
        }
    }
}

impl<'a> CurrentThread<'a> {
    /// The registers of the current task.
    pub(crate) fn new(_local: &'a LocalPmu<'a>) -> Self {
        // SAFETY: There is always a current task.
        let thread = unsafe { &raw mut (*spr::current_task()).thread };
        // INVARIANT: The value borrows `_local`.
        Self(thread, PhantomData)
    }

    /// The bits of the saved MMCR0 that the program may write.
    pub(crate) fn mmcr0(&self) -> Mmcr0 {
        // SAFETY: Valid by the type invariants.
        Mmcr0::from(u64::from(unsafe { (*self.0).mmcr0 })).user()
    }

    /// The bits of the saved MMCR2 that the program may write.
    pub(crate) fn mmcr2(&self) -> u64 {
        // SAFETY: Valid by the type invariants.
        value(unsafe { (*self.0).mmcr2 }) & MMCR2_USER
    }

    /// Resets the registers for a program's first EBB event: nothing of a parent's or of events
    /// that the program closed, alerts enabled.
    ///
    /// BESCR, EBBHR and EBBRR belong to the program at any time, and stay.
    pub(crate) fn reset(&self) {
        let alerts_enabled = Mmcr0::from(0).with_const_pmae::<1>();
        // SAFETY: Valid, and not written by others, by the type invariants.
        // CAST: Only the lower half of MMCR0 is in use.
        unsafe {
            (*self.0).used_ebb = 0;
            (*self.0).mmcr0 = u64::from(alerts_enabled) as c_uint;
            (*self.0).mmcr2 = 0;
            (*self.0).mmcr3 = 0;
            (*self.0).siar = 0;
            (*self.0).sdar = 0;
            (*self.0).sier = 0;
            (*self.0).sier2 = 0;
            (*self.0).sier3 = 0;
        }
    }

    /// Resets the registers for a new program: as [`CurrentThread::reset`], and with EBBs off and
    /// no handler.
    pub(crate) fn reset_for_exec(&self) {
        self.reset();
        Bescr::from(0).write();
        Ebbhr::write(0);
        Ebbrr::write(0);
    }

    /// Saves the program's bits of MMCR0, which was this before the PMU was frozen.
    pub(crate) fn save_mmcr0(&self, mmcr0: Mmcr0) {
        // SAFETY: Valid, and not written by others, by the type invariants.
        // CAST: Only the lower half of MMCR0 is in use.
        unsafe { (*self.0).mmcr0 = u64::from(mmcr0.user()) as c_uint };
    }

    /// Saves the program's bits of MMCR2, likewise.
    pub(crate) fn save_mmcr2(&self, mmcr2: u64) {
        // SAFETY: Valid, and not written by others, by the type invariants.
        unsafe { (*self.0).mmcr2 = long(mmcr2 & MMCR2_USER) };
    }

    /// Saves the program's other registers from the frozen PMU. `mmcr3` is what the driver wrote to
    /// MMCR3. Returns those that an alert changes.
    pub(crate) fn save_sampled(&self, set: RegisterSet, mmcr3: u64) -> Sampled {
        let sampled = Sampled::read(set);
        // SAFETY: Valid, and not written by others, by the type invariants.
        unsafe {
            (*self.0).siar = long(sampled.siar);
            (*self.0).sier = long(sampled.sier);
            (*self.0).sdar = long(sampled.sdar);
            if set == RegisterSet::V31 {
                (*self.0).mmcr3 = long(mmcr3);
                (*self.0).sier2 = long(sampled.sier2);
                (*self.0).sier3 = long(sampled.sier3);
            }
        }
        sampled
    }

    /// Restores the program's registers, except MMCR0 and MMCR2, which the driver merges with its
    /// own bits. From now on `ptrace` and core dumps show the saved ones. If the PMU holds SIER,
    /// SIER2 and SIER3 as they were saved (`held`), they are not written again.
    pub(crate) fn restore(&self, set: RegisterSet, held: Option<Sampled>) {
        let v31 = set == RegisterSet::V31;
        // SAFETY: Valid, and not written by others, by the type invariants.
        let wanted = unsafe {
            (*self.0).used_ebb = 1;
            Sampled {
                siar: value((*self.0).siar),
                sier: value((*self.0).sier),
                sdar: value((*self.0).sdar),
                sier2: if v31 { value((*self.0).sier2) } else { 0 },
                sier3: if v31 { value((*self.0).sier3) } else { 0 },
            }
        };
        // A frozen PMU with alerts off keeps SIER, but trace interrupts write SIAR and SDAR: a
        // debugger steps another program, or the kernel steps over a probe. MMCRA's SDAR mode may
        // have hardware write SDAR, too.
        match held {
            Some(held) if held == wanted => wanted.write_addresses(),
            _ => wanted.write(set),
        }
    }
}
