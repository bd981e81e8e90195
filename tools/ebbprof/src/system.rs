// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts about processes from the system, to verify what a process itself writes to the shared
//! memory.
//!
//! The program has written the ids, descriptors and paths in a slot, and may run as another user
//! than `ebbprof`, with fewer privileges. So `ebbprof` acts on a process or reads from it only if
//! the system shows that it takes part in the recording.

use std::fs;
use std::io;
use std::io::ErrorKind;

use crate::memory::Memory;
use crate::perfdata::Thread;

/// The start time of a process, which distinguishes it from a later one with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start(u64);

impl Start {
    /// Returns the start time of the process that has this id now.
    pub fn of(pid: u32) -> Option<Self> {
        /// Index of the field, counted after the name, which may contain blanks.
        const START: usize = 19;
        let line = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let end = line.iter().rposition(|&byte| byte == b')')?;
        let words = str::from_utf8(line.get(end + 2..)?).ok()?;
        words.split(' ').nth(START)?.parse().ok().map(Self)
    }
}

/// The part of a process in the recording.
#[derive(Clone, Copy, Debug, Default)]
pub enum Standing {
    /// The process had mapped the memory when it was checked.
    Member(Start),
    /// The system does not show the process's mappings to this user.
    Hidden,
    /// The process has ended, runs another program by now, or has never taken part.
    #[default]
    Unknown,
}

impl Standing {
    /// Checks the process of a thread.
    pub fn of(thread: Thread, memory: &Memory) -> Self {
        let start = Start::of(thread.pid);
        match maps(thread) {
            // Equal before and after, so the process with this start time is the one that was read.
            Ok(text) if memory.is_mapped_in(&text) && start == Start::of(thread.pid) => {
                start.map_or(Self::Unknown, Self::Member)
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Self::Hidden,
            _ => Self::Unknown,
        }
    }
}

/// Returns the mappings of a thread's process, as the system shows them.
pub fn maps(thread: Thread) -> io::Result<Vec<u8>> {
    let Thread { pid, tid } = thread;
    // A process whose first thread has ended shows them only through its other threads. For a
    // thread that has ended the file is empty or missing.
    let text = fs::read(format!("/proc/{pid}/task/{tid}/maps"));
    match text {
        Ok(text) if !text.is_empty() => Ok(text),
        _ => match fs::read(format!("/proc/{pid}/maps")) {
            Ok(text) if text.is_empty() => Err(ErrorKind::NotFound.into()),
            other => other,
        },
    }
}

/// Returns whether a thread belongs to its process.
pub fn has_thread(thread: Thread) -> bool {
    let Thread { pid, tid } = thread;
    fs::exists(format!("/proc/{pid}/task/{tid}")).unwrap_or(false)
}
