// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts about processes from the system, to check what a process itself writes to the shared memory.
//!
//! The numbers, descriptors and paths in a slot are the program's word. It may be another user than
//! `ebbprof`, with fewer rights, so nothing is done to a process, nor read of it, unless the system shows
//! that it takes part in the recording.

use std::fs;
use std::io;
use std::io::ErrorKind;

use crate::memory::Memory;
use crate::perfdata::Thread;

/// The time when a process began, by which it is known from a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start(u64);

impl Start {
    /// Returns that of the process which has this number now.
    pub fn of(pid: u32) -> Option<Self> {
        /// Place in the line, from behind the name on, which may have blanks itself.
        const START: usize = 19;
        let line = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let end = line.iter().rposition(|&byte| byte == b')')?;
        let words = str::from_utf8(line.get(end + 2..)?).ok()?;
        words.split(' ').nth(START)?.parse().ok().map(Self)
    }
}

/// Part of a process in the recording.
#[derive(Clone, Copy, Debug, Default)]
pub enum Standing {
    /// It had the memory mapped when it was looked at.
    Member(Start),
    /// The system does not show its mappings to this user.
    Hidden,
    /// It has ended, runs another program by now, or has never taken part.
    #[default]
    Unknown,
}

impl Standing {
    /// Looks at the process of a thread.
    pub fn of(thread: Thread, memory: &Memory) -> Self {
        let start = Start::of(thread.pid);
        match maps(thread) {
            // The same before and after: it is the one whose mappings were read.
            Ok(text) if memory.is_mapped_in(&text) && start == Start::of(thread.pid) => {
                start.map_or(Self::Unknown, Self::Member)
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Self::Hidden,
            _ => Self::Unknown,
        }
    }
}

/// Returns the mappings of a thread's process, as the system has them.
pub fn maps(thread: Thread) -> io::Result<Vec<u8>> {
    let Thread { pid, tid } = thread;
    // A process whose first thread has ended shows them by its other threads only: who has ended has
    // an empty file, or none.
    let text = fs::read(format!("/proc/{pid}/task/{tid}/maps"));
    match text {
        Ok(text) if !text.is_empty() => Ok(text),
        _ => match fs::read(format!("/proc/{pid}/maps")) {
            Ok(text) if text.is_empty() => Err(ErrorKind::NotFound.into()),
            other => other,
        },
    }
}

/// Returns whether a thread is one of its process.
pub fn has_thread(thread: Thread) -> bool {
    let Thread { pid, tid } = thread;
    fs::exists(format!("/proc/{pid}/task/{tid}")).unwrap_or(false)
}
