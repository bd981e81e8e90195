// SPDX-License-Identifier: GPL-2.0

//! Instructions of the current program and of the kernel, read in an interrupt: what is not there
//! at once is not read.

use super::{
    bindings,
    pmu::LocalPmu, //
};
use core::marker::PhantomData;

/// Access to instructions. While it lives, page faults end in failure, so nothing may be done that
/// needs them.
///
/// # Invariants
///
/// Access was begun on this CPU, which the value does not leave: it borrows a [`LocalPmu`].
pub(crate) struct Code<'a>(PhantomData<&'a LocalPmu>);

impl<'a> Code<'a> {
    /// Opens programs' memory, on a CPU with interrupts off.
    #[inline]
    pub(crate) fn open(_local: &'a LocalPmu) -> Self {
        // SAFETY: Ended in `drop`, on the same CPU, as interrupts are off until then.
        unsafe { bindings::ebb_pmu_user_access_begin() };
        // INVARIANT: Begun just now.
        Self(PhantomData)
    }

    /// The instruction at `address`, `None` where none can be read.
    #[inline]
    pub(crate) fn at(&self, address: u64) -> Option<u32> {
        // SAFETY: Access was begun. Any address will do; one that is not mapped gives no instruction.
        // CAST: An address has 64 bits on this machine.
        let instruction = unsafe { bindings::ebb_pmu_instruction(address as usize) };
        // A negative number stands for none.
        u32::try_from(instruction).ok()
    }
}

impl Drop for Code<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: Begun on this CPU by the type invariants.
        unsafe { bindings::ebb_pmu_user_access_end() };
    }
}
