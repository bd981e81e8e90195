// SPDX-License-Identifier: MIT OR Apache-2.0
//! A perf.data file, written as `perf record` writes one (the kernel's
//! `tools/perf/Documentation/perf.data-file-format.txt` and `perf_event_open(2)` describe it).
//!
//! ```text
//! | header | id of the event | attribute | records ... | section headers | features |
//! ```
//!
//! The records need not be sorted by time: without `PERF_RECORD_FINISHED_ROUND` readers sort them
//! all.

mod attr;
mod cut;
mod features;
mod maps;
mod output;

use std::fs::File;
use std::io;
use std::io::BufWriter;
use std::io::Seek;
use std::io::SeekFrom;
use std::io::Write;
use std::mem::replace;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

pub use attr::Event;
pub use maps::Mapping;

/// The id of the only event.
const ID: u64 = 1;
const HEADER_SIZE: u64 = 104;
/// Size of the buffer, that is of most writes, in bytes.
const BUFFER: usize = 1 << 20;
/// Maximum age of records that are not in the file yet.
const OLDEST: Duration = Duration::from_millis(500);
const DATA_OFFSET: u64 = HEADER_SIZE + 8 + attr::ENTRY_SIZE;

const RECORD_LOST: u32 = 2;
const RECORD_COMM: u32 = 3;
const RECORD_EXIT: u32 = 4;
const RECORD_THROTTLE: u32 = 5;
const RECORD_FORK: u32 = 7;
const RECORD_SAMPLE: u32 = 9;
const RECORD_MMAP2: u32 = 10;
const MISC_USER: u16 = 2;
const MISC_COMM_EXEC: u16 = 1 << 13;
const MISC_MMAP_BUILD_ID: u16 = 1 << 14;

/// A thread: process and thread id.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Thread {
    pub pid: u32,
    pub tid: u32,
}

/// A taken branch: its address and its target, or 0 if either is not known.
pub struct Branch {
    pub from: u64,
    pub to: u64,
    pub mispredicted: bool,
}

/// A perf.data file that is being written.
pub struct Writer {
    file: BufWriter<File>,
    event: Event,
    record: Vec<u8>,
    length: u64,
    /// Size of the records according to the header in the file, and when that header was written.
    counted: (u64, Instant),
    first: u64,
    last: u64,
    complete: bool,
    pub samples: u64,
    pub lost: u64,
}

impl Writer {
    /// Creates the file at `path`. Keeps an older one like [`output::create`].
    pub fn new(path: &Path, event: Event) -> io::Result<Self> {
        let mut writer = Self {
            file: BufWriter::with_capacity(BUFFER, output::create(path)?),
            event,
            record: Vec::new(),
            length: 0,
            counted: (0, Instant::now()),
            first: u64::MAX,
            last: 0,
            complete: false,
            samples: 0,
            lost: 0,
        };
        writer.write_header(0)?;
        writer.file.flush()?;
        Ok(writer)
    }

    /// Writes records that have become too old, and the header that counts them. The file can then
    /// be read if this process is killed.
    pub fn keep_readable(&mut self) {
        let (length, since) = self.counted;
        // The header of a complete file counts all of its records.
        if self.complete || length == self.length || since.elapsed() < OLDEST {
            return;
        }
        // If the disk has no room for the records, they stay in the buffer. The next write reports
        // the error if there is still no room.
        let is_written = self.file.flush().is_ok() && {
            // Written at an offset, so that the place for the next records does not change.
            let file = self.file.get_ref();
            file.write_all_at(&self.header(0), 0).is_ok()
        };
        let length = if is_written { self.length } else { length };
        self.counted = (length, Instant::now());
    }

    fn write_header(&mut self, features: u64) -> io::Result<()> {
        let header = self.header(features);
        self.file.write_all(&header)
    }

