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
/// Page faults fail on this CPU, which the value does not leave: only [`Instructions::open`] has
/// it.
pub(crate) struct Instructions(PhantomData<*mut ()>);

impl Instructions {
    /// Opens the program's memory while `f` runs. (`f` may do so in turn, but finds the program's
    /// memory closed afterwards.)
    #[inline]
    pub(crate) fn open<R>(_local: &LocalPmu<'_>, f: impl FnOnce(&Self) -> R) -> R {
        // SAFETY: It is ended below, on the same CPU, as interrupts are off until then.
        unsafe { bindings::ebb_pmu_user_access_begin() };
        // INVARIANT: Page faults fail as of now, and until `f` has returned.
        let result = f(&Self(PhantomData));
        // SAFETY: Begun above.
        unsafe { bindings::ebb_pmu_user_access_end() };
        result
    }

    /// The instruction at `address`, `None` if it cannot be read.
    #[inline]
    pub(crate) fn at(&self, address: u64) -> Option<u32> {
        // SAFETY: Any address will do, as page faults fail by the type invariants.
        // CAST: An address has 64 bits on this machine.
        let instruction = unsafe { bindings::ebb_pmu_instruction(address as usize) };
        // An errno is negative.
        u32::try_from(instruction).ok()
    }
}
