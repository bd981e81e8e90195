// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of threads. Most threads set theirs after they have begun.
//!
//! The kernel reports such changes to perf only, so the names are checked every now and then. A new
//! name counts from the time at which the thread was last seen with the previous one.

use std::fs;
use std::io;

use crate::clock::Clock;
use crate::clock::time_base;
use crate::perfdata::Thread;
use crate::perfdata::Writer;

/// The name of a thread that is recorded in the file.
pub struct Name {
    text: String,
    /// Time base at which the thread was last seen with it.
    seen: u64,
    /// A different name, and when it was seen.
    next: Option<(String, u64)>,
}

impl Name {
    /// Returns the name of a thread that has just begun.
    pub fn new(text: String, begin: u64) -> Self {
        Self {
            text,
            seen: begin,
            next: None,
        }
    }

    /// Checks the name. A different one is written at the next check only: the process may have
    /// just executed another program, whose threads must have the name instead.
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

    /// Records the name that the thread had at its end.
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

    /// Writes a different name that was seen.
    pub fn write_next(
        &mut self,
        thread: Thread,
        clock: &Clock,
        writer: &mut Writer,
    ) -> io::Result<()> {
        if let Some((name, seen)) = self.next.take() {
            // A nanosecond later, because readers may choose either of two names with the same
            // time.
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