    fn header(&self, features: u64) -> Vec<u8> {
        let mut header = b"PERFILE2".to_vec();
        let mut words = |words: &[u64]| words.iter().for_each(|&word| put(&mut header, word));
        words(&[HEADER_SIZE, attr::ENTRY_SIZE]);
        words(&[HEADER_SIZE + 8, attr::ENTRY_SIZE]);
        words(&[DATA_OFFSET, self.length]);
        // The obsolete event types, and the features.
        words(&[0, 0, features, 0, 0, 0]);
        // Then the event's ids, and its attribute with their section header.
        words(&[ID]);
        header.extend(self.event.attr());
        put(&mut header, HEADER_SIZE);
        put(&mut header, 8);
        header
    }

    /// Completes the file: appends the feature sections and rewrites the header. The next record
    /// overwrites those sections, even if there was no room for them.
    pub fn complete(&mut self, command: &[String]) -> io::Result<()> {
        self.file.flush()?;
        self.complete = true;
        let written = self.write_rest(command);
        if written.is_err() {
            // There may still be room for records.
            self.drop_buffer()?;
        }
        written
    }

    fn write_rest(&mut self, command: &[String]) -> io::Result<()> {
        let features = features::all(&self.event, command, self.first.min(self.last), self.last);
        let mut offset = DATA_OFFSET + self.length + 16 * features.len() as u64;
        for (_, content) in &features {
            let mut place = Vec::new();
            put(&mut place, offset);
            put(&mut place, content.len() as u64);
            self.file.write_all(&place)?;
            offset += content.len() as u64;
        }
        for (_, content) in &features {
            self.file.write_all(content)?;
        }
        self.write_header_again(features.iter().fold(0, |bits, (bit, _)| bits | 1 << bit))
    }

    /// Discards the data in the buffer.
    fn drop_buffer(&mut self) -> io::Result<()> {
        let file = BufWriter::with_capacity(BUFFER, self.file.get_ref().try_clone()?);
        let _ = replace(&mut self.file, file).into_parts();
        Ok(())
    }

    /// Continues after the last record. Until then a reader of the file sees the records up to when
    /// it was completed.
    fn go_on(&mut self) -> io::Result<()> {
        self.complete = false;
        self.write_header_again(0)
    }

