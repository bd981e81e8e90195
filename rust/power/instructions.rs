// SPDX-License-Identifier: GPL-2.0

//! Reads instructions of the current program and of the kernel in an interrupt. An instruction is
//! not read if that would cause a page fault.

use super::{
    bindings,
    pmu::LocalPmu, //
};
use core::marker::PhantomData;

/// Access to instructions: the program's memory is open to the kernel, and page faults fail.
///
/// # Invariants
///
/// Page faults fail on this CPU. The value does not leave the CPU, because only
/// [`Instructions::open`] has it.
pub(crate) struct Instructions(PhantomData<*mut ()>);

impl Instructions {
    /// Opens the program's memory while `f` runs. If `f` calls this itself, the program's memory is
    /// closed for the rest of `f`.
    #[inline]
    pub(crate) fn open<R>(_local: &LocalPmu<'_>, f: impl FnOnce(&Self) -> R) -> R {
        // SAFETY: The access is ended below, on the same CPU, because interrupts are off until
        // then.
        unsafe { bindings::ebb_pmu_user_access_begin() };
        // INVARIANT: Page faults fail from now on until `f` has returned.
        let result = f(&Self(PhantomData));
        // SAFETY: The access was begun above.
        unsafe { bindings::ebb_pmu_user_access_end() };
        result
    }

    /// Returns the instruction at `address`; `None` if it cannot be read.
    #[inline]
    pub(crate) fn at(&self, address: u64) -> Option<u32> {
        // SAFETY: Any address is valid, because page faults fail by the type invariants.
        // CAST: An address has 64 bits on this machine.
        let instruction = unsafe { bindings::ebb_pmu_instruction(address as usize) };
        // A negative value is an errno, so the conversion fails.
        u32::try_from(instruction).ok()
    }
}
