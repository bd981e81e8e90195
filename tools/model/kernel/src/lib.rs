// SPDX-License-Identifier: GPL-2.0

//! A stand-in for the kernel crate, with the parts that the driver uses on the host. A test's
//! thread runs all CPUs of a machine in turn: data that are per-CPU or global in the kernel are
//! thread-local here.
//!
//! Names and behaviour are those of the kernel crate; see its documentation.

pub mod alloc;
pub mod bindings;
pub mod cpu;
pub mod error;
mod flags;
pub mod init;
pub mod interrupt;
pub mod prelude;
pub mod str;
pub mod sync;
pub mod time;
pub mod types;

pub use init::{Zeroable, zeroed};
pub use kernel_macros::bitfield;
pub use std::ffi;

/// Formatted text.
pub mod fmt {
    pub use crate::fmt_args as fmt;
    pub use std::fmt::*;
}

pub use crate::fmt_args as fmt;

/// `fmt!`.
#[macro_export]
macro_rules! fmt_args {
    ($($arguments:tt)*) => { format_args!($($arguments)*) };
}

/// Marks code that must not be compiled into the kernel; here it panics.
#[macro_export]
macro_rules! build_error {
    ($message:expr) => {
        panic!("{}", $message)
    };
}

/// Returns the structure that contains a field.
#[macro_export]
macro_rules! container_of {
    ($field:expr, $container:ty, $name:ident) => {
        $field
            .byte_sub(core::mem::offset_of!($container, $name))
            .cast::<$container>()
    };
}

/// Drops a message: tests do not show the driver's information messages.
#[macro_export]
macro_rules! pr_info {
    ($($arguments:tt)*) => {};
}

thread_local! {
    static COMPLAINT: std::cell::RefCell<Option<String>> = const { std::cell::RefCell::new(None) };
}

/// Records an error, which ends the history after the present step. A panic is not possible,
/// because it could not unwind through the driver's callbacks, which have the C ABI.
pub fn complain(message: fmt::Arguments<'_>) {
    COMPLAINT.with_borrow_mut(|first| {
        first.get_or_insert_with(|| message.to_string());
    });
}

/// Records a warning or an error of the driver.
pub fn print(message: fmt::Arguments<'_>) {
    complain(format_args!("the driver reports: {message}"));
}

/// Returns and clears the first error since the last call.
pub fn complaint() -> Option<String> {
    COMPLAINT.take()
}

/// Records an error message of the driver.
#[macro_export]
macro_rules! pr_err {
    ($($arguments:tt)*) => { $crate::print(format_args!($($arguments)*)) };
}

/// Records a warning of the driver.
#[macro_export]
macro_rules! pr_warn {
    ($($arguments:tt)*) => { $crate::print(format_args!($($arguments)*)) };
}

/// Records a warning that the kernel prints once.
#[macro_export]
macro_rules! pr_warn_once {
    ($($arguments:tt)*) => { $crate::print(format_args!($($arguments)*)) };
}

/// Records an error message that the kernel prints once.
#[macro_export]
macro_rules! pr_err_once {
    ($($arguments:tt)*) => { $crate::print(format_args!($($arguments)*)) };
}
