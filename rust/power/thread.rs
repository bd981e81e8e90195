// SPDX-License-Identifier: GPL-2.0

//! What the kernel keeps of a task's PMU while the task does not run: part of `struct
//! thread_struct`.
//!
//! The architecture's context switch saves and restores BESCR, EBBHR and EBBRR; `ptrace` and core
//! dumps show the rest.
//!
//! C header: [`arch/powerpc/include/asm/processor.h`](srctree/arch/powerpc/include/asm/processor.h)

use super::regs::Mmcr0;
use super::regs::Mmcr2;
use super::regs::Sdar;
use super::regs::Siar;
use super::regs::Sier;
use super::regs::Sier2;
use super::regs::Sier3;
use super::regs::MMCR2_USER;
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
pub(crate) struct CurrentThread(*mut bindings::thread_struct);

/// Which of the registers a CPU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registers {
    /// Those of ISA v2.07 and v3.0.
    Base,
    /// With SIER2 and SIER3, since v3.1.
    Extended,
}

impl CurrentThread {
    /// Takes the current task.
    ///
    /// # Safety
    ///
    /// Interrupts must be off while the value lives.
    pub(crate) unsafe fn new() -> Self {
        // SAFETY: There is always a current task. INVARIANT: The caller guarantees the rest.
        Self(unsafe { &raw mut (*bindings::get_current()).thread })
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
    pub(crate) fn reset(&self) {
        let alerts_on = Mmcr0::from(0).with_const_alert_enable::<1>();
        // SAFETY: Valid and ours to write by the type invariants.
        let thread = unsafe { &mut *self.0 };
        thread.used_ebb = 1;
        // CAST: Only the lower half of MMCR0 is in use.
        thread.mmcr0 = u64::from(alerts_on) as u32;
        thread.mmcr2 = 0;
        thread.mmcr3 = 0;
        thread.siar = 0;
        thread.sdar = 0;
        thread.sier = 0;
        thread.sier2 = 0;
        thread.sier3 = 0;
    }

    /// Saves the program's registers; `mmcr0` is its MMCR0 from before it was frozen, `mmcr3` what
    /// the kernel has set there.
    pub(crate) fn save(&self, registers: Registers, mmcr0: Mmcr0, mmcr3: u64) {
        // SAFETY: Valid and ours to write by the type invariants.
        let thread = unsafe { &mut *self.0 };
        thread.siar = long(Siar::read());
        thread.sier = long(Sier::read().into());
        thread.sdar = long(Sdar::read());
        // CAST: Only the lower half of MMCR0 is in use.
        thread.mmcr0 = u64::from(mmcr0.user()) as u32;
        thread.mmcr2 = long(Mmcr2::read() & MMCR2_USER);
        if registers == Registers::Extended {
            thread.mmcr3 = long(mmcr3);
            thread.sier2 = long(Sier2::read());
            thread.sier3 = long(Sier3::read());
        }
    }

    /// Restores those of the program's registers that need nothing of the kernel's added.
    pub(crate) fn restore(&self, registers: Registers) {
        // SAFETY: Valid by the type invariants.
        let thread = unsafe { &*self.0 };
        Siar::write(value(thread.siar));
        Sier::from(value(thread.sier)).write();
        Sdar::write(value(thread.sdar));
        if registers == Registers::Extended {
            Sier2::write(value(thread.sier2));
            Sier3::write(value(thread.sier3));
        }
    }
}
