// SPDX-License-Identifier: GPL-2.0

//! Guarantees that functions of the module are not called after the module is unloaded.

/// A permit to register functions of this module with the kernel. If they stayed registered after
/// the module is unloaded, the kernel would call freed memory.
///
/// # Invariants
///
/// Everything that is made with the permit is dropped before the module is unloaded.
#[derive(Clone, Copy)]
pub(crate) struct CallbackPermit(());

impl CallbackPermit {
    /// Makes a permit.
    ///
    /// # Safety
    ///
    /// The caller must guarantee that everything that is made with the permit, or with a copy of
    /// it, is dropped before the module is unloaded. Nothing may be leaked, for example by an
    /// [`Arc`](kernel::sync::Arc) that is owned by its own contents.
    pub(crate) unsafe fn new() -> Self {
        // INVARIANT: The caller guarantees that all is dropped in time.
        Self(())
    }
}
