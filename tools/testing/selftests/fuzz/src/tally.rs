// SPDX-License-Identifier: GPL-2.0
//! Counts of all processes in memory that they share, through which they also find each other.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pmu_selftests::shared;

use crate::marks::NUMBERS;

macro_rules! counts {
    ($($name:ident),*) => {
        /// Kind of a count.
        #[derive(Clone, Copy, Debug)]
        pub enum Count { $(
            #[doc = stringify!($name)]
            $name
        ),* }

        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

counts!(
    Lives, Steps, Children, Opened, Refused, Samples, Ebbs, Marks, Looks, Told, Branches, Traced,
    Failures
);

/// Counts of the processes with one number.
#[repr(C)]
#[derive(Default)]
pub struct Entry {
    counts: [AtomicU64; NAMES.len()],
    /// Number of the process that lives now.
    pub pid: AtomicI32,
    /// Upper 32 bits: a process with this number. Lower 32 bits: how many EBB events others opened
    /// for it.
    ebb_by_other: AtomicU64,
    /// Whether another process opened an EBB event for this one that excludes user space. In a
    /// partition the kernel does that with the bits of MMCR2 that programs can see, too.
    pub kernel_mmcr2: AtomicBool,
    /// Farthest that a counter with this process's mark has counted, as far as it was seen.
    pub furthest: AtomicU64,
}

impl Entry {
    /// Adds `n` to a count.
    pub fn add(&self, count: Count, n: u64) {
        self.counts[count as usize].fetch_add(n, Relaxed);
    }

    /// Records that another process requests an EBB event for `pid`; `events` is -1 if it was
    /// refused.
    pub fn add_ebb_event(&self, pid: libc::pid_t, events: i64) {
        let add = |word: u64| match word >> 32 == pid as u64 {
            true => Some(word.wrapping_add_signed(events)),
            false => (events > 0).then_some((pid as u64) << 32 | 1),
        };
        let _ = self.ebb_by_other.fetch_update(Relaxed, Relaxed, add);
    }

    /// Returns whether another process has opened an EBB event for this one, or is about to.
    pub fn has_ebb_by_other(&self) -> bool {
        let word = self.ebb_by_other.load(Relaxed);
        word >> 32 == u64::from(std::process::id()) && word & 0xffff_ffff != 0
    }

    /// Returns a count.
    pub fn get(&self, count: Count) -> u64 {
        self.counts[count as usize].load(Relaxed)
    }
}

/// Counts of all processes.
#[repr(C)]
#[derive(Default)]
pub struct Tally {
    entries: [Entry; NUMBERS as usize],
    /// Whether all processes except the bystanders have ended.
    pub done: AtomicBool,
}

impl Tally {
    /// Allocates zeroes, which forked processes share.
    pub fn shared() -> io::Result<&'static Self> {
        shared::value()
    }

    /// Returns the counts of a number.
    pub fn entry(&self, number: u64) -> &Entry {
        &self.entries[number as usize]
    }

    /// Returns the sum over all numbers.
    pub fn sum(&self, count: Count) -> u64 {
        self.entries.iter().map(|entry| entry.get(count)).sum()
    }

    /// Prints the sums.
    pub fn print(&self) {
        let sum = |kind: usize| -> u64 {
            let counts = self
                .entries
                .iter()
                .map(|entry| entry.counts[kind].load(Relaxed));
            counts.sum()
        };
        let counts: Vec<String> = (0..NAMES.len())
            .map(|kind| format!("{} {}", NAMES[kind].to_lowercase(), sum(kind)))
            .collect();
        let furthest = self.entries.iter().map(|entry| &entry.furthest);
        let furthest = furthest.map(|count| count.load(Relaxed)).max().unwrap_or(0);
        println!("total: {} furthest {furthest}", counts.join(" "));
    }
}
