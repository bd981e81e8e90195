// SPDX-License-Identifier: GPL-2.0

//! Memory. There is always some.

use crate::{error::Result, init::PinInit};
use std::{
    mem::MaybeUninit,
    ops::{Deref, DerefMut},
    pin::Pin,
};

/// There is no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocError;

/// How to allocate.
#[derive(Clone, Copy)]
pub struct Flags;

/// May sleep.
pub const GFP_KERNEL: Flags = Flags;

/// A box.
pub struct KBox<T: ?Sized>(Box<T>);

impl<T> KBox<T> {
    /// Allocates memory for `value`.
    pub fn new(value: T, _flags: Flags) -> Result<Self, AllocError> {
        Ok(Self(Box::new(value)))
    }

    /// Allocates memory for a value to come.
    pub fn new_uninit(flags: Flags) -> Result<KBox<MaybeUninit<T>>, AllocError> {
        KBox::new(MaybeUninit::uninit(), flags)
    }

    /// Puts a value into memory from [`KBox::new_uninit`].
    pub fn write(memory: KBox<MaybeUninit<T>>, value: T) -> Self {
        Self(Box::write(memory.0, value))
    }

    /// Gives up the box for a pointer.
    pub fn into_raw(this: Self) -> *mut T {
        Box::into_raw(this.0)
    }

    /// Makes a box of the pointer again.
    ///
    /// # Safety
    ///
    /// The pointer must be from [`KBox::into_raw`], and not be used any more.
    pub unsafe fn from_raw(raw: *mut T) -> Self {
        // SAFETY: The caller guarantees it.
        Self(unsafe { Box::from_raw(raw) })
    }

    /// Likewise, pinned.
    pub fn pin(value: T, flags: Flags) -> Result<Pin<Self>, AllocError> {
        // SAFETY: The value is on the heap, and the box gives no way to move it.
        Self::new(value, flags).map(|new| unsafe { Pin::new_unchecked(new) })
    }

    /// Likewise, of what `init` makes.
    pub fn pin_init<E>(init: impl PinInit<T, E>, flags: Flags) -> Result<Pin<Self>>
    where
        crate::error::Error: From<E>,
    {
        let value = init.make()?;
        Ok(Self::pin(value, flags)?)
    }
}

impl<T> KBox<[T]> {
    /// A pinned slice of `len` values that `make` gives.
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
        // SAFETY: As in `pin`.
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

/// A vector that may be large.
pub type KVVec<T> = KVec<T>;

impl<T> KVec<T> {
    /// An empty one.
    #[expect(clippy::new_without_default, reason = "as the kernel crate has it")]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// One with room.
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
