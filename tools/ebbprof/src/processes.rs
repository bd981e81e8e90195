// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the shared memory to the file: which processes and threads there are, their mappings,
//! and their samples.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::time::Instant;

use ebbprof_ring as ring;

use crate::branches::Code;
use crate::callers;
use crate::callers::Caller;
use crate::callers::Callers;
use crate::clock::Clock;
use crate::clock::time_base;
use crate::eviction;
use crate::eviction::Evictions;
use crate::memory::Memory;
use crate::perfdata::Branch;
use crate::perfdata::BuildIds;
use crate::perfdata::Mapping;
use crate::perfdata::Thread;
use crate::perfdata::Writer;

/// A process whose mappings do not have an address is asked at most so often.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A thread that has a slot.
struct Sampled {
    thread: Thread,
    begin: u64,
    maps_version: u32,
    lost: u64,
    refused: bool,
    evictions: Evictions,
}

#[derive(Default)]
struct Process {
    /// Its executable mappings, by address.
    maps: BTreeMap<u64, Mapping>,
    looked: Option<Instant>,
}

impl Process {
    fn find(&self, address: u64) -> Option<&Mapping> {
        let (_, mapping) = self.maps.range(..=address).next_back()?;
        (address < mapping.end).then_some(mapping)
    }

    /// Takes a mapping in, in place of what it covers; tells whether it is new.
    fn add(&mut self, mapping: &Mapping) -> bool {
        if self.maps.get(&mapping.start) == Some(mapping) {
            return false;
        }
        self.maps
            .retain(|_, old| old.end <= mapping.start || mapping.end <= old.start);
        self.maps.insert(mapping.start, mapping.clone());
        true
    }
}

/// What is recorded.
pub struct Processes<'a> {
    pub memory: &'a Memory,
    pub clock: Clock,
    pub writer: Writer,
    slots: Vec<Option<Sampled>>,
    processes: HashMap<u32, Process>,
    build_ids: BuildIds,
    callers: Callers,
    code: Code,
    samples: Vec<(u64, u64, Box<[u64]>)>,
    pub threads: u64,
    /// Words that samples have of callers.
    pub caller_words: u64,
    /// Why threads were not sampled, and how many.
    pub refused: BTreeMap<String, u64>,
    /// What threads that are no more went without, as somebody took the PMU.
    evicted: eviction::Total,
}

impl<'a> Processes<'a> {
    pub fn new(memory: &'a Memory, clock: Clock, writer: Writer) -> Self {
        Self {
            memory,
            clock,
            writer,
            slots: (0..ring::SLOTS).map(|_| None).collect(),
            processes: HashMap::new(),
            build_ids: BuildIds::default(),
            callers: Callers::default(),
            code: Code::default(),
            samples: Vec::new(),
            threads: 0,
            caller_words: 0,
            refused: BTreeMap::new(),
            evicted: eviction::Total::default(),
        }
    }

    /// Writes what there is; how full the fullest ring was.
    pub fn drain(&mut self) -> io::Result<f64> {
        let mut filled = 0.0_f64;
        for n in 0..self.memory.used() {
            let state = self.memory.state(n);
            if state != ring::LIVE && state != ring::ENDED {
                continue;
            }
            if self.is_of_before(n) {
                continue;
            }
            filled = filled.max(self.memory.slot(n).filled());
            self.drain_slot(n)?;
            if state == ring::ENDED {
                let end = self.memory.slot(n).end();
                self.end(n, Some(end))?;
            }
        }
        Ok(filled)
    }

    /// Whether a slot is of an earlier recording of the same program: of a fork's child, which goes on
    /// sampling. Frees it once that has ended.
    fn is_of_before(&self, n: usize) -> bool {
        let slot = self.memory.slot(n);
        let before = slot.begin() < self.memory.control().start.load(Relaxed);
        let (pid, tid) = (slot.pid(), slot.tid());
        if before && !is_alive(Thread { pid, tid }) {
            self.memory.free(n);
        }
        before
    }