    fn write_header_again(&mut self, features: u64) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        self.write_header(features)?;
        self.file.seek(SeekFrom::Start(DATA_OFFSET + self.length))?;
        self.file.flush()
    }

    /// Writes the record in `record`, after its header.
    fn write(&mut self, kind: u32, misc: u16) -> io::Result<()> {
        if self.complete {
            self.go_on()?;
        }
        // CAST: The longest part is a path or a sample's words, which have a few KiB.
        let size = self.record.len() as u16 + 8;
        self.file.write_all(&kind.to_le_bytes())?;
        self.file.write_all(&misc.to_le_bytes())?;
        self.file.write_all(&size.to_le_bytes())?;
        self.file.write_all(&self.record)?;
        self.record.clear();
        self.length += u64::from(size);
        Ok(())
    }

    fn put_thread(&mut self, thread: Thread) {
        put_half(&mut self.record, thread.pid);
        put_half(&mut self.record, thread.tid);
    }

    /// Appends the fields that all records except samples end with (`sample_id_all`).
    fn put_id(&mut self, thread: Thread, time: u64) {
        self.put_thread(thread);
        put(&mut self.record, time);
    }

    /// Appends a NUL-terminated text, padded to whole doublewords.
    fn put_text(&mut self, text: &[u8]) {
        self.record.extend_from_slice(text);
        let padding = 8 - text.len() % 8;
        self.record.extend(std::iter::repeat_n(0, padding));
    }

    /// Writes a sample, with its callers and branches if the event has them.
    pub fn sample(
        &mut self,
        thread: Thread,
        time: u64,
        address: u64,
        callers: &[u64],
        branches: &[Branch],
    ) -> io::Result<()> {
        self.samples += 1;
        self.first = self.first.min(time);
        self.last = self.last.max(time);
        put(&mut self.record, address);
        self.put_thread(thread);
        put(&mut self.record, time);
        let period = self.event.period;
        put(&mut self.record, period);
        if self.event.callers {
            put(&mut self.record, callers.len() as u64);
            callers.iter().for_each(|&word| put(&mut self.record, word));
        }
        if self.event.branches.is_some() {
            put(&mut self.record, branches.len() as u64);
            for branch in branches {
                put(&mut self.record, branch.from);
                put(&mut self.record, branch.to);
                // The flag for mispredicted, or the one for predicted.
                put(&mut self.record, if branch.mispredicted { 1 } else { 2 });
            }
        }
        self.write(RECORD_SAMPLE, MISC_USER)
    }

    /// Records that `count` samples were lost.
    pub fn lost(&mut self, thread: Thread, time: u64, count: u64) -> io::Result<()> {
        self.lost = self.lost.saturating_add(count);
        put(&mut self.record, ID);
        put(&mut self.record, count);
        self.put_id(thread, time);
        self.write(RECORD_LOST, 0)
    }

    /// Records that the thread has no samples from this time on.
    pub fn ceased(&mut self, thread: Thread, time: u64) -> io::Result<()> {
        // The ids of the event and of its stream.
        for word in [time, ID, ID] {
            put(&mut self.record, word);
        }
        self.put_id(thread, time);
        self.write(RECORD_THROTTLE, 0)
    }

    /// Records the thread's name; `exec` indicates that it executes another program.
    pub fn comm(&mut self, thread: Thread, time: u64, name: &str, exec: bool) -> io::Result<()> {
        self.put_thread(thread);
        self.put_text(name.as_bytes());
        self.put_id(thread, time);
        self.write(RECORD_COMM, if exec { MISC_COMM_EXEC } else { 0 })
    }

    /// Records that `thread` has begun or, with `exit`, has ended.
    pub fn task(
        &mut self,
        thread: Thread,
        parent: Thread,
        time: u64,
        exit: bool,
    ) -> io::Result<()> {
        for id in [thread.pid, parent.pid, thread.tid, parent.tid] {
            put_half(&mut self.record, id);
        }
        put(&mut self.record, time);
        self.put_id(thread, time);
        self.write(if exit { RECORD_EXIT } else { RECORD_FORK }, 0)
    }

    pub fn mapping(
        &mut self,
        thread: Thread,
        time: u64,
        mapping: &Mapping,
        build_id: Option<&[u8]>,
    ) -> io::Result<()> {
        self.put_thread(thread);
        for word in [mapping.start, mapping.end - mapping.start, mapping.offset] {
            put(&mut self.record, word);
        }
        match build_id {
            Some(id) => {
                // CAST: A build id has at most 20 bytes.
                self.record.extend([id.len() as u8, 0, 0, 0]);
                self.record.extend(id.iter().chain(&[0; 20]).take(20));
            }
            None => {
                put_half(&mut self.record, mapping.device.0);
                put_half(&mut self.record, mapping.device.1);
                put(&mut self.record, mapping.inode);
                // The file's generation, which is not known.
                put(&mut self.record, 0);
            }
        }
        const PRIVATE: u32 = 2;
        put_half(&mut self.record, mapping.protection);
        put_half(&mut self.record, PRIVATE);
        self.put_text(mapping.name());
        self.put_id(thread, time);
        let misc = if build_id.is_some() {
            MISC_MMAP_BUILD_ID
        } else {
            0
        };
        self.write(RECORD_MMAP2, MISC_USER | misc)
    }
}

fn put(to: &mut Vec<u8>, word: u64) {
    to.extend(word.to_le_bytes());
}

fn put_half(to: &mut Vec<u8>, word: u32) {
    to.extend(word.to_le_bytes());
}
