// SPDX-License-Identifier: GPL-2.0

//! Reads instructions of the current program and of the kernel in an interrupt. One that would take
//! a page fault is not read.

use super::{
    bindings,
    pmu::LocalPmu, //
};
use core::marker::PhantomData;

/// Access to instructions: the program's memory is open to the kernel, and page faults fail.
///
/// # Invariants
///
/// `ebb_pmu_user_access_begin()` was called on this CPU, which the value does not leave: it borrows
/// a [`LocalPmu`].
pub(crate) struct Instructions<'a>(PhantomData<&'a LocalPmu<'a>>);

impl<'a> Instructions<'a> {
    /// Opens the program's memory until the value is dropped.
    #[inline]
    pub(crate) fn open(_local: &'a LocalPmu<'a>) -> Self {
        // SAFETY: `drop` ends it on the same CPU, as interrupts are off until then.
        unsafe { bindings::ebb_pmu_user_access_begin() };
        // INVARIANT: Called just now.
        Self(PhantomData)
    }

    /// The instruction at `address`, `None` if it cannot be read.
    #[inline]
    pub(crate) fn at(&self, address: u64) -> Option<u32> {
        // SAFETY: Memory is open by the type invariants; any address will do.
        // CAST: An address has 64 bits on this machine.
        let instruction = unsafe { bindings::ebb_pmu_instruction(address as usize) };
        // An errno is negative.
        u32::try_from(instruction).ok()
    }
}

impl Drop for Instructions<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: Memory is open, on this CPU, by the type invariants.
        unsafe { bindings::ebb_pmu_user_access_end() };
    }
}
