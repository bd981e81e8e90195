// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recorded processes and threads: reads their mappings and samples from the shared memory, and
//! writes them to the file.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::io;

use ebbprof_ring as ring;
use ebbprof_ring::Position;

use crate::alive::exists;
use crate::alive::is_alive;
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
use crate::perfdata::Thread;
use crate::perfdata::Writer;
use crate::system::Standing;

/// A thread that has a slot.
pub(super) struct Sampled {
    pub(super) thread: Thread,
    pub(super) begin: u64,
    maps_version: u32,
    /// The position up to which its ring was read.
    pub(super) position: Position,
    pub(super) lost: u64,
    /// Time base of its last sample.
    pub(super) last: u64,
    pub(super) ceased: bool,
    pub(super) refused: bool,
    evictions: Evictions,
    name: Name,
}

/// The state of a recording.
pub struct Processes<'a> {
    pub memory: &'a Memory,
    pub clock: Clock,
    pub writer: Writer,
    pub(super) slots: Vec<Option<Sampled>>,
    pub(super) processes: HashMap<u32, Process>,
    pub(super) files: Files,
    /// Offset in the vDSO of the address that signal handlers return to.
    pub(super) trampoline: Option<u64>,
    /// Words of the samples of a thread while they are written; kept to reuse its memory.
    pub(super) words: Vec<u64>,
    pub threads: u64,
    /// Number of words for callers in all samples.
    pub caller_words: u64,
    /// Reasons why threads were not sampled, with the number of threads.
    pub refused: BTreeMap<String, u64>,
    /// Number of threads that had no samples at their end, and the sum of these times in ticks.
    pub ceased: (u64, u64),
    /// Number of threads whose rings held data that no handler writes.
    pub broken: u64,
    /// Evictions of the threads that have ended.
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
            files: Files::new(memory.has_callers(), memory.has_branches()),
            words: Vec::new(),
            threads: 0,
            caller_words: 0,
            refused: BTreeMap::new(),
            ceased: (0, 0),
            broken: 0,
            evicted: eviction::Total::default(),
        }
    }

    /// Writes all available samples. Returns how full the fullest ring was.
    pub fn drain(&mut self) -> io::Result<f64> {
        let mut filled = 0.0_f64;
        let (mut present, mut ended) = (Vec::new(), Vec::new());
        for n in 0..self.memory.used() {
            let state = self.memory.state(n);
            if is_complete(state) && !self.is_of_before(n) {
                filled = filled.max(self.filled(n));
                present.push(n);
                ended.extend((state == ring::ENDED).then(|| (n, self.memory.slot(n).begin())));
            }
        }
        self.drain_slots(&present)?;
        for (n, begin) in ended {
            let slot = self.memory.slot(n);
            let (end, name) = (slot.end(), slot.name());
            // Another slot may have shown an exec in the meantime, which frees this one; a thread
            // that has just begun may have taken it.
            let Some(sampled) = self.slots[n].as_mut().filter(|one| one.begin == begin) else {
                continue;
            };
            let thread = sampled.thread;
            (sampled.name).end(name, thread, &self.clock, &mut self.writer)?;
            self.end(n, Some(end))?;
        }
        Ok(filled)
    }

    fn filled(&self, n: usize) -> f64 {
        let sampled = self.slots[n].as_ref();
        let position = sampled.map(|one| one.position).unwrap_or_default();
        self.memory.slot(n).filled(&position)
    }

    /// Writes the data of these slots: first the mappings, ordered by time, because any of the
    /// rings may have samples in a mapping that was closed since.
    fn drain_slots(&mut self, slots: &[usize]) -> io::Result<()> {
        let mut snapshots = Vec::new();
        for &n in slots {
            // An exec that an earlier slot of the list has shown may have freed this one, and
            // another thread may be initialising it.
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

    /// Records the names that threads have given themselves.
    pub fn look_for_names(&mut self) -> io::Result<()> {
        for n in 0..self.memory.used() {
            if let Some(sampled) = &mut self.slots[n] {
                let thread = sampled.thread;
                (sampled.name).look(thread, &self.clock, &mut self.writer)?;
            }
        }
        Ok(())
    }

    /// Returns whether a slot belongs to an earlier recording of the same program: to a forked
    /// child that still takes samples. Frees it once the child has ended.
    fn is_of_before(&self, n: usize) -> bool {
        let slot = self.memory.slot(n);
        let before = slot.begin() < self.memory.start();
        let (pid, tid) = (slot.pid(), slot.tid());
        if before && !is_alive(Thread { pid, tid }) {
            self.memory.free(n);
        }
        before
    }

    /// Writes the last samples of threads that have died, and frees their slots.
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

    /// Removes processes that have ended. One without slots may still have threads that have not
    /// begun.
    fn forget_processes(&mut self) {
        let mut processes = std::mem::take(&mut self.processes);
        processes.retain(|&pid, _| self.has_slots(pid) || exists(pid));
        self.processes = processes;
    }

    /// Frees a slot whose thread was killed before it had initialised it.
    fn free_if_abandoned(&self, n: usize) {
        if self.memory.state(n) == ring::TAKEN {
            let slot = self.memory.slot(n);
            let (pid, tid) = (slot.pid(), slot.tid());
            let is_dead = pid != 0 && tid != 0 && !is_alive(Thread { pid, tid });
            // It may have been initialised and ended in the meantime.
            if is_dead && self.memory.state(n) == ring::TAKEN && slot.tid() == tid {
                self.memory.free(n);
            }
        }
    }

    /// Gives the PMU back to threads that another event has taken it from and released.
    pub fn resume_evicted(&mut self) {
        for n in 0..self.memory.used() {
            if let Some(sampled) = &mut self.slots[n] {
                let slot = self.memory.slot(n);
                if let Some((descriptor, id)) = slot.event() {
                    let process = self.processes.get(&sampled.thread.pid);
                    let event = eviction::Event {
                        thread: sampled.thread,
                        descriptor,
                        id,
                        standing: process.map(|process| process.standing).unwrap_or_default(),
                    };
                    sampled.evictions.look(&event, slot.written());
                }
            }
        }
    }

    /// Returns the evictions of all threads.
    pub fn evicted(&self) -> eviction::Total {
        let present = self.slots.iter().flatten();
        present.fold(self.evicted, |all, sampled| all + sampled.evictions.total())
    }

    /// Records a new thread in a slot.
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
        let process = (self.processes.entry(pid)).or_insert_with(|| Process::new(begin));
        if !matches!(process.standing, Standing::Member(_)) {
            process.standing = Standing::of(thread, self.memory);
        }
        let exec = slot.origin() == ring::PROGRAM;
        let name = slot.name();
        self.writer.comm(thread, time, &name, exec)?;
        self.threads += 1;
        Ok(Sampled {
            thread,
            begin,
            maps_version: 0,
            position: Position::default(),
            lost: 0,
            last: begin,
            ceased: false,
            refused: false,
            evictions: Evictions::default(),
            name: Name::new(name, begin),
        })
    }

    /// Ends the other threads of a process that has executed another program.
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

    /// Frees a slot. Without `end` the thread itself continues.
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

/// Returns whether a slot in this state is initialised.
fn is_complete(state: u32) -> bool {
    state == ring::LIVE || state == ring::ENDED
}
