// SPDX-License-Identifier: GPL-2.0

//! Time, and timers. The driver has timers for an emulator only, which the host is not: what would
//! start one or ask for the time panics.

use std::{marker::PhantomData, ops::Sub};

/// A span of time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delta(i64);

impl Delta {
    /// Of nanoseconds.
    pub const fn from_nanos(ns: i64) -> Self {
        Self(ns)
    }

    /// Of milliseconds.
    pub const fn from_millis(ms: i64) -> Self {
        Self(ms * 1_000_000)
    }
}

/// Waiting.
pub mod delay {
    /// Waits: not on the host, where nobody else runs meanwhile.
    pub fn fsleep(_delta: super::Delta) {}
}

/// The monotonic clock.
pub struct Monotonic;

/// A moment.
pub struct Instant<C>(i64, PhantomData<C>);

impl<C> Instant<C> {
    /// This one.
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

/// Timers of high resolution.
pub mod hrtimer {
    use super::{Delta, Instant, Monotonic};
    use std::marker::PhantomData;

    /// A timer of a `T`.
    pub struct HrTimer<T>(PhantomData<fn(T)>);

    impl<T> HrTimer<T> {
        /// One that is not started.
        #[expect(clippy::new_without_default, reason = "as the kernel crate has it")]
        pub fn new() -> Self {
            Self(PhantomData)
        }

        /// When it fires.
        pub fn expires(&self) -> Instant<Monotonic> {
            unreachable!("no timer runs")
        }
    }

    /// What has a timer.
    pub trait HasHrTimer<T> {
        /// Starts it.
        ///
        /// # Safety
        ///
        /// The value must be there until the timer is cancelled.
        unsafe fn start(_this: *const Self, _delta: Delta) {
            unreachable!("no timer runs")
        }

        /// The C structure.
        ///
        /// # Safety
        ///
        /// The pointer must be valid.
        unsafe fn c_timer_ptr(_this: *const Self) -> *const crate::bindings::hrtimer {
            std::ptr::null()
        }
    }

    /// What a timer calls.
    pub trait HrTimerCallback {
        /// What it is called with.
        type Pointer<'a>;

        /// Called when the timer fires.
        fn run(
            this: Self::Pointer<'_>,
            context: HrTimerCallbackContext<'_, Self>,
        ) -> HrTimerRestart
        where
            Self: Sized;
    }

    /// What a callback may do with its timer.
    pub struct HrTimerCallbackContext<'a, T>(PhantomData<&'a T>);

    /// Whether a timer is started again.
    pub enum HrTimerRestart {
        /// No.
        NoRestart,
    }

    /// After a time, on the same CPU, in hard interrupt context.
    pub struct RelativePinnedHardMode<C>(PhantomData<C>);
}

/// Says where the timer is.
#[macro_export]
macro_rules! impl_has_hr_timer {
    (impl HasHrTimer<Self> for $type:ty { mode: $mode:ty, field: $($field:tt)* }) => {
        impl $crate::time::hrtimer::HasHrTimer<Self> for $type {}
    };
}
