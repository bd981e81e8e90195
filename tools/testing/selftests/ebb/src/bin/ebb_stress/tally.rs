// SPDX-License-Identifier: GPL-2.0
//! What all processes count, in memory that they share.

use crate::handler;
use crate::handler::Foreign;
use crate::ways::Way;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The counts of one process.
#[repr(C)]
pub struct Entry {
    /// Rounds and EBBs of each way.
    rounds: [AtomicU64; Way::ALL.len()],
    ebbs: [AtomicU64; Way::ALL.len()],
    /// Rounds of each way that were over only when the way was given up.
    late: [AtomicU64; Way::ALL.len()],
    /// EBBs of each way that did not come.
    lost: [AtomicU64; Way::ALL.len()],
    /// EBBs with which something was wrong.
    foreign: [AtomicU64; Foreign::ALL.len()],
    spurious: AtomicU64,
}

impl Entry {
    /// A round of `way` is over that has brought `came` of `asked` EBBs.
    pub fn round(&self, way: Way, asked: u32, came: u32) {
        let way = way as usize;
        self.rounds[way].fetch_add(1, Relaxed);
        self.ebbs[way].fetch_add(came.into(), Relaxed);
        self.lost[way].fetch_add((asked - came).into(), Relaxed);
        for kind in Foreign::ALL {
            self.foreign[kind as usize].store(handler::foreign(kind).into(), Relaxed);
        }
    }

    /// A round of `way` did not bring all its EBBs in time.
    pub fn late(&self, way: Way) {
        self.late[way as usize].fetch_add(1, Relaxed);
    }

    /// Adds the EBBs since [`ebb::install`] that no exception explains.
    pub fn add_spurious(&self) {
        self.spurious.fetch_add(ebb::spurious(), Relaxed);
    }

    /// EBBs with which something was wrong.
    pub fn foreign(&self) -> u64 {
        sum(&self.foreign) + self.spurious.load(Relaxed)
    }
}

fn sum(counts: &[AtomicU64]) -> u64 {
    counts.iter().map(|count| count.load(Relaxed)).sum()
}

fn line([rounds, ebbs, late, lost]: [u64; 4]) -> String {
    format!("rounds {rounds} ebbs {ebbs} late {late} lost {lost}")
}

/// The counts of all processes.
pub struct Tally(Box<[&'static Entry]>);

impl Tally {
    /// Zeroes for `processes`, to be inherited by forks.
    ///
    /// # Errors
    ///
    /// That of `mmap(2)`.
    pub fn shared(processes: usize) -> io::Result<&'static Self> {
        let bytes = size_of::<Entry>() * processes.max(1);
        // SAFETY: a new mapping, which stays as long as the process; zeroes are
        // a valid `Entry`, and a page is aligned well enough for it.
        let entries = unsafe {
            let memory = libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if memory == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            std::slice::from_raw_parts(memory.cast::<Entry>().cast_const(), processes)
        };
        Ok(Box::leak(Box::new(Self(entries.iter().collect()))))
    }

    /// One for each process.
    pub fn entries(&self) -> &[&'static Entry] {
        &self.0
    }

    /// Rounds of all processes so far.
    pub fn rounds(&self) -> u64 {
        self.0.iter().map(|entry| sum(&entry.rounds)).sum()
    }

    /// Prints the sums over all processes.
    pub fn print(&self) {
        let of_way = |counts: fn(&Entry) -> &[AtomicU64], way: Way| -> u64 {
            let each = self.0.iter();
            each.map(|entry| counts(entry)[way as usize].load(Relaxed))
                .sum()
        };
        let mut total = [0; 4];
        for way in Way::ALL {
            let sums = [
                of_way(|entry| &entry.rounds, way),
                of_way(|entry| &entry.ebbs, way),
                of_way(|entry| &entry.late, way),
                of_way(|entry| &entry.lost, way),
            ];
            if sums[0] > 0 {
                println!("{:<11} {}", way.name(), line(sums));
            }
            total = [0, 1, 2, 3].map(|i| total[i] + sums[i]);
        }
        for kind in Foreign::ALL {
            let each = self.0.iter();
            let n: u64 = each
                .map(|entry| entry.foreign[kind as usize].load(Relaxed))
                .sum();
            if n > 0 {
                println!("foreign: {kind:?} {n}");
            }
        }
        let foreign: u64 = self.0.iter().map(|entry| entry.foreign()).sum();
        let processes = self.0.len();
        let total = line(total);
        println!("total: processes {processes} {total} foreign {foreign}");
    }
}
