// SPDX-License-Identifier: GPL-2.0

//! The CPU that restores the kernel from the image of a hibernation.
//!
//! For the hotplug core it has not come up, but its PMU is as that kernel left it which loaded the
//! image. The others come up anew.
//!
//! C header: [`include/linux/syscore_ops.h`](srctree/include/linux/syscore_ops.h)

use super::{
    access,
    bindings::{
        register_syscore,
        syscore,
        syscore_ops,
        unregister_syscore, //
    },
    callback::CallbackPermit,
    hotplug, //
};
use core::{
    cell::UnsafeCell,
    ptr::null_mut,
    sync::atomic::{
        AtomicBool,
        Ordering::Relaxed, //
    }, //
};
use kernel::{
    bindings,
    cpu::CpuId,
    prelude::*, //
};

/// Called by the PM core once it has made an image, or is in one that was restored, on the one CPU
/// that is up, with interrupts off. (Also after other kinds of suspend, where it does no harm.)
///
/// # Safety
///
/// None. The type of the PM core's callbacks asks for `unsafe`.
unsafe extern "C" fn resume(_data: *mut c_void) {
    access::close_local();
    hotplug::has_come_up(CpuId::current().as_u32());
}

static OPS: syscore_ops = syscore_ops {
    suspend: None,
    resume: Some(resume),
    shutdown: None,
};

/// What the PM core knows `resume` by.
struct Syscore(UnsafeCell<syscore>);

// SAFETY: Only the PM core uses what is in it: with its lock, or while no task runs.
unsafe impl Sync for Syscore {}

static SYSCORE: Syscore = Syscore(UnsafeCell::new(syscore {
    node: bindings::list_head {
        next: null_mut(),
        prev: null_mut(),
    },
    ops: &raw const OPS,
    data: null_mut(),
}));

/// `SYSCORE` is registered, or about to be.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Has a CPU that restores the kernel count as one that came up, while it lives.
///
/// # Invariants
///
/// `SYSCORE` is registered, and `WATCHED` set; no other value has done that.
pub(crate) struct Hibernation(());

impl Hibernation {
    /// Starts watching. Fails with `EBUSY` while another is there.
    pub(crate) fn watch(_permit: CallbackPermit) -> Result<Self> {
        if WATCHED.swap(true, Relaxed) {
            return Err(EBUSY);
        }
        // SAFETY: It is not registered, as `WATCHED` was not set. `resume` may be called from now
        // on until `drop`, which comes, by the permit's invariants.
        unsafe { register_syscore(SYSCORE.0.get()) };
        // INVARIANT: Just done.
        Ok(Self(()))
    }
}

impl Drop for Hibernation {
    fn drop(&mut self) {
        // SAFETY: Registered by the type invariants. `resume` is not running: tasks are frozen
        // then, and in no system call.
        unsafe { unregister_syscore(SYSCORE.0.get()) };
        WATCHED.store(false, Relaxed);
    }
}
