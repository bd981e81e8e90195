// SPDX-License-Identifier: GPL-2.0
//! Counts of all processes, in memory that they share.

use crate::handler;
use crate::handler::Foreign;
use crate::ways::Way;
use pmu_selftests::shared;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Kinds of counts for each way: rounds, EBBs, rounds that ended only after the way was given up,
/// EBBs that did not come.
const COUNTS: [&str; 4] = ["rounds", "ebbs", "late", "lost"];

/// Counts of one process.
#[repr(C)]
#[derive(Default)]
pub struct Entry {
    ways: [[AtomicU64; COUNTS.len()]; Way::ALL.len()],
    /// EBBs with a fault.
    foreign: [AtomicU64; Foreign::ALL.len()],
    spurious: AtomicU64,
}

impl Entry {
    /// Counts a round of `way` that has brought `came` of `asked` EBBs.
    pub fn round(&self, way: Way, asked: u32, came: u32) {
        let [rounds, ebbs, _, lost] = &self.ways[way as usize];
        rounds.fetch_add(1, Relaxed);
        ebbs.fetch_add(came.into(), Relaxed);
        lost.fetch_add((asked - came).into(), Relaxed);
        for (count, &kind) in self.foreign.iter().zip(Foreign::ALL) {
            count.store(handler::foreign(kind).into(), Relaxed);
        }
    }

    /// Counts a round of `way` that did not bring all its EBBs in time.
    pub fn late(&self, way: Way) {
        self.ways[way as usize][2].fetch_add(1, Relaxed);
    }

    /// Adds the EBBs since [`ebb::install`] that came without an exception.
    pub fn add_spurious(&self) {
        self.spurious.fetch_add(ebb::spurious(), Relaxed);
    }

    /// Returns the number of EBBs with a fault.
    pub fn foreign(&self) -> u64 {
        sum(&self.foreign) + self.spurious.load(Relaxed)
    }
}

fn sum<'a>(counts: impl IntoIterator<Item = &'a AtomicU64>) -> u64 {
    counts.into_iter().map(|count| count.load(Relaxed)).sum()
}

fn line(counts: [u64; COUNTS.len()]) -> String {
    COUNTS
        .iter()
        .zip(counts)
        .map(|(name, n)| format!(" {name} {n}"))
        .collect()
}

/// Counts of all processes.
pub struct Tally(Box<[&'static Entry]>);

impl Tally {
    /// Allocates zeroes for `processes`, which forked processes inherit.
    pub fn shared(processes: usize) -> io::Result<&'static Self> {
        let entries = shared::values::<Entry>(processes)?;
        Ok(Box::leak(Box::new(Self(entries.iter().collect()))))
    }

    /// Returns one entry for each process.
    pub fn entries(&self) -> &[&'static Entry] {
        &self.0
    }

    /// Returns the counts of a way over all processes.
    fn of(&self, way: Way) -> [u64; COUNTS.len()] {
        let of_kind = |kind: usize| sum(self.0.iter().map(|entry| &entry.ways[way as usize][kind]));
        std::array::from_fn(of_kind)
    }

    /// Returns the number of rounds of all processes so far.
    pub fn rounds(&self) -> u64 {
        Way::ALL.iter().map(|&way| self.of(way)[0]).sum()
    }

    /// Returns the number of EBBs of all processes so far.
    pub fn ebbs(&self) -> u64 {
        Way::ALL.iter().map(|&way| self.of(way)[1]).sum()
    }

    /// Prints the sums over all processes.
    pub fn print(&self) {
        let mut total = [0; COUNTS.len()];
        for &way in Way::ALL {
            let counts = self.of(way);
            if counts[0] > 0 {
                println!("{:<11}{}", format!("{way:?}"), line(counts));
            }
            total = std::array::from_fn(|i| total[i] + counts[i]);
        }
        for &kind in Foreign::ALL {
            let n = sum(self.0.iter().map(|entry| &entry.foreign[kind as usize]));
            if n > 0 {
                println!("foreign: {kind:?} {n}");
            }
        }
        let foreign: u64 = self.0.iter().map(|entry| entry.foreign()).sum();
        let (processes, total) = (self.0.len(), line(total));
        println!("total: processes {processes}{total} foreign {foreign}");
    }
}
