// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of threads, which most give themselves after they have begun.
//!
//! The kernel tells nobody but perf when that is, so they are looked at every now and then. A name
//! counts from when the thread was last seen to have the one before.

use std::fs;
use std::io;

use crate::clock::Clock;
use crate::clock::time_base;
use crate::perfdata::Thread;
use crate::perfdata::Writer;

/// The name that a file has for a thread.
pub struct Name {
    text: String,
    /// The time base when the thread was last seen to have it.
    seen: u64,
    /// Another one, and when it was seen.
    next: Option<(String, u64)>,
}

impl Name {
    /// That of a thread which has just begun.
    pub fn new(text: String, begin: u64) -> Self {
        Self {
            text,
            seen: begin,
            next: None,
        }
    }

    /// Looks at it. Another one is written at the next look: it may be the name of a program that the
    /// process has just executed, where it is for the threads of that only.
    pub fn look(&mut self, thread: Thread, clock: &Clock, writer: &mut Writer) -> io::Result<()> {
        let Thread { pid, tid } = thread;
        let now = time_base();
        let Ok(name) = fs::read(format!("/proc/{pid}/task/{tid}/comm")) else {
            return Ok(());
        };
        self.write_next(thread, clock, writer)?;
        let name = String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name));
        match *name == self.text {
            true => self.seen = now,
            false => self.next = Some((name.into(), now)),
        }
        Ok(())
    }

    /// The thread has this name at its end.
    pub fn end(
        &mut self,
        name: String,
        thread: Thread,
        clock: &Clock,
        writer: &mut Writer,
    ) -> io::Result<()> {
        self.write_next(thread, clock, writer)?;
        self.next = (name != self.text).then(|| (name, time_base()));
        self.write_next(thread, clock, writer)
    }

    /// Writes one that was seen.
    pub fn write_next(
        &mut self,
        thread: Thread,
        clock: &Clock,
        writer: &mut Writer,
    ) -> io::Result<()> {
        if let Some((name, seen)) = self.next.take() {
            // A nanosecond later, as of two names at a time readers may take either.
            writer.comm(
                thread,
                clock.time(self.seen).saturating_add(1),
                &name,
                false,
            )?;
            *self = Self::new(name, seen);
        }
        Ok(())
    }
}
