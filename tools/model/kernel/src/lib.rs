// SPDX-License-Identifier: GPL-2.0

//! A stand-in for the kernel crate, with as much of it as the driver's code on the host uses. Each
//! thread of a test is a CPU: what is per-CPU in the kernel is thread-local here.

pub use kernel_macros::bitfield;

/// Types with the names that C gives them. As in the kernel crate, `unsigned long` is a `usize`.
pub mod prelude {
    #![allow(non_camel_case_types)]
    /// `unsigned long`.
    pub type c_ulong = usize;
    /// `unsigned int`.
    pub type c_uint = u32;
}

/// Locks and atomics.
pub mod sync {
    /// Atomics, with Rust's own underneath.
    pub mod atomic {
        use core::sync::atomic::{AtomicBool, Ordering};

        /// Relaxed order.
        pub struct Relaxed;

        /// An atomic value; only of `bool`, so far.
        pub struct Atomic<T>(AtomicBool, core::marker::PhantomData<T>);

        impl Atomic<bool> {
            /// An atomic that holds `value`.
            pub const fn new(value: bool) -> Self {
                Self(AtomicBool::new(value), core::marker::PhantomData)
            }

            /// The value.
            pub fn load(&self, _order: Relaxed) -> bool {
                self.0.load(Ordering::Relaxed)
            }

            /// Sets the value.
            pub fn store(&self, value: bool, _order: Relaxed) {
                self.0.store(value, Ordering::Relaxed);
            }
        }
    }
}

/// What bindgen makes of the kernel's headers.
pub mod bindings {
    #![allow(non_camel_case_types, non_upper_case_globals)]
    use super::prelude::{c_uint, c_ulong};
    use std::cell::Cell;

    /// The PMU registers of a task, as the kernel keeps them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct thread_struct {
        pub used_ebb: c_uint,
        pub mmcr0: c_uint,
        pub mmcr2: c_ulong,
        pub mmcr3: c_ulong,
        pub siar: c_ulong,
        pub sdar: c_ulong,
        pub sier: c_ulong,
        pub sier2: c_ulong,
        pub sier3: c_ulong,
        pub bescr: c_ulong,
        pub ebbhr: c_ulong,
        pub ebbrr: c_ulong,
    }

    /// A task.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct task_struct {
        pub thread: thread_struct,
    }

    thread_local! {
        static CURRENT: Cell<*mut task_struct> = const { Cell::new(std::ptr::null_mut()) };
    }

    /// The task that the CPU runs.
    pub fn get_current() -> *mut task_struct {
        CURRENT.get()
    }

    /// Has the CPU run a task. It must outlive all uses of [`get_current`].
    pub fn set_current(task: *mut task_struct) {
        CURRENT.set(task);
    }

    /// The machine's functions.
    pub struct machdep_calls {
        /// Turns the PMU's registers on.
        pub enable_pmcs: Option<unsafe extern "C" fn()>,
    }

    /// The machine's functions: none.
    pub static mut ppc_md: machdep_calls = machdep_calls { enable_pmcs: None };
}
