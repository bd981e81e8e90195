// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the shared memory to the file: which processes and threads there are, their mappings,
//! and their samples.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

use ebbprof_ring as ring;

use crate::alive::exists;
use crate::alive::is_alive;
use crate::branches;
use crate::callers;
use crate::callers::Caller;
use crate::clock::Clock;
use crate::clock::time_base;
use crate::eviction;
use crate::eviction::Evictions;
use crate::files::Files;
use crate::image;
use crate::mappings::Process;
use crate::mappings::Snapshot;
use crate::memory::Memory;
use crate::names::Name;
use crate::perfdata::Branch;
use crate::perfdata::Thread;
use crate::perfdata::Writer;

/// A thread that has a slot.
struct Sampled {
    thread: Thread,
    begin: u64,
    maps_version: u32,
    lost: u64,
    /// The time base of its last sample.
    last: u64,
    ceased: bool,
    refused: bool,
    evictions: Evictions,
    name: Name,
}

/// What is recorded.
pub struct Processes<'a> {
    pub memory: &'a Memory,
    pub clock: Clock,
    pub writer: Writer,
    slots: Vec<Option<Sampled>>,
    pub(super) processes: HashMap<u32, Process>,
    pub(super) files: Files,
    /// Where handlers of signals return to, in the vDSO.
    pub(super) trampoline: Option<u64>,
    samples: Vec<(u64, u64, Box<[u64]>)>,
    pub threads: u64,
    /// Words that samples have of callers.
    pub caller_words: u64,
    /// Why threads were not sampled, and how many.
    pub refused: BTreeMap<String, u64>,
    /// How many threads had no samples at their end, and for how many ticks.
    pub ceased: (u64, u64),
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
            trampoline: image::trampoline(),
            files: Files::new(memory.control().frames != 0, memory.has_branches()),
            samples: Vec::new(),
            threads: 0,
            caller_words: 0,
            refused: BTreeMap::new(),
            ceased: (0, 0),
            evicted: eviction::Total::default(),
        }
    }

    /// Writes what there is; how full the fullest ring was.
    pub fn drain(&mut self) -> io::Result<f64> {
        let mut filled = 0.0_f64;
        let (mut present, mut ended) = (Vec::new(), Vec::new());
        for n in 0..self.memory.used() {
            let state = self.memory.state(n);
            if is_complete(state) && !self.is_of_before(n) {
                filled = filled.max(self.memory.slot(n).filled());
                present.push(n);
                ended.extend((state == ring::ENDED).then(|| (n, self.memory.slot(n).begin())));
            }
        }
        self.drain_slots(&present)?;
        for (n, begin) in ended {
            let slot = self.memory.slot(n);
            let (end, name) = (slot.end(), slot.name());
            // An exec that was told meanwhile may have given the slot to a thread that has just begun.
            let Some(sampled) = self.slots[n].as_mut().filter(|one| one.begin == begin) else {
                continue;
            };
            let thread = sampled.thread;
            (sampled.name).end(name, thread, &self.clock, &mut self.writer)?;
            self.end(n, Some(end))?;
        }
        Ok(filled)
    }

    /// Writes what these have: first the mappings, in the order of time, as one that was closed since
    /// has samples in any of the rings.
    fn drain_slots(&mut self, slots: &[usize]) -> io::Result<()> {
        let mut snapshots = Vec::new();
        for &n in slots {
            // An exec, of which the slot before is told first, has ended that; another thread may be
            // filling it in.
            if !is_complete(self.memory.state(n)) {
                continue;
            }
            if self.slots[n].is_none() {
                self.slots[n] = Some(self.begin(n)?);
            }
            if let Some(sampled) = &mut self.slots[n]
                && let Some((version, time, text)) = self.memory.slot(n).maps(sampled.maps_version)
            {
                sampled.maps_version = version;
                snapshots.push((time, n, version, Snapshot::new(sampled.thread, time, &text)));
            }
        }
        snapshots.sort_by_key(|&(time, ..)| time);
        for (.., snapshot) in &snapshots {
            self.learn(snapshot)?;
        }
        for &n in slots {
            self.drain_slot(n)?;
        }
        for (_, n, version, snapshot) in &snapshots {
            let process = self.processes.entry(snapshot.thread.pid).or_default();
            process.forget_others(snapshot);
            self.memory.slot(*n).maps_are_read(*version);
        }
        Ok(())
    }

    /// Notes the names that threads have given themselves.
    pub fn look_for_names(&mut self) -> io::Result<()> {
        for n in 0..self.memory.used() {
            if let Some(sampled) = &mut self.slots[n] {
                let thread = sampled.thread;
                (sampled.name).look(thread, &self.clock, &mut self.writer)?;
            }
        }
        Ok(())
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
                self.free_if_abandoned(n);
                continue;
            };
            if !is_alive(thread) {
                self.drain_slots(&[n])?;
                if let Some(sampled) = &mut self.slots[n] {
                    (sampled.name).write_next(thread, &self.clock, &mut self.writer)?;
                }
                self.end(n, Some(time_base()))?;
            }
        }
        self.forget_processes();
        Ok(())
    }

    fn has_slots(&self, pid: u32) -> bool {
        (self.slots.iter().flatten()).any(|sampled| sampled.thread.pid == pid)
    }

    /// Forgets those that are no more: one without slots may have threads that have not begun.
    fn forget_processes(&mut self) {
        let mut processes = std::mem::take(&mut self.processes);
        processes.retain(|&pid, _| self.has_slots(pid) || exists(pid));
        self.processes = processes;
    }

    /// Frees a slot whose thread was killed before it had filled it in.
    fn free_if_abandoned(&self, n: usize) {
        if self.memory.state(n) == ring::TAKEN {
            let slot = self.memory.slot(n);
            let (pid, tid) = (slot.pid(), slot.tid());
            let is_dead = pid != 0 && tid != 0 && !is_alive(Thread { pid, tid });
            // It may have been filled in and ended meanwhile.
            if is_dead && self.memory.state(n) == ring::TAKEN && slot.tid() == tid {
                self.memory.free(n);
            }
        }
    }

    /// Gives threads the PMU back that somebody has taken and left.
    pub fn resume_evicted(&mut self) {
        for n in 0..self.memory.used() {
            if let Some(sampled) = &mut self.slots[n] {
                let slot = self.memory.slot(n);
                if let Some((descriptor, id)) = slot.event() {
                    let event = eviction::Event {
                        thread: sampled.thread,
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
        let Some(mut sampled) = self.slots[n].take() else {
            return Ok(());
        };
        let slot = self.memory.slot(n);
        let thread = sampled.thread;
        if let Some(reason) = slot.refusal().filter(|_| !sampled.refused) {
            sampled.refused = true;
            *self.refused.entry(reason).or_default() += 1;
        }
        // Before the samples, of which none comes any more then.
        let ceased = slot.has_ceased();
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
        if let Some(&(base, ..)) = samples.last() {
            sampled.last = base;
        }
        if ceased && !sampled.ceased {
            sampled.ceased = true;
            let (threads, ticks) = self.ceased;
            self.ceased = (
                threads + 1,
                ticks + time_base().saturating_sub(sampled.last),
            );
            self.writer.ceased(thread, self.clock.time(sampled.last))?;
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
            Some((&count, rest)) if self.memory.has_branches() => {
                rest.split_at((count as usize).min(rest.len()))
            }
            _ => (&[], words),
        }
    }

    fn branches(&mut self, thread: Thread, entries: &[u64]) -> Vec<Branch> {
        let process = self.processes.get(&thread.pid);
        branches::decode(entries, |address| {
            let place = process?.find(address)?;
            self.files.instruction(place.file, place.offset)
        })
    }

    /// The callers of a sample, as a file has them.
    fn chain(&mut self, thread: Thread, address: u64, words: &[u64]) -> Vec<u64> {
        if words.is_empty() {
            return Vec::new();
        }
        let process = self.processes.get(&thread.pid);
        let place = process.and_then(|process| process.find(address));
        let caller = place.map(|place| self.files.caller(place.file, place.offset));
        let trampoline = process.and_then(|process| process.trampoline);
        callers::chain(caller.unwrap_or(Caller::Link), address, words, trampoline)
    }

    /// A slot has a new thread.
    fn begin(&mut self, n: usize) -> io::Result<Sampled> {
        let slot = self.memory.slot(n);
        let (pid, tid, begin) = (slot.pid(), slot.tid(), slot.begin());
        let thread = Thread { pid, tid };
        let time = self.clock.time(begin);
        if slot.origin() == ring::PROGRAM && self.has_slots(pid) {
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
            self.processes.remove(&pid);
        }
        (self.processes.entry(pid)).or_insert_with(|| Process::new(begin));
        let exec = slot.origin() == ring::PROGRAM;
        let name = slot.name();
        self.writer.comm(thread, time, &name, exec)?;
        self.threads += 1;
        Ok(Sampled {
            thread,
            begin,
            maps_version: 0,
            lost: 0,
            last: begin,
            ceased: false,
            refused: false,
            evictions: Evictions::default(),
            name: Name::new(name, begin),
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
            self.drain_slots(&[n])?;
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
}

/// Whether a slot of this state says which thread it has.
fn is_complete(state: u32) -> bool {
    state == ring::LIVE || state == ring::ENDED
}
