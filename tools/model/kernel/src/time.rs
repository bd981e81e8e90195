// SPDX-License-Identifier: GPL-2.0

//! Time and timers. The driver uses timers only in an emulator, which the host is not, so a
//! function that starts one or reads the time panics.

use std::{marker::PhantomData, ops::Sub};

/// A time span.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delta(i64);

impl Delta {
    /// Creates a span of nanoseconds.
    pub const fn from_nanos(ns: i64) -> Self {
        Self(ns)
    }

    /// Creates a span of milliseconds.
    pub const fn from_millis(ms: i64) -> Self {
        Self(ms * 1_000_000)
    }
}

/// Delays.
pub mod delay {
    /// Returns at once, because no other thread could make progress in the meantime.
    pub fn fsleep(_delta: super::Delta) {}
}

/// The monotonic clock.
pub struct Monotonic;

/// A moment of a clock.
pub struct Instant<C>(i64, PhantomData<C>);

impl<C> Instant<C> {
    /// Returns the present moment.
    pub fn now() -> Self {
        unreachable!("no clock")
    }
}

impl<C> Sub for Instant<C> {
    type Output = Delta;

    fn sub(self, other: Self) -> Delta {
        Delta(self.0 - other.0)
    }
}

/// High-resolution timers.
pub mod hrtimer {
    use super::{Delta, Instant, Monotonic};
    use std::marker::PhantomData;

    /// A timer inside a `T`.
    pub struct HrTimer<T>(PhantomData<fn(T)>);

    impl<T> HrTimer<T> {
        /// Creates a timer that is not started.
        #[expect(clippy::new_without_default, reason = "as the kernel crate has it")]
        pub fn new() -> Self {
            Self(PhantomData)
        }

        /// Returns the moment when it fires.
        pub fn expires(&self) -> Instant<Monotonic> {
            unreachable!("no timer runs")
        }
    }

    /// A type that contains a timer.
    pub trait HasHrTimer<T> {
        /// Starts the timer.
        ///
        /// # Safety
        ///
        /// The value must live until the timer is cancelled.
        unsafe fn start(_this: *const Self, _delta: Delta) {
            unreachable!("no timer runs")
        }

        /// Returns the C structure.
        ///
        /// # Safety
        ///
        /// The pointer must be valid.
        unsafe fn c_timer_ptr(_this: *const Self) -> *const crate::bindings::hrtimer {
            std::ptr::null()
        }
    }

    /// The callback of a timer.
    pub trait HrTimerCallback {
        /// The pointer that the callback gets.
        type Pointer<'a>;

        /// Runs when the timer fires.
        fn run(
            this: Self::Pointer<'_>,
            context: HrTimerCallbackContext<'_, Self>,
        ) -> HrTimerRestart
        where
            Self: Sized;
    }

    /// Access of a callback to its timer.
    pub struct HrTimerCallbackContext<'a, T>(PhantomData<&'a T>);

    /// Return value of a callback: whether to restart the timer.
    pub enum HrTimerRestart {
        /// Do not restart it.
        NoRestart,
    }

    /// Timer mode: relative, on the same CPU, in hard interrupt context.
    pub struct RelativePinnedHardMode<C>(PhantomData<C>);
}

/// Names the field that contains the timer.
#[macro_export]
macro_rules! impl_has_hr_timer {
    (impl HasHrTimer<Self> for $type:ty { mode: $mode:ty, field: $($field:tt)* }) => {
        impl $crate::time::hrtimer::HasHrTimer<Self> for $type {}
    };
}
