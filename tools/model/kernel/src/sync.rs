// SPDX-License-Identifier: GPL-2.0

//! Reference counts, locks and atomics.

use crate::{
    alloc::{AllocError, Flags},
    error::{Error, Result},
    init::PinInit,
    types::ForeignOwnable,
};
use std::{ffi::c_void, marker::PhantomData, ops::Deref, sync};

/// A counted reference.
pub struct Arc<T: ?Sized>(sync::Arc<T>);

impl<T> Arc<T> {
    /// Allocates memory for `value`.
    pub fn new(value: T, _flags: Flags) -> Result<Self, AllocError> {
        Ok(Self(sync::Arc::new(value)))
    }

    /// Allocates memory for the value of `init`.
    pub fn pin_init<E>(init: impl PinInit<T, E>, flags: Flags) -> Result<Self>
    where
        Error: From<E>,
    {
        let value = init.make()?;
        Ok(Self::new(value, flags)?)
    }
}

impl<T: ?Sized> Clone for Arc<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: ?Sized> Deref for Arc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// A borrowed [`Arc`].
pub struct ArcBorrow<'a, T>(*const T, PhantomData<&'a T>);

impl<T> Deref for ArcBorrow<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `ForeignOwnable::borrow` made the pointer from a reference that outlives `self`.
        unsafe { &*self.0 }
    }
}

impl<T: 'static> ForeignOwnable for Arc<T> {
    type Borrowed<'a> = ArcBorrow<'a, T>;

    fn into_foreign(self) -> *mut c_void {
        sync::Arc::into_raw(self.0).cast_mut().cast()
    }

    unsafe fn from_foreign(pointer: *mut c_void) -> Self {
        // SAFETY: The caller guarantees that `into_foreign` returned the pointer.
        Self(unsafe { sync::Arc::from_raw(pointer.cast()) })
    }

    unsafe fn borrow<'a>(pointer: *mut c_void) -> ArcBorrow<'a, T> {
        ArcBorrow(pointer.cast(), PhantomData)
    }
}

/// A mutex.
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates a mutex, for `new_mutex!`.
    pub fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Takes the lock.
    pub fn lock(&self) -> sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(sync::PoisonError::into_inner)
    }
}

/// Creates a [`crate::sync::Mutex`].
#[macro_export]
macro_rules! new_mutex {
    ($value:expr) => {
        $crate::sync::Mutex::new($value)
    };
}

/// RCU. A history never runs a handler while it waits for a grace period.
pub mod rcu {
    /// Waits for a grace period.
    pub fn synchronize_rcu() {}
}

/// Atomics on top of Rust's own. All orders are sequentially consistent.
pub mod atomic {
    use core::{
        cell::UnsafeCell,
        sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, Ordering::SeqCst},
    };

    /// An order of accesses.
    pub trait Order {}

    macro_rules! orders {
        ($($(#[$doc:meta])* $name:ident,)+) => { $(
            $(#[$doc])*
            pub struct $name;

            impl Order for $name {}
        )+ };
    }

    orders! {
        /// No order with other accesses.
        Relaxed,
        /// Orders the access before later ones.
        Acquire,
        /// Orders the access after earlier ones.
        Release,
        /// Orders the access with earlier and later ones.
        Full,
    }

    /// A type that can be accessed atomically.
    pub trait AtomicType: Copy {
        /// Returns the value at a pointer.
        ///
        /// # Safety
        ///
        /// The pointer must be valid, and its target must only be accessed atomically.
        unsafe fn load(at: *mut Self) -> Self;
        /// Sets the value, and returns the previous one.
        ///
        /// # Safety
        ///
        /// The requirements of `load` apply.
        unsafe fn swap(at: *mut Self, value: Self) -> Self;
        /// Sets the value if it is `old`. Returns the previous value, as an error if it was another
        /// one.
        ///
        /// # Safety
        ///
        /// The requirements of `load` apply.
        unsafe fn compare_exchange(at: *mut Self, old: Self, new: Self) -> Result<Self, Self>;
    }

    macro_rules! atomics {
        ($($type:ty, $atomic:ident $(, $generic:ident)?;)+) => { $(
            impl$(<$generic>)? AtomicType for $type {
                unsafe fn load(at: *mut Self) -> Self {
                    // SAFETY: The caller guarantees that the pointer is valid and only accessed
                    // atomically.
                    unsafe { $atomic::from_ptr(at) }.load(SeqCst)
                }

                unsafe fn swap(at: *mut Self, value: Self) -> Self {
                    // SAFETY: The caller guarantees that the pointer is valid and only accessed
                    // atomically.
                    unsafe { $atomic::from_ptr(at) }.swap(value, SeqCst)
                }

                unsafe fn compare_exchange(
                    at: *mut Self,
                    old: Self,
                    new: Self,
                ) -> Result<Self, Self> {
                    // SAFETY: The caller guarantees that the pointer is valid and only accessed
                    // atomically.
                    unsafe { $atomic::from_ptr(at) }.compare_exchange(old, new, SeqCst, SeqCst)
                }
            }
        )+ };
    }

    atomics! {
        bool, AtomicBool;
        i64, AtomicI64;
        *mut T, AtomicPtr, T;
    }

    /// An atomic value.
    #[repr(transparent)]
    pub struct Atomic<T>(UnsafeCell<T>);

    // SAFETY: All accesses through a shared reference are atomic.
    unsafe impl<T> Sync for Atomic<T> {}

    impl<T> Atomic<T> {
        /// Creates an atomic that holds `value`.
        pub const fn new(value: T) -> Self {
            Self(UnsafeCell::new(value))
        }

        /// Creates an atomic at the target of a pointer.
        ///
        /// # Safety
        ///
        /// The pointer must be valid for `'a`, and its target must only be accessed atomically.
        pub unsafe fn from_ptr<'a>(pointer: *mut T) -> &'a Self {
            // SAFETY: The caller guarantees that the pointer is valid, and `Atomic<T>` has the
            // layout of `T`.
            unsafe { &*pointer.cast() }
        }
    }

    impl<T: AtomicType> Atomic<T> {
        /// Returns the value.
        pub fn load(&self, _order: impl Order) -> T {
            // SAFETY: The pointer is to the value of `self`, which is only accessed atomically.
            unsafe { T::load(self.0.get()) }
        }

        /// Sets the value.
        pub fn store(&self, value: T, _order: impl Order) {
            // SAFETY: The pointer is to the value of `self`, which is only accessed atomically.
            unsafe { T::swap(self.0.get(), value) };
        }

        /// Sets the value, and returns the previous one.
        pub fn xchg(&self, value: T, _order: impl Order) -> T {
            // SAFETY: The pointer is to the value of `self`, which is only accessed atomically.
            unsafe { T::swap(self.0.get(), value) }
        }

        /// Sets the value if it is `old`. Returns the previous value, as an error if it was another
        /// one.
        pub fn cmpxchg(&self, old: T, new: T, _order: impl Order) -> Result<T, T> {
            // SAFETY: The pointer is to the value of `self`, which is only accessed atomically.
            unsafe { T::compare_exchange(self.0.get(), old, new) }
        }
    }

    impl Atomic<i64> {
        /// Adds to the value.
        pub fn add(&self, value: i64, _order: impl Order) {
            // SAFETY: The pointer is to the value of `self`, which is only accessed atomically.
            unsafe { AtomicI64::from_ptr(self.0.get()) }.fetch_add(value, SeqCst);
        }
    }
}