    /// Ends what threads that are no more have left.
    pub fn drain_dead(&mut self) -> io::Result<()> {
        for n in 0..self.memory.used() {
            let Some(thread) = self.slots[n].as_ref().map(|sampled| sampled.thread) else {
                continue;
            };
            if !is_alive(thread) {
                self.drain_slot(n)?;
                self.end(n, Some(time_base()))?;
            }
        }
        Ok(())
    }

    /// Gives threads the PMU back that somebody has taken and left.
    pub fn resume_evicted(&mut self) {
        for n in 0..self.memory.used() {
            if let Some(sampled) = &mut self.slots[n] {
                let slot = self.memory.slot(n);
                if let Some((descriptor, id)) = slot.event() {
                    let event = eviction::Event {
                        process: sampled.thread.pid,
                        descriptor,
                        id,
                    };
                    sampled.evictions.look(&event, slot.written());
                }
            }
        }
    }

    /// What somebody who took the PMU has cost.
    pub fn evicted(&self) -> eviction::Total {
        let present = self.slots.iter().flatten();
        present.fold(self.evicted, |all, sampled| all + sampled.evictions.total())
    }

    fn drain_slot(&mut self, n: usize) -> io::Result<()> {
        let mut sampled = match self.slots[n].take() {
            Some(sampled) => sampled,
            None => self.begin(n)?,
        };
        let slot = self.memory.slot(n);
        let thread = sampled.thread;
        if let Some((version, text)) = slot.maps(sampled.maps_version) {
            let begin = sampled.maps_version == 0;
            let time = if begin { sampled.begin } else { time_base() };
            sampled.maps_version = version;
            self.add_maps(thread, time, &text)?;
        }
        if let Some(reason) = slot.refusal().filter(|_| !sampled.refused) {
            sampled.refused = true;
            *self.refused.entry(reason).or_default() += 1;
        }
        let mut samples = std::mem::take(&mut self.samples);
        slot.take(|time, address, words| samples.push((time, address, words.into())));
        for (base, address, words) in &samples {
            let process = self.processes.entry(thread.pid).or_default();
            if process.find(*address).is_none() {
                self.look_again(thread, *base)?;
            }
            let time = self.clock.time(*base);
            let (entries, words) = self.parts(words);
            self.caller_words += words.len() as u64;
            let chain = self.chain(thread, *address, words);
            let branches = self.branches(thread, entries);
            self.writer
                .sample(thread, time, *address, &chain, &branches)?;
        }
        let lost = slot.lost();
        if lost > sampled.lost {
            let last = samples.last().map_or_else(time_base, |&(base, ..)| base);
            self.writer
                .lost(thread, self.clock.time(last), lost - sampled.lost)?;
            sampled.lost = lost;
        }
        samples.clear();
        self.samples = samples;
        self.slots[n] = Some(sampled);
        Ok(())
    }

