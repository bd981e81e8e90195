// SPDX-License-Identifier: GPL-2.0
//! The mapped page and the ring buffer of an event (perf_event_open(2), "MMAP layout").

use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::atomic::fence;

use perf_event::sys::PERF_RECORD_LOST;
use perf_event::sys::PERF_RECORD_SAMPLE;
use perf_event::sys::PERF_RECORD_THROTTLE;
use perf_event::sys::perf_event_mmap_page;

use perf_event::Event;

/// A record of the ring buffer: its type, and the words after its header.
#[derive(Debug, Clone)]
pub struct Record {
    /// PERF_RECORD_ number.
    pub kind: u32,
    /// The `misc` field of the header.
    pub misc: u16,
    /// Words after the header.
    pub words: Vec<u64>,
}

impl Record {
    /// Returns whether the record is a sample.
    pub fn is_sample(&self) -> bool {
        self.kind == PERF_RECORD_SAMPLE
    }

    /// Returns whether the record reports that records were lost or that the event was throttled.
    pub fn is_loss(&self) -> bool {
        self.kind == PERF_RECORD_LOST || self.kind == PERF_RECORD_THROTTLE
    }
}

/// The mapping of an event, which is unmapped on drop.
pub struct Ring {
    base: NonNull<u8>,
    page: usize,
    data: usize,
}

impl Ring {
    /// Maps the event's page and `pages` (a power of two, or 0) of ring buffer.
    pub fn map(event: &Event, pages: usize) -> io::Result<Ring> {
        // SAFETY: The call takes a number and no pointer.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let data = pages * page;
        // SAFETY: This makes a new mapping at an address that the kernel chooses.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                page + data,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Ring { base, page, data })
    }

    /// Reads a field of the page once; the kernel may write it at any time.
    fn field<T: Copy>(&self, pick: impl Fn(*const perf_event_mmap_page) -> *const T) -> T {
        // SAFETY: The first page of the mapping holds a perf_event_mmap_page
        // and stays mapped as long as `self` lives.
        unsafe { pick(self.base.as_ptr().cast()).read_volatile() }
    }

    /// Returns `index` and `offset` from one state of the page, under its sequence lock.
    pub fn index_and_offset(&self) -> (u32, i64) {
        loop {
            // SAFETY: This only takes the address of a field in the mapped page.
            let before = self.field(|page| unsafe { &raw const (*page).lock });
            fence(Ordering::Acquire);
            // SAFETY: This only takes the address of a field in the mapped page.
            let index = self.field(|page| unsafe { &raw const (*page).index });
            // SAFETY: This only takes the address of a field in the mapped page.
            let offset = self.field(|page| unsafe { &raw const (*page).offset });
            fence(Ordering::Acquire);
            // SAFETY: This only takes the address of a field in the mapped page.
            let after = self.field(|page| unsafe { &raw const (*page).lock });
            if before == after && before.is_multiple_of(2) {
                return (index, offset);
            }
        }
    }

    /// Returns `time_enabled` and `time_running` as of the kernel's last update (ns).
    pub fn times(&self) -> (u64, u64) {
        // SAFETY: This only takes the address of a field in the mapped page.
        let enabled = self.field(|page| unsafe { &raw const (*page).time_enabled });
        // SAFETY: This only takes the address of a field in the mapped page.
        let running = self.field(|page| unsafe { &raw const (*page).time_running });
        (enabled, running)
    }

    /// Returns the position after the last record, in the endless stream of records.
    pub fn head(&self) -> u64 {
        // SAFETY: This only takes the address of a field in the mapped page.
        self.field(|page| unsafe { &raw const (*page).data_head })
    }

    /// Removes all records from the buffer and returns them.
    pub fn take(&mut self) -> Vec<Record> {
        self.take_until(self.head())
    }

    /// Removes the records before `head` from the buffer and returns them. [`Ring::head`] must have
    /// returned `head` before.
    pub fn take_until(&mut self, head: u64) -> Vec<Record> {
        fence(Ordering::Acquire);
        // SAFETY: This only takes the address of a field in the mapped page.
        let mut tail = self.field(|page| unsafe { &raw const (*page).data_tail });
        let mut records = Vec::new();
        while tail < head {
            let header = self.word(tail);
            let length = (header >> 48).max(8);
            records.push(Record {
                kind: header as u32,
                misc: (header >> 32) as u16,
                words: (1..length / 8)
                    .map(|index| self.word(tail + index * 8))
                    .collect(),
            });
            tail += length;
        }
        fence(Ordering::Release);
        let page: *mut perf_event_mmap_page = self.base.as_ptr().cast();
        // SAFETY: The page is mapped writable, and only the reader of the buffer writes
        // `data_tail`.
        unsafe { (&raw mut (*page).data_tail).write_volatile(tail) };
        records
    }

    /// Returns the word at a position of the endless stream. Records are 8-byte aligned.
    fn word(&self, position: u64) -> u64 {
        let offset = position as usize % self.data;
        // SAFETY: The offset is inside the data pages and a multiple of 8.
        unsafe {
            self.base
                .add(self.page + offset)
                .cast::<u64>()
                .read_volatile()
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: The mapping belongs to this value, and no reference points into it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.page + self.data) };
    }
}
