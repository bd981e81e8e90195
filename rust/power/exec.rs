// SPDX-License-Identifier: GPL-2.0

//! Notice of each `execve`: the architecture's code leaves the PMU state of the old program to the
//! new one.
//!
//! Every successful `execve` passes the tracepoint `sched_process_exec` in the task, after the old
//! program is gone and before the new one runs.
//!
//! C header: [`include/linux/tracepoint.h`](srctree/include/linux/tracepoint.h)

use super::{
    bindings::ebb_pmu_tracepoint_synchronize_unregister,
    pmu::LocalPmu, //
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    error::to_result,
    interrupt::local_interrupt_disable,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
    types::ForeignOwnable, //
};

/// What is to be done at each `execve`.
pub(crate) trait OnExec: Send + Sync + 'static {
    /// The current task is about to run another program. Interrupts are off; `local` is its CPU's
    /// PMU.
    fn exec(&self, local: &LocalPmu);
}

/// Calls [`OnExec::exec`] while it lives.
///
/// # Invariants
///
/// `probe::<T>` is registered with `tracepoint` and `data`, an `Arc<T>` of its own.
pub(crate) struct ExecWatch<T: OnExec> {
    tracepoint: NonNull<bindings::tracepoint>,
    data: *mut c_void,
    on_exec: PhantomData<Arc<T>>,
}

// SAFETY: It is an `Arc<T>`, used by `drop` only.
unsafe impl<T: OnExec> Send for ExecWatch<T> {}
// SAFETY: As above.
unsafe impl<T: OnExec> Sync for ExecWatch<T> {}

impl<T: OnExec> ExecWatch<T> {
    /// Starts calling `on_exec`. Fails with `ENOENT` when the kernel has no such tracepoint.
    pub(crate) fn new(on_exec: Arc<T>) -> Result<Self> {
        let tracepoint = find_tracepoint().ok_or(ENOENT)?;
        let data = on_exec.into_foreign();
        let function: Probe = probe::<T>;
        // SAFETY: The probe's arguments are those of the tracepoint; its data is an `Arc<T>`, which
        // lives until `drop` is done.
        let registered = unsafe {
            bindings::tracepoint_probe_register(tracepoint.as_ptr(), function as *mut c_void, data)
        };
        if let Err(error) = to_result(registered) {
            // SAFETY: Made by `into_foreign` above; nobody else has it.
            drop(unsafe { Arc::<T>::from_foreign(data) });
            return Err(error);
        }
        // INVARIANT: Registered just now.
        Ok(Self {
            tracepoint,
            data,
            on_exec: PhantomData,
        })
    }
}

impl<T: OnExec> Drop for ExecWatch<T> {
    fn drop(&mut self) {
        let function: Probe = probe::<T>;
        // SAFETY: Registered so by the type invariants. The second function waits until no call is
        // under way, so nobody uses the `Arc<T>` any more.
        unsafe {
            bindings::tracepoint_probe_unregister(
                self.tracepoint.as_ptr(),
                function as *mut c_void,
                self.data,
            );
            ebb_pmu_tracepoint_synchronize_unregister();
            drop(Arc::<T>::from_foreign(self.data));
        }
    }
}

/// A function that the tracepoint calls: with its own data, then the arguments of the event.
type Probe = unsafe extern "C" fn(
    *mut c_void,
    *mut bindings::task_struct,
    bindings::pid_t,
    *mut bindings::linux_binprm,
);

/// # Safety
///
/// To be called by the tracepoint, with an `Arc<T>` made by `into_foreign` as `data`.
unsafe extern "C" fn probe<T: OnExec>(
    data: *mut c_void,
    _task: *mut bindings::task_struct,
    _old_pid: bindings::pid_t,
    _program: *mut bindings::linux_binprm,
) {
    // SAFETY: The caller guarantees it.
    let on_exec: ArcBorrow<'_, T> = unsafe { Arc::<T>::borrow(data) };
    let _off = local_interrupt_disable();
    // SAFETY: Interrupts are off until `_off` is dropped, after it.
    on_exec.exec(&unsafe { LocalPmu::new() });
}

/// The tracepoint that every `execve` passes.
fn find_tracepoint() -> Option<NonNull<bindings::tracepoint>> {
    /// Stores `tracepoint` in `found` if it has the name.
    ///
    /// # Safety
    ///
    /// `tracepoint` must be valid, `found` a pointer to a pointer to a tracepoint.
    unsafe extern "C" fn compare(tracepoint: *mut bindings::tracepoint, found: *mut c_void) {
        // SAFETY: The caller guarantees it; the name is a string that lasts.
        let name = unsafe { CStr::from_char_ptr((*tracepoint).name) };
        if name == c"sched_process_exec" {
            // SAFETY: The caller guarantees it.
            unsafe { *found.cast() = tracepoint };
        }
    }

    let mut found = core::ptr::null_mut::<bindings::tracepoint>();
    // SAFETY: `compare` is called with each tracepoint of the kernel proper, which never go away, and
    // with a pointer to `found`, until this returns.
    unsafe { bindings::for_each_kernel_tracepoint(Some(compare), (&raw mut found).cast()) };
    NonNull::new(found)
}
