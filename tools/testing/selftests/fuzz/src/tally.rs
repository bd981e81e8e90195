// SPDX-License-Identifier: GPL-2.0
//! What all processes count, in memory that they share, and where they find each other.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pmu_selftests::shared;

use crate::marks::NUMBERS;

macro_rules! counts {
    ($($name:ident),*) => {
        /// What is counted.
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

/// The counts of the processes of one number.
#[repr(C)]
#[derive(Default)]
pub struct Entry {
    counts: [AtomicU64; NAMES.len()],
    /// The process that lives now.
    pub pid: AtomicI32,
    /// A process of this number, above 32 bits of how many EBB events others have opened for it.
    ebb_by_other: AtomicU64,
    /// There was an EBB event for this one that leaves user space out: in a partition the kernel
    /// says so by those bits of MMCR2 that are the program's, too.
    pub kernel_mmcr2: AtomicBool,
    /// How far a counter with its mark has counted on, of those that it has seen.
    pub furthest: AtomicU64,
}

impl Entry {
    /// Counts `n` more.
    pub fn add(&self, count: Count, n: u64) {
        self.counts[count as usize].fetch_add(n, Relaxed);
    }

    /// Another process asks for an EBB event for `pid`, or 1 less as it was refused.
    pub fn add_ebb_event(&self, pid: libc::pid_t, events: i64) {
        let add = |word: u64| match word >> 32 == pid as u64 {
            true => Some(word.wrapping_add_signed(events)),
            false => (events > 0).then_some((pid as u64) << 32 | 1),
        };
        let _ = self.ebb_by_other.fetch_update(Relaxed, Relaxed, add);
    }

    /// Whether another process has opened an EBB event for this one, or is about to.
    pub fn has_ebb_by_other(&self) -> bool {
        let word = self.ebb_by_other.load(Relaxed);
        word >> 32 == u64::from(std::process::id()) && word & 0xffff_ffff != 0
    }

    /// What was counted.
    pub fn get(&self, count: Count) -> u64 {
        self.counts[count as usize].load(Relaxed)
    }
}

/// The counts of all.
#[repr(C)]
#[derive(Default)]
pub struct Tally {
    entries: [Entry; NUMBERS as usize],
    /// All but the bystanders have ended.
    pub done: AtomicBool,
}

impl Tally {
    /// Zeroes, which forked processes share.
    pub fn shared() -> io::Result<&'static Self> {
        shared::value()
    }

    /// Those of a number.
    pub fn entry(&self, number: u64) -> &Entry {
        &self.entries[number as usize]
    }

    /// The sum over all.
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