    /// What the further words of a sample are: entries of the BHRB, and callers.
    fn parts<'w>(&self, words: &'w [u64]) -> (&'w [u64], &'w [u64]) {
        match words.split_first() {
            Some((&count, rest)) if self.memory.control().branches != 0 => {
                rest.split_at((count as usize).min(rest.len()))
            }
            _ => (&[], words),
        }
    }

    fn branches(&mut self, thread: Thread, entries: &[u64]) -> Vec<Branch> {
        let process = self.processes.get(&thread.pid);
        self.code.branches(entries, |address| {
            let mapping = process?.find(address)?;
            Some((&*mapping.path, address - mapping.start + mapping.offset))
        })
    }

    /// The callers of a sample, as a file has them.
    fn chain(&mut self, thread: Thread, address: u64, words: &[u64]) -> Vec<u64> {
        if words.is_empty() {
            return Vec::new();
        }
        let process = self.processes.get(&thread.pid);
        let place = process
            .and_then(|process| process.find(address))
            .map(|mapping| {
                let offset = address - mapping.start + mapping.offset;
                self.callers.find(&mapping.path, offset)
            });
        callers::chain(place.unwrap_or(Caller::Link), address, words)
    }

    /// A slot has a new thread.
    fn begin(&mut self, n: usize) -> io::Result<Sampled> {
        let slot = self.memory.slot(n);
        let (pid, tid, begin) = (slot.pid(), slot.tid(), slot.begin());
        let thread = Thread { pid, tid };
        let time = self.clock.time(begin);
        let known = self.processes.contains_key(&pid);
        if slot.origin() == ring::PROGRAM && known {
            self.replace(thread, begin)?;
        } else {
            let parent = match slot.origin() {
                ring::THREAD => pid,
                _ => slot.parent(),
            };
            let parent = Thread {
                pid: parent,
                tid: parent,
            };
            self.writer.task(thread, parent, time, false)?;
        }
        if slot.origin() != ring::THREAD {
            self.processes.insert(pid, Process::default());
        }
        let exec = slot.origin() == ring::PROGRAM;
        self.writer.comm(thread, time, &slot.name(), exec)?;
        self.threads += 1;
        Ok(Sampled {
            thread,
            begin,
            maps_version: 0,
            lost: 0,
            refused: false,
            evictions: Evictions::default(),
        })
    }

    /// A process has executed another program: its threads before that are no more.
    fn replace(&mut self, thread: Thread, begin: u64) -> io::Result<()> {
        for n in 0..self.slots.len() {
            let old = self.slots[n].as_ref();
            let Some(old) = old.filter(|old| old.thread.pid == thread.pid && old.begin < begin)
            else {
                continue;
            };
            let goes_on = old.thread == thread;
            self.drain_slot(n)?;
            self.end(n, (!goes_on).then_some(begin))?;
        }
        Ok(())
    }

    /// Gives a slot back. Without `end` the thread goes on.
    fn end(&mut self, n: usize, end: Option<u64>) -> io::Result<()> {
        let Some(sampled) = self.slots[n].take() else {
            return Ok(());
        };
        let thread = sampled.thread;
        self.evicted = self.evicted + sampled.evictions.total();
        let slot = self.memory.slot(n);
        if let Some(end) = end {
            let tid = if slot.origin() == ring::THREAD {
                thread.pid
            } else {
                slot.parent()
            };
            let parent = Thread { pid: tid, tid };
            self.writer
                .task(thread, parent, self.clock.time(end), true)?;
        }
        self.memory.free(n);
        Ok(())
    }

    /// Asks the system for a process' mappings, for a sample that is in none.
    fn look_again(&mut self, thread: Thread, base: u64) -> io::Result<()> {
        let process = self.processes.entry(thread.pid).or_default();
        let now = Instant::now();
        if process.looked.is_some_and(|last| now - last < LOOK_AGAIN) {
            return Ok(());
        }
        process.looked = Some(now);
        match std::fs::read_to_string(format!("/proc/{}/maps", thread.pid)) {
            // Before the sample.
            Ok(text) => self.add_maps(thread, base - 1, &text),
            // It has ended.
            Err(_) => Ok(()),
        }
    }

    fn add_maps(&mut self, thread: Thread, base: u64, text: &str) -> io::Result<()> {
        let process = self.processes.entry(thread.pid).or_default();
        for mapping in text.lines().filter_map(Mapping::parse) {
            if process.add(&mapping) {
                let build_id = self.build_ids.of(&mapping.path);
                let time = self.clock.time(base);
                self.writer.mapping(thread, time, &mapping, build_id)?;
            }
        }
        Ok(())
    }
}

fn is_alive(thread: Thread) -> bool {
    // SAFETY: sends nothing.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, thread.pid, thread.tid, 0) };
    sent == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}
