// SPDX-License-Identifier: GPL-2.0

//! A stand-in for the kernel crate, with as much of it as the driver's code on the host uses. The
//! CPUs of a machine take turns on a thread of a test: what is per-CPU or global in the kernel is
//! thread-local here.
//!
//! Names, and what they do, are the kernel crate's; see its documentation.

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

/// What must not be compiled into the kernel's code.
#[macro_export]
macro_rules! build_error {
    ($message:expr) => {
        panic!("{}", $message)
    };
}

/// The structure that a field is in.
#[macro_export]
macro_rules! container_of {
    ($field:expr, $container:ty, $name:ident) => {
        $field
            .byte_sub(core::mem::offset_of!($container, $name))
            .cast::<$container>()
    };
}

/// A message. The host says nothing of the driver's course.
#[macro_export]
macro_rules! pr_info {
    ($($arguments:tt)*) => {};
}

thread_local! {
    static COMPLAINT: std::cell::RefCell<Option<String>> = const { std::cell::RefCell::new(None) };
}

/// Something is wrong: the end of a history, once the step is done. A panic could not pass the
/// driver's callbacks, which have the ABI of C.
pub fn complain(message: fmt::Arguments<'_>) {
    COMPLAINT.with_borrow_mut(|first| {
        first.get_or_insert_with(|| message.to_string());
    });
}

/// The driver says that something is wrong.
pub fn print(message: fmt::Arguments<'_>) {
    complain(format_args!("the driver says: {message}"));
}

/// What was wrong first since this was last called.
pub fn complaint() -> Option<String> {
    COMPLAINT.take()
}

/// Messages that something is wrong.
#[macro_export]
macro_rules! pr_err {
    ($($arguments:tt)*) => { $crate::print(format_args!($($arguments)*)) };
}

/// Likewise.
#[macro_export]
macro_rules! pr_warn {
    ($($arguments:tt)*) => { $crate::print(format_args!($($arguments)*)) };
}

/// Likewise.
#[macro_export]
macro_rules! pr_warn_once {
    ($($arguments:tt)*) => { $crate::print(format_args!($($arguments)*)) };
}

/// Likewise.
#[macro_export]
macro_rules! pr_err_once {
    ($($arguments:tt)*) => { $crate::print(format_args!($($arguments)*)) };
}
