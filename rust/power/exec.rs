// SPDX-License-Identifier: GPL-2.0

//! A callback at each `execve`, because the kernel keeps the old program's PMU state for the new
//! one.
//!
//! Every successful `execve` passes the tracepoint `sched_process_exec`, in the task, after the old
//! program's memory is freed and before the new program runs.
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

/// Returns a number that distinguishes the current task's program from those that the task executed
/// before. Each `execve` increments the number before it calls [`OnExec::exec`].
pub(crate) fn current_program() -> u64 {
    // SAFETY: There is always a current task, and only `execve` in that task writes the field.
    unsafe { (*spr::current_task()).self_exec_id }
}

/// An `execve` of the current task, which is about to run another program.
///
/// # Invariants
///
/// The code that has this value is in process context, with interrupts off.
pub(crate) struct Execve<'a>(LocalPmu<'a>);

impl<'a> Execve<'a> {
    /// Returns the PMU of the task's CPU.
    pub(crate) fn local(&self) -> &LocalPmu<'a> {
        &self.0
    }
}

/// The handler of each `execve`.
pub(crate) trait OnExec: Send + Sync + 'static {
    /// Handles an `execve`. Called with interrupts off when the current task is about to run
    /// another program.
    fn exec(&self, execve: &Execve<'_>);
}

/// Whether an [`ExecWatch`] exists.
static WATCHED: Atomic<bool> = Atomic::new(false);

/// Makes each `execve` call [`OnExec::exec`] while it lives.
///
/// # Invariants
///
/// This value is the only one: `WATCHED` is set, and its `drop` clears it. `probe::<T>` is
/// registered with `tracepoint` and with `data`, an `Arc<T>` that this value owns.
pub(crate) struct ExecWatch<T: OnExec> {
    tracepoint: NonNull<bindings::tracepoint>,
    data: *mut c_void,
    on_exec: PhantomData<Arc<T>>,
}

// SAFETY: The value owns an `Arc<T>`, which only `drop` uses, and `T` is `Send` and `Sync`.
unsafe impl<T: OnExec> Send for ExecWatch<T> {}
// SAFETY: A shared reference gives no access to the `Arc<T>`.
unsafe impl<T: OnExec> Sync for ExecWatch<T> {}

impl<T: OnExec> ExecWatch<T> {
    /// Starts calling `on_exec`. Fails with `EBUSY` if another `ExecWatch` exists, and with
    /// `ENOENT` if the kernel does not have the tracepoint.
    pub(crate) fn new(_permit: CallbackPermit, on_exec: Arc<T>) -> Result<Self> {
        let tracepoint = find_tracepoint().ok_or(ENOENT)?;
        WATCHED.cmpxchg(false, true, Acquire).map_err(|_| EBUSY)?;
        let data = on_exec.into_foreign();
        let function: Probe = probe::<T>;
        // SAFETY: The probe has the tracepoint's arguments, and gets the `Arc<T>` that it takes.
        // `drop` keeps the `Arc<T>` until no probe is running, and the permit's invariants
        // guarantee that `drop` runs before the module is unloaded.
        let registered = unsafe {
            bindings::tracepoint_probe_register(tracepoint.as_ptr(), function as *mut c_void, data)
        };
        if let Err(error) = to_result(registered) {
            // SAFETY: `into_foreign` above returned `data`, and nothing else has it.
            drop(unsafe { Arc::<T>::from_foreign(data) });
            WATCHED.store(false, Release);
            return Err(error);
        }
        // INVARIANT: The probe was registered just now, and `WATCHED` was set above.
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
        // SAFETY: By the type invariants the probe is registered with these arguments. The second
        // function waits until no probe is running, so nothing uses the `Arc<T>` after it.
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

/// A probe of the tracepoint: it takes the data that was registered, then the event's arguments.
type Probe = unsafe extern "C" fn(
    *mut c_void,
    *mut bindings::task_struct,
    bindings::pid_t,
    *mut bindings::linux_binprm,
);

/// Calls the handler in `data`.
///
/// # Safety
///
/// `data` must be an `Arc<T>` made by `into_foreign`.
unsafe extern "C" fn probe<T: OnExec>(
    data: *mut c_void,
    _task: *mut bindings::task_struct,
    _old_pid: bindings::pid_t,
    _program: *mut bindings::linux_binprm,
) {
    // SAFETY: The caller guarantees that `data` is an `Arc<T>` made by `into_foreign`.
    let on_exec: ArcBorrow<'_, T> = unsafe { Arc::<T>::borrow(data) };
    let _off = local_interrupt_disable();
    // SAFETY: Interrupts are off until `_off` is dropped, after this value.
    // INVARIANT: The tracepoint is in `exec_binprm()`, which runs in process context.
    on_exec.exec(&Execve(unsafe { LocalPmu::new() }));
}

/// Returns the tracepoint that every `execve` passes. It is not exported, so search it by name.
fn find_tracepoint() -> Option<NonNull<bindings::tracepoint>> {
    /// Stores `tracepoint` in `found` if it has the right name.
    ///
    /// # Safety
    ///
    /// `tracepoint` must be valid, and `found` must point to a pointer to a tracepoint.
    unsafe extern "C" fn compare(tracepoint: *mut bindings::tracepoint, found: *mut c_void) {
        // SAFETY: The caller guarantees that `tracepoint` is valid, and every tracepoint has a
        // name.
        let name = unsafe { CStr::from_char_ptr((*tracepoint).name) };
        if name == c"sched_process_exec" {
            // SAFETY: The caller guarantees that `found` points to a pointer to a tracepoint.
            unsafe { *found.cast() = tracepoint };
        }
    }

    let mut found = core::ptr::null_mut::<bindings::tracepoint>();
    // SAFETY: The kernel calls `compare` with each of its own tracepoints, which are never freed,
    // and with the pointer to `found`, before this returns.
    unsafe { bindings::for_each_kernel_tracepoint(Some(compare), (&raw mut found).cast()) };
    NonNull::new(found)
}
