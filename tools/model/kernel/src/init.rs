// SPDX-License-Identifier: GPL-2.0

//! Initializers. On the host no value has to know its address before it is complete, so an
//! initializer returns a value, which is then moved to its place.

use crate::error::Result;
use std::marker::PhantomData;

/// Initializer of a `T`, which may fail.
pub trait PinInit<T, E = std::convert::Infallible> {
    /// Makes the value.
    fn make(self) -> Result<T, E>;
}

impl<T, E> PinInit<T, E> for T {
    fn make(self) -> Result<T, E> {
        Ok(self)
    }
}

impl<T, E> PinInit<T, E> for Result<T, E> {
    fn make(self) -> Result<T, E> {
        self
    }
}

/// Initializer that calls a function.
pub struct InitFn<F, T, E>(F, PhantomData<(T, E)>);

/// Creates an initializer that calls `f`.
pub fn from_fn<F: FnOnce() -> Result<T, E>, T, E>(f: F) -> InitFn<F, T, E> {
    InitFn(f, PhantomData)
}

impl<F: FnOnce() -> Result<T, E>, T, E> PinInit<T, E> for InitFn<F, T, E> {
    fn make(self) -> Result<T, E> {
        (self.0)()
    }
}

/// A type for which all zeroes are a valid value.
///
/// # Safety
///
/// All zeroes must be a value of the type.
pub unsafe trait Zeroable: Sized {}

/// Returns a value of all zeroes.
pub fn zeroed<T: Zeroable>() -> T {
    // SAFETY: `Zeroable` guarantees that all zeroes are a value of the type.
    unsafe { core::mem::zeroed() }
}

/// Creates an initializer of a structure.
#[macro_export]
macro_rules! try_pin_init {
    (Self { $($fields:tt)* }? $error:ty) => {
        $crate::init::from_fn(move || -> ::core::result::Result<Self, $error> {
            $crate::fields!(@ $error, {} $($fields)*)
        })
    };
}

/// Initializes the fields of a structure one after the other.
#[doc(hidden)]
#[macro_export]
macro_rules! fields {
    (@ $error:ty, {$($done:tt)*}) => { Ok(Self { $($done)* }) };
    (@ $error:ty, {$($done:tt)*} $name:ident <- $init:expr, $($rest:tt)*) => {
        $crate::fields!(@ $error, {$($done)* $name: $crate::init::PinInit::<_, $error>::make($init)?,} $($rest)*)
    };
    (@ $error:ty, {$($done:tt)*} $name:ident: $value:expr, $($rest:tt)*) => {
        $crate::fields!(@ $error, {$($done)* $name: $value,} $($rest)*)
    };
    (@ $error:ty, {$($done:tt)*} $name:ident, $($rest:tt)*) => {
        $crate::fields!(@ $error, {$($done)* $name,} $($rest)*)
    };
}
