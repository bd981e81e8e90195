// SPDX-License-Identifier: GPL-2.0

//! The PMU registers of a task that does not run, as its `struct thread_struct` keeps them.
//!
//! The kernel's context switch itself saves and restores BESCR, EBBHR and EBBRR. `ptrace` and core
//! dumps show the others.
//!
//! C header: [`arch/powerpc/include/asm/processor.h`](srctree/arch/powerpc/include/asm/processor.h)

use super::{
    cache::PmuCache,
    pmu::{
        LocalPmu,
        RegisterSet, //
    },
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

/// Returns a register's value in the type that C uses.
fn long(value: u64) -> c_ulong {
    // CAST: An `unsigned long` has 64 bits on this machine; in Rust it is a `usize`.
    value as c_ulong
}

/// Returns a register's value from the type that C uses.
fn value(long: c_ulong) -> u64 {
    // CAST: An `unsigned long` has 64 bits on this machine; in Rust it is a `usize`.
    long as u64
}

/// The PMU registers that the kernel keeps for the current task.
///
/// # Invariants
///
/// The pointer is to the `thread` of the current task. The task remains the current one, and no
/// other code writes these registers, because interrupts are off while the [`LocalPmu`] lives.
pub(crate) struct CurrentThread<'a>(*mut bindings::thread_struct, PhantomData<&'a LocalPmu<'a>>);

impl<'a> CurrentThread<'a> {
    /// Returns the registers of the current task.
    pub(crate) fn new(_local: &'a LocalPmu<'a>) -> Self {
        // SAFETY: There is always a current task.
        let thread = unsafe { &raw mut (*spr::current_task()).thread };
        // INVARIANT: The pointer is to the current task's `thread`, and the value borrows `_local`.
        Self(thread, PhantomData)
    }

    /// Returns the bits of the saved MMCR0 that the program may write.
    pub(crate) fn mmcr0(&self) -> Mmcr0 {
        // SAFETY: The pointer is valid by the type invariants.
        Mmcr0::from(u64::from(unsafe { (*self.0).mmcr0 })).user()
    }

    /// Returns the bits of the saved MMCR2 that the program may write.
    pub(crate) fn mmcr2(&self) -> u64 {
        // SAFETY: The pointer is valid by the type invariants.
        value(unsafe { (*self.0).mmcr2 }) & MMCR2_USER
    }

    /// Resets the registers for a program's first EBB event: without values of a parent or of
    /// events that the program closed, and with alerts enabled.
    ///
    /// BESCR, EBBHR and EBBRR always belong to the program and do not change.
    pub(crate) fn reset(&self) {
        let alerts_enabled = Mmcr0::from(0).with_const_pmae::<1>();
        // SAFETY: By the type invariants the pointer is valid, and no other code writes the
        // registers.
        // CAST: MMCR0 uses only its lower half.
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

    /// Resets the registers for a new program: like [`CurrentThread::reset`], and with EBBs off and
    /// no handler.
    pub(crate) fn reset_for_exec(&self) {
        self.reset();
        Bescr::from(0).write();
        Ebbhr::write(0);
        Ebbrr::write(0);
    }

    /// Saves the program's bits of MMCR0, given its value before the PMU was frozen.
    pub(crate) fn save_mmcr0(&self, mmcr0: Mmcr0) {
        // SAFETY: By the type invariants the pointer is valid, and no other code writes the
        // registers.
        // CAST: MMCR0 uses only its lower half.
        unsafe { (*self.0).mmcr0 = u64::from(mmcr0.user()) as c_uint };
    }

    /// Saves the program's bits of MMCR2, given its value before the PMU was frozen.
    pub(crate) fn save_mmcr2(&self, mmcr2: u64) {
        // SAFETY: By the type invariants the pointer is valid, and no other code writes the
        // registers.
        unsafe { (*self.0).mmcr2 = long(mmcr2 & MMCR2_USER) };
    }

    /// Saves the program's other registers from the frozen PMU. `mmcr3` is the value that the
    /// driver wrote to MMCR3.
    pub(crate) fn save_sampled_registers(&self, cache: &PmuCache, set: RegisterSet, mmcr3: u64) {
        // SAFETY: By the type invariants the pointer is valid, and no other code writes the
        // registers.
        unsafe {
            (*self.0).siar = long(Siar::read());
            (*self.0).sier = long(cache.read::<Sier>());
            (*self.0).sdar = long(Sdar::read());
            if set == RegisterSet::V31 {
                (*self.0).mmcr3 = long(mmcr3);
                (*self.0).sier2 = long(cache.read::<Sier2>());
                (*self.0).sier3 = long(cache.read::<Sier3>());
            }
        }
    }

    /// Restores the program's registers, except MMCR0 and MMCR2, which the driver merges with its
    /// own bits. From now on `ptrace` and core dumps show the saved ones.
    pub(crate) fn restore_sampled_registers(&self, cache: &PmuCache, set: RegisterSet) {
        // SAFETY: By the type invariants the pointer is valid, and no other code writes the
        // registers.
        unsafe {
            (*self.0).used_ebb = 1;
            Siar::write(value((*self.0).siar));
            Sdar::write(value((*self.0).sdar));
            cache.write::<Sier>(value((*self.0).sier));
            if set == RegisterSet::V31 {
                cache.write::<Sier2>(value((*self.0).sier2));
                cache.write::<Sier3>(value((*self.0).sier3));
            }
        }
    }
}
