// SPDX-License-Identifier: GPL-2.0

//! Functions of the module that the kernel calls must not outlive it.

/// Permits to register functions of this module with the kernel, which would call what is no longer
/// there if they stayed registered for longer than the module is loaded.
///
/// # Invariants
///
/// What is made with it is dropped before the module is unloaded.
#[derive(Clone, Copy)]
pub(crate) struct CallbackPermit(());

impl CallbackPermit {
    /// # Safety
    ///
    /// The caller must have everything that is made with the permit, or with a copy of it, dropped
    /// before the module is unloaded: nothing may be leaked, as by an [`Arc`](kernel::sync::Arc)
    /// that is owned by what it owns.
    pub(crate) unsafe fn new() -> Self {
        // INVARIANT: The caller guarantees it.
        Self(())
    }
}
