// SPDX-License-Identifier: GPL-2.0

//! A callback at each `execve`, where the kernel leaves the PMU state of the old program to the new
//! one.
//!
//! Every successful `execve` passes the tracepoint `sched_process_exec`, in the task, after the old
//! program is gone and before the new one runs.
//!
//! C header: [`include/linux/tracepoint.h`](srctree/include/linux/tracepoint.h)

use super::{
    bindings::ebb_pmu_tracepoint_synchronize_unregister,
    callback::CallbackPermit,
    pmu::LocalPmu,
    spr, //
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
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc,
        ArcBorrow, //
    },
    types::ForeignOwnable, //
};

/// Tells the current task's program from those that the task executed before: a number that each
/// `execve` counts up before it calls [`OnExec::exec`].
pub(crate) fn current_program() -> u64 {
    // SAFETY: There is always a current task, and only `execve` in that task writes the field.
    unsafe { (*spr::current_task()).self_exec_id }
}

/// The `execve` that the current task is in, about to run another program.
///
/// # Invariants
///
/// The code that has it is in process context, with interrupts off.
pub(crate) struct Execve<'a>(LocalPmu<'a>);

impl<'a> Execve<'a> {
    /// The PMU of the task's CPU.
    pub(crate) fn local(&self) -> &LocalPmu<'a> {
        &self.0
    }
}

/// What to do at each `execve`.
pub(crate) trait OnExec: Send + Sync + 'static {
    /// Called with interrupts off when the current task is about to run another program.
    fn exec(&self, execve: &Execve<'_>);
}

/// Whether there is an [`ExecWatch`].
static WATCHED: Atomic<bool> = Atomic::new(false);

/// Calls [`OnExec::exec`] while it lives.
///
/// # Invariants
///
/// It is the only one: `WATCHED` is set, and cleared by its `drop`. `probe::<T>` is registered with
/// `tracepoint` and with `data`, an `Arc<T>` that this value owns.
pub(crate) struct ExecWatch<T: OnExec> {
    tracepoint: NonNull<bindings::tracepoint>,
    data: *mut c_void,
    on_exec: PhantomData<Arc<T>>,
}

// SAFETY: It owns an `Arc<T>`, which only `drop` uses.
unsafe impl<T: OnExec> Send for ExecWatch<T> {}
// SAFETY: As above.
unsafe impl<T: OnExec> Sync for ExecWatch<T> {}

impl<T: OnExec> ExecWatch<T> {
    /// Starts calling `on_exec`. Fails with `EBUSY` if there is another one, and with `ENOENT` if
    /// the kernel has no such tracepoint.
    pub(crate) fn new(_permit: CallbackPermit, on_exec: Arc<T>) -> Result<Self> {
        let tracepoint = find_tracepoint().ok_or(ENOENT)?;
        WATCHED.cmpxchg(false, true, Acquire).map_err(|_| EBUSY)?;
        let data = on_exec.into_foreign();
        let function: Probe = probe::<T>;
        // SAFETY: The probe has the tracepoint's arguments, and gets the `Arc<T>` that it takes.
        // `drop` keeps that until no probe is running, and comes, by the permit's invariants.
        let registered = unsafe {
            bindings::tracepoint_probe_register(tracepoint.as_ptr(), function as *mut c_void, data)
        };
        if let Err(error) = to_result(registered) {
            // SAFETY: Made by `into_foreign` above, and not passed on.
            drop(unsafe { Arc::<T>::from_foreign(data) });
            WATCHED.store(false, Release);
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
        // SAFETY: Registered so by the type invariants. The second function waits until no probe is
        // running, so nobody uses the `Arc<T>` any more.
        unsafe {
            bindings::tracepoint_probe_unregister(
                self.tracepoint.as_ptr(),
                function as *mut c_void,
                self.data,
            );
            ebb_pmu_tracepoint_synchronize_unregister();
            drop(Arc::<T>::from_foreign(self.data));
        }
        WATCHED.store(false, Release);
    }
}

/// What the tracepoint calls: with the data that was registered, then the event's arguments.
type Probe = unsafe extern "C" fn(
    *mut c_void,
    *mut bindings::task_struct,
    bindings::pid_t,
    *mut bindings::linux_binprm,
);

/// # Safety
///
/// `data` must be an `Arc<T>` made by `into_foreign`.
unsafe extern "C" fn probe<T: OnExec>(
    data: *mut c_void,
    _task: *mut bindings::task_struct,
    _old_pid: bindings::pid_t,
    _program: *mut bindings::linux_binprm,
) {
    // SAFETY: The caller guarantees it.
    let on_exec: ArcBorrow<'_, T> = unsafe { Arc::<T>::borrow(data) };
    let _off = local_interrupt_disable();
    // SAFETY: Interrupts are off until `_off` is dropped, after it. INVARIANT: The tracepoint is
    // in `exec_binprm()`.
    on_exec.exec(&Execve(unsafe { LocalPmu::new() }));
}

/// Finds the tracepoint that every `execve` passes. It is not exported, so go by its name.
fn find_tracepoint() -> Option<NonNull<bindings::tracepoint>> {
    /// Stores `tracepoint` in `found` if it is the one.
    ///
    /// # Safety
    ///
    /// `tracepoint` must be valid, and `found` point to a pointer to a tracepoint.
    unsafe extern "C" fn compare(tracepoint: *mut bindings::tracepoint, found: *mut c_void) {
        // SAFETY: The caller guarantees it; a tracepoint has a name.
        let name = unsafe { CStr::from_char_ptr((*tracepoint).name) };
        if name == c"sched_process_exec" {
            // SAFETY: The caller guarantees it.
            unsafe { *found.cast() = tracepoint };
        }
    }

    let mut found = core::ptr::null_mut::<bindings::tracepoint>();
    // SAFETY: The kernel calls `compare` with each of its own tracepoints, which never go away, and
    // with the pointer to `found`, before this returns.
    unsafe { bindings::for_each_kernel_tracepoint(Some(compare), (&raw mut found).cast()) };
    NonNull::new(found)
}
