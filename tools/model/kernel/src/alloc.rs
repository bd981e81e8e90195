// SPDX-License-Identifier: GPL-2.0

//! Memory allocation. It never fails on the host.

use crate::{error::Result, init::PinInit};
use std::{
    mem::MaybeUninit,
    ops::{Deref, DerefMut},
    pin::Pin,
};

/// Error of an allocation without memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocError;

/// Allocation flags, which have no effect.
#[derive(Clone, Copy)]
pub struct Flags;

/// Flags for an allocation that may sleep.
pub const GFP_KERNEL: Flags = Flags;

/// A box in kernel memory.
pub struct KBox<T: ?Sized>(Box<T>);

impl<T> KBox<T> {
    /// Allocates memory for `value`.
    pub fn new(value: T, _flags: Flags) -> Result<Self, AllocError> {
        Ok(Self(Box::new(value)))
    }

    /// Allocates memory for a value that is written later.
    pub fn new_uninit(flags: Flags) -> Result<KBox<MaybeUninit<T>>, AllocError> {
        KBox::new(MaybeUninit::uninit(), flags)
    }

    /// Puts a value into memory from [`KBox::new_uninit`].
    pub fn write(memory: KBox<MaybeUninit<T>>, value: T) -> Self {
        Self(Box::write(memory.0, value))
    }

    /// Converts the box to a pointer.
    pub fn into_raw(this: Self) -> *mut T {
        Box::into_raw(this.0)
    }

    /// Converts the pointer back to a box.
    ///
    /// # Safety
    ///
    /// The pointer must be from [`KBox::into_raw`], and not be used any more.
    pub unsafe fn from_raw(raw: *mut T) -> Self {
        // SAFETY: The caller guarantees that the pointer is from `into_raw` and has no other user.
        Self(unsafe { Box::from_raw(raw) })
    }

    /// Allocates memory for `value`, which is pinned there.
    pub fn pin(value: T, flags: Flags) -> Result<Pin<Self>, AllocError> {
        // SAFETY: The value is on the heap, and the box gives no way to move it.
        Self::new(value, flags).map(|new| unsafe { Pin::new_unchecked(new) })
    }

    /// Allocates memory for the value of `init`, which is pinned there.
    pub fn pin_init<E>(init: impl PinInit<T, E>, flags: Flags) -> Result<Pin<Self>>
    where
        crate::error::Error: From<E>,
    {
        let value = init.make()?;
        Ok(Self::pin(value, flags)?)
    }
}

impl<T> KBox<[T]> {
    /// Allocates a pinned slice of the `len` values that `make` initializes.
    pub fn pin_slice<I, E>(
        make: impl Fn(usize) -> I,
        len: usize,
        _flags: Flags,
    ) -> Result<Pin<Self>>
    where
        I: PinInit<T, E>,
        crate::error::Error: From<E>,
    {
        let values: Vec<T> = (0..len)
            .map(|index| make(index).make())
            .collect::<Result<_, E>>()?;
        // SAFETY: The values are on the heap, and the box gives no way to move them.
        Ok(unsafe { Pin::new_unchecked(Self(values.into_boxed_slice())) })
    }
}

impl<T: ?Sized> Deref for KBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> DerefMut for KBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// A vector.
pub struct KVec<T>(Vec<T>);

/// A vector that may use vmalloc memory.
pub type KVVec<T> = KVec<T>;

impl<T> KVec<T> {
    /// Creates an empty vector.
    #[expect(clippy::new_without_default, reason = "as the kernel crate has it")]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Creates an empty vector with room for `capacity` values.
    pub fn with_capacity(capacity: usize, _flags: Flags) -> Result<Self, AllocError> {
        Ok(Self(Vec::with_capacity(capacity)))
    }

    /// Appends a value.
    pub fn push(&mut self, value: T, _flags: Flags) -> Result<(), AllocError> {
        self.0.push(value);
        Ok(())
    }
}

impl<T> Deref for KVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> DerefMut for KVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}
