// SPDX-License-Identifier: GPL-2.0

//! What the kernel keeps of a task's PMU while the task does not run: part of `struct
//! thread_struct`.
//!
//! The architecture's context switch saves and restores BESCR, EBBHR and EBBRR; `ptrace` and core
//! dumps show the rest.
//!
//! C header: [`arch/powerpc/include/asm/processor.h`](srctree/arch/powerpc/include/asm/processor.h)

use super::{
    pmu::LocalPmu,
    regs::{
        Bescr,
        Ebbhr,
        Ebbrr,
        Mmcr0,
        Mmcr2,
        Sdar,
        Siar,
        Sier,
        Sier2,
        Sier3,
        MMCR2_USER, //
    }, //
};
use core::marker::PhantomData;
use kernel::bindings;

/// A register as C keeps it.
fn long(value: u64) -> usize {
    // CAST: An `unsigned long` has 64 bits on this machine; Rust has it as `usize`.
    value as usize
}

/// What C keeps, as a register.
fn value(long: usize) -> u64 {
    // CAST: As in `long`.
    long as u64
}

/// The current task's saved PMU registers.
///
/// # Invariants
///
/// The pointer is to the current task's `thread`, and the value does not outlive a time with
/// interrupts off, so the task stays current and nobody else writes to it.
pub(crate) struct CurrentThread<'a>(*mut bindings::thread_struct, PhantomData<&'a LocalPmu>);

/// Which of the registers a CPU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registers {
    /// Those of ISA v2.07 and v3.0.
    Base,
    /// With SIER2 and SIER3, since v3.1.
    Extended,
}

impl<'a> CurrentThread<'a> {
    /// Takes the current task, which stays current while interrupts are off.
    pub(crate) fn new(_local: &'a LocalPmu) -> Self {
        // SAFETY: There is always a current task.
        let thread = unsafe { &raw mut (*bindings::get_current()).thread };
        // INVARIANT: The borrow of `_local` bounds the value's life to a time with interrupts off.
        Self(thread, PhantomData)
    }

    /// The program's own bits of MMCR0.
    pub(crate) fn mmcr0(&self) -> Mmcr0 {
        // SAFETY: Valid by the type invariants.
        Mmcr0::from(u64::from(unsafe { (*self.0).mmcr0 })).user()
    }

    /// The program's own bits of MMCR2.
    pub(crate) fn mmcr2(&self) -> u64 {
        // SAFETY: Valid by the type invariants.
        value(unsafe { (*self.0).mmcr2 }) & MMCR2_USER
    }

    /// Makes the state what a program expects that has had no EBB event so far: nothing of a
    /// parent's or of events it closed, alerts on.
    ///
    /// The registers that the architecture's code switches are the program's all the time, and stay.
    pub(crate) fn reset(&self) {
        let alerts_on = Mmcr0::from(0).with_const_pmae::<1>();
        // SAFETY: Valid by the type invariants; nobody else writes these fields.
        // CAST: Only the lower half of MMCR0 is in use.
        unsafe {
            (*self.0).used_ebb = 0;
            (*self.0).mmcr0 = u64::from(alerts_on) as u32;
            (*self.0).mmcr2 = 0;
            (*self.0).mmcr3 = 0;
            (*self.0).siar = 0;
            (*self.0).sdar = 0;
            (*self.0).sier = 0;
            (*self.0).sier2 = 0;
            (*self.0).sier3 = 0;
        }
    }

    /// Makes the state that of a task that begins a program: as [`CurrentThread::reset`], and no
    /// handler, in the registers too.
    pub(crate) fn begin_program(&self) {
        self.reset();
        Bescr::from(0).write();
        Ebbhr::write(0);
        Ebbrr::write(0);
    }

    /// Saves the program's registers; `mmcr0` is its MMCR0 from before it was frozen, `mmcr3` what
    /// the kernel has set there.
    pub(crate) fn save(&self, registers: Registers, mmcr0: Mmcr0, mmcr3: u64) {
        // SAFETY: Valid by the type invariants; nobody else writes these fields.
        // CAST: Only the lower half of MMCR0 is in use.
        unsafe {
            (*self.0).siar = long(Siar::read());
            (*self.0).sier = long(Sier::read().into());
            (*self.0).sdar = long(Sdar::read());
            (*self.0).mmcr0 = u64::from(mmcr0.user()) as u32;
            (*self.0).mmcr2 = long(Mmcr2::read() & MMCR2_USER);
            if registers == Registers::Extended {
                (*self.0).mmcr3 = long(mmcr3);
                (*self.0).sier2 = long(Sier2::read());
                (*self.0).sier3 = long(Sier3::read());
            }
        }
    }

    /// Restores those of the program's registers that need nothing of the kernel's added, and lets
    /// `ptrace` and core dumps show the program's state from now on.
    pub(crate) fn restore(&self, registers: Registers) {
        // SAFETY: Valid by the type invariants; nobody else writes these fields.
        unsafe {
            (*self.0).used_ebb = 1;
            Siar::write(value((*self.0).siar));
            Sier::from(value((*self.0).sier)).write();
            Sdar::write(value((*self.0).sdar));
            if registers == Registers::Extended {
                Sier2::write(value((*self.0).sier2));
                Sier3::write(value((*self.0).sier3));
            }
        }
    }
}
