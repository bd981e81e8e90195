// SPDX-License-Identifier: MIT OR Apache-2.0
//! The known mappings of each recorded process.
//!
//! The program reports them when it begins and ends, and before it closes a shared object. In
//! between, they are read from the system if a sample is in no known mapping. A new mapping did not
//! exist at the last look at the process. The file records it as of that time, because it may be
//! older than the samples in it.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;
use std::time::Instant;

use ebbprof_ring as ring;

use crate::clock::time_base;
use crate::files::FileId;
use crate::image::VDSO;
use crate::memory::Memory;
use crate::perfdata::Mapping;
use crate::perfdata::Thread;
use crate::processes::Processes;
use crate::system;
use crate::system::Standing;

/// Minimum time between two looks at a process's mappings for samples that are older than the last
/// look and in no mapping: the object that they were in is unmapped, so another look rarely helps.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Maximum number of mappings that a process may report itself; it could report any number.
const MOST_TOLD: usize = 1 << 12;

/// All executable mappings of a process at one time.
pub struct Snapshot {
    pub thread: Thread,
    /// Time base of the snapshot.
    time: u64,
    maps: Vec<Mapping>,
    /// Whether the list is complete.
    whole: bool,
    /// Whether they were read from the system, not from the program.
    is_shown: bool,
}

impl Snapshot {
    /// Parses lines of `/proc/PID/maps`. A program leaves out those that did not fit.
    pub fn new(thread: Thread, time: u64, text: &[u8]) -> Self {
        /// Upper bound of the length of a line.
        const LINE: usize = 5000;
        let lines = text.split(|&byte| byte == b'\n');
        let maps = lines.filter_map(Mapping::parse).collect();
        Self {
            thread,
            time,
            maps,
            whole: text.len() + LINE <= ring::MAPS,
            is_shown: false,
        }
    }

    /// Reads the mappings from the system, if the process takes part in the recording.
    fn shown(thread: Thread, time: u64, memory: &Memory) -> Option<Self> {
        let text = system::maps(thread).ok()?;
        memory.is_mapped_in(&text).then(|| Self {
            is_shown: true,
            ..Self::new(thread, time, &text)
        })
    }
}

/// Place of an address in a file.
#[derive(Clone, Copy)]
pub struct Place {
    pub file: FileId,
    pub offset: u64,
}

#[derive(Default)]
pub struct Process {
    /// Executable mappings of the process with their files, by address.
    maps: BTreeMap<u64, (Mapping, FileId)>,
    /// Time base of the latest snapshot.
    seen: u64,
    /// Time base of the last look by `ebbprof`, which may have failed.
    asked: u64,
    looked: Option<Instant>,
    /// Address that its signal handlers return to.
    pub trampoline: Option<u64>,
    /// Standing of the process when a thread of it began.
    pub standing: Standing,
}

impl Process {
    /// Returns a process that has begun at this time.
    pub fn new(begin: u64) -> Self {
        Self {
            seen: begin,
            ..Self::default()
        }
    }

    pub fn find(&self, address: u64) -> Option<Place> {
        let (_, (mapping, file)) = self.maps.range(..=address).next_back()?;
        (address < mapping.end).then(|| Place {
            file: *file,
            offset: (address - mapping.start).wrapping_add(mapping.offset),
        })
    }

    /// Returns whether a mapping is new. One of an old snapshot is not if another overlaps it.
    fn is_new(&self, mapping: &Mapping, old: bool) -> bool {
        let known = self.maps.get(&mapping.start);
        let mut others = self.maps.values();
        known.is_none_or(|(known, _)| known != mapping)
            && !(old && others.any(|(other, _)| overlap(other, mapping)))
    }

    /// Adds a mapping, and removes those that it overlaps.
    fn add(&mut self, mapping: &Mapping, file: FileId) {
        self.maps.retain(|_, (other, _)| !overlap(other, mapping));
        self.maps.insert(mapping.start, (mapping.clone(), file));
    }

    /// Removes the mappings that a snapshot does not have, unless it may be incomplete or is old.
    pub fn forget_others(&mut self, snapshot: &Snapshot) {
        if snapshot.whole && snapshot.time >= self.seen {
            let maps = &snapshot.maps;
            self.maps.retain(|_, (mapping, _)| maps.contains(mapping));
        }
    }
}

fn overlap(a: &Mapping, b: &Mapping) -> bool {
    a.start < b.end && b.start < a.end
}

impl Processes<'_> {
    /// Adds the new mappings of a snapshot, and writes them to the file.
    pub fn learn(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let process = self.processes.entry(snapshot.thread.pid).or_default();
        let (since, old) = (process.seen, snapshot.time < process.seen);
        process.seen = process.seen.max(snapshot.time);
        let (memory, mut shown) = (self.memory, None);
        let mut is_shown = |mapping: &Mapping| {
            let ask = || Snapshot::shown(snapshot.thread, 0, memory);
            let maps = |all: &Option<Snapshot>| {
                let maps = all.iter().flat_map(|all| &all.maps);
                maps.into_iter().any(|own| own.is_same(mapping))
            };
            snapshot.is_shown || maps(shown.get_or_insert_with(ask))
        };
        for mapping in &snapshot.maps {
            let has_room = snapshot.is_shown || process.maps.len() < MOST_TOLD;
            if has_room && process.is_new(mapping, old) {
                let is_shown = || is_shown(mapping);
                let file = self.files.of(snapshot.thread.pid, mapping, is_shown);
                process.add(mapping, file);
                if mapping.path == VDSO {
                    process.trampoline =
                        (self.trampoline).map(|offset| mapping.start.wrapping_add(offset));
                }
                let build_id = self.files.build_id(file);
                let time = self.clock.time(since.min(snapshot.time));
                self.writer
                    .mapping(snapshot.thread, time, mapping, build_id)?;
            }
        }
        Ok(())
    }

    /// Reads a process's mappings from the system, for a sample at `base` that is in none. A sample
    /// that is newer than the last look is in an object that was loaded since.
    pub fn look_again(&mut self, thread: Thread, base: u64) -> io::Result<()> {
        let process = self.processes.entry(thread.pid).or_default();
        let (now, time) = (Instant::now(), time_base());
        let seen = base <= process.seen.max(process.asked);
        if seen && process.looked.is_some_and(|last| now - last < LOOK_AGAIN) {
            return Ok(());
        }
        (process.asked, process.looked) = (time, Some(now));
        match Snapshot::shown(thread, time, self.memory) {
            Some(snapshot) => self.learn(&snapshot),
            // The process has ended, or runs another program by now.
            None => Ok(()),
        }
    }
}
