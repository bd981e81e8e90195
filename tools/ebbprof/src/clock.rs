// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of the time of samples from the time base to nanoseconds of `CLOCK_MONOTONIC`.

use std::fs;
use std::io;

use crate::Failure;

/// The relation between the time base and the clock.
pub struct Clock {
    frequency: u64,
    base: u64,
    nanoseconds: u64,
}

impl Clock {
    /// Reads both now.
    pub fn new() -> Result<Self, Failure> {
        let text = fs::read_to_string("/proc/cpuinfo")?;
        let line = text.lines().find(|line| line.starts_with("timebase"));
        let frequency = line
            .and_then(|line| line.split(':').nth(1)?.trim().parse().ok())
            .filter(|&frequency| frequency > 0)
            .ok_or("/proc/cpuinfo does not contain the frequency of the time base")?;
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `time` is a local variable.
        if unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) } != 0 {
            return Err(io::Error::last_os_error().into());
        }
        Ok(Self {
            frequency,
            base: time_base(),
            // CAST: The time since boot is not negative.
            nanoseconds: time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
        })
    }

    /// Converts ticks to seconds.
    pub fn seconds(&self, ticks: f64) -> f64 {
        ticks / self.frequency as f64
    }

    /// Returns the time at which the time base was `base`.
    pub fn time(&self, base: u64) -> u64 {
        let since = i128::from(base) - i128::from(self.base);
        let time =
            since * 1_000_000_000 / i128::from(self.frequency) + i128::from(self.nanoseconds);
        u64::try_from(time).unwrap_or(0)
    }
}

/// Returns the time base.
pub fn time_base() -> u64 {
    // SAFETY: Problem state can always read the time base.
    unsafe { ebb::spr::read::<{ ebb::spr::TB }>() }
}
