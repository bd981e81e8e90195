// SPDX-License-Identifier: GPL-2.0

//! Learning that a task begins another program (`execve`), whose registers the architecture's code
//! leaves as the old one had them.
//!
//! The notice is the tracepoint `sched_process_exec`, which every successful `execve` passes, in the
//! task, when the old program is gone and before the new one runs.

use super::{
    bindings,
    pmu::LocalPmu, //
};
use core::ffi::c_void;
use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
    types::ForeignOwnable, //
};

/// Who is told.
pub(crate) trait OnExec: Send + Sync + 'static {
    /// The current task begins another program. Interrupts are off; `local` is its CPU's PMU.
    fn exec(&self, local: &LocalPmu);
}

/// # Safety
///
/// `data` must be an `Arc<T>` made by `into_foreign`, interrupts be off until this returns.
unsafe extern "C" fn trampoline<T: OnExec>(data: *mut c_void) {
    // SAFETY: The caller guarantees it.
    let on_exec: ArcBorrow<'_, T> = unsafe { Arc::<T>::borrow(data) };
    // SAFETY: The caller guarantees that interrupts are off.
    on_exec.exec(&unsafe { LocalPmu::new() });
}

/// Tells of each `execve` while it lives. There is at most one.
///
/// # Invariants
///
/// `data` is an `Arc<T>` of its own, with which the tracepoint calls `trampoline::<T>`.
pub(crate) struct ExecWatch<T: OnExec> {
    data: *mut c_void,
    on_exec: core::marker::PhantomData<Arc<T>>,
}

// SAFETY: It is an `Arc<T>`, used by `drop` only.
unsafe impl<T: OnExec> Send for ExecWatch<T> {}
// SAFETY: As above.
unsafe impl<T: OnExec> Sync for ExecWatch<T> {}

impl<T: OnExec> ExecWatch<T> {
    /// Starts telling `on_exec`. Fails with `ENOENT` when the kernel has no such tracepoint.
    pub(crate) fn new(on_exec: Arc<T>) -> Result<Self> {
        let data = on_exec.into_foreign();
        // SAFETY: The trampoline matches the type of `data`, which lives until `drop` is done.
        let watched = unsafe { bindings::ebb_pmu_exec_watch(Some(trampoline::<T>), data) };
        if let Err(e) = to_result(watched) {
            // SAFETY: Made by `into_foreign` above; nobody else has it.
            drop(unsafe { Arc::<T>::from_foreign(data) });
            return Err(e);
        }
        // INVARIANT: Registered just now.
        Ok(Self {
            data,
            on_exec: core::marker::PhantomData,
        })
    }
}

impl<T: OnExec> Drop for ExecWatch<T> {
    fn drop(&mut self) {
        // SAFETY: Registered by the type invariants. This waits until no call is under way.
        unsafe { bindings::ebb_pmu_exec_unwatch(self.data) };
        // SAFETY: By the type invariants it is an `Arc<T>`; nobody is called with it any more.
        drop(unsafe { Arc::<T>::from_foreign(self.data) });
    }
}
