// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfers the samples of a thread from its ring to the file.

use std::io;

use ebbprof_ring as ring;
use ebbprof_ring::Broken;
use ebbprof_ring::Sample;

use crate::branches;
use crate::callers;
use crate::callers::Caller;
use crate::clock::time_base;
use crate::perfdata::Branch;
use crate::perfdata::Thread;
use crate::processes::Processes;
use crate::symbols::visible;

/// Maximum number of different reasons for refusals that are counted separately.
const MOST_REASONS: usize = 32;

impl Processes<'_> {
    /// Writes the data of a slot's thread: its samples, and the number of missing ones.
    pub(super) fn drain_slot(&mut self, n: usize) -> io::Result<()> {
        let Some(mut sampled) = self.slots[n].take() else {
            return Ok(());
        };
        let slot = self.memory.slot(n);
        let thread = sampled.thread;
        if let Some(reason) = slot.refusal().filter(|_| !sampled.refused) {
            sampled.refused = true;
            self.refuse(&reason);
        }
        // Must be read before the samples: once it is set, no more samples follow.
        let mut ceased = slot.has_ceased();
        let mut words = std::mem::take(&mut self.words);
        let was_broken = sampled.position.is_broken();
        if slot.take(&mut sampled.position, &mut words) == Err(Broken) && !was_broken {
            self.broken += 1;
            // The file has the same record for both.
            ceased = true;
        }
        let mut last = None;
        for sample in ring::samples(&words) {
            let base = ring::time_base(sample.first, sampled.begin);
            self.write_sample(thread, base, sample)?;
            last = Some(base);
        }
        words.clear();
        self.words = words;
        sampled.last = last.unwrap_or(sampled.last);
        if ceased && !sampled.ceased {
            sampled.ceased = true;
            if !sampled.position.is_broken() {
                let (threads, ticks) = self.ceased;
                let without = time_base().saturating_sub(sampled.last);
                self.ceased = (threads + 1, ticks.saturating_add(without));
            }
            self.writer.ceased(thread, self.clock.time(sampled.last))?;
        }
        let lost = slot.lost();
        if lost > sampled.lost {
            let last = last.unwrap_or_else(time_base);
            self.writer
                .lost(thread, self.clock.time(last), lost - sampled.lost)?;
            sampled.lost = lost;
        }
        self.slots[n] = Some(sampled);
        Ok(())
    }

    /// Counts a reason why a thread has no samples. A program has written the text.
    fn refuse(&mut self, reason: &str) {
        let reason = visible(reason).to_string();
        let has_room = self.refused.len() < MOST_REASONS || self.refused.contains_key(&reason);
        let reason = if has_room {
            reason
        } else {
            "other reasons".into()
        };
        *self.refused.entry(reason).or_default() += 1;
    }

    fn write_sample(&mut self, thread: Thread, base: u64, sample: Sample<'_>) -> io::Result<()> {
        let process = self.processes.entry(thread.pid).or_default();
        if process.find(sample.address).is_none() {
            self.look_again(thread, base)?;
        }
        let time = self.clock.time(base);
        let (entries, words) = self.parts(sample.more);
        self.caller_words += words.len() as u64;
        let chain = self.chain(thread, sample.address, words);
        let branches = self.branches(thread, entries);
        self.writer
            .sample(thread, time, sample.address, &chain, &branches)
    }

    /// Splits the further words of a sample into BHRB entries and callers.
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

    /// Returns the call chain of a sample in the form that the file has.
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
}
