// SPDX-License-Identifier: GPL-2.0
//! The mmap'ed page and ring buffer of an event (perf_event_open(2), "MMAP
//! layout").

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

/// One record of the ring buffer: its type and the words behind its header.
#[derive(Debug, Clone)]
pub struct Record {
    /// PERF_RECORD_ number.
    pub kind: u32,
    /// The `misc` field of the header.
    pub misc: u16,
    /// Words behind the header.
    pub words: Vec<u64>,
}

impl Record {
    /// Is it a sample?
    pub fn is_sample(&self) -> bool {
        self.kind == PERF_RECORD_SAMPLE
    }

    /// Does it say that records were lost or the event was throttled?
    pub fn is_loss(&self) -> bool {
        self.kind == PERF_RECORD_LOST || self.kind == PERF_RECORD_THROTTLE
    }
}

/// A mapped event; unmapped on drop.
pub struct Ring {
    base: NonNull<u8>,
    page: usize,
    data: usize,
}

impl Ring {
    /// Maps the event's page and `pages` (a power of two, or 0) of buffer.
    pub fn map(event: &Event, pages: usize) -> io::Result<Ring> {
        // SAFETY: a question without pointers.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let data = pages * page;
        // SAFETY: a new mapping at an address of the kernel's choice.
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

    /// A field of the page, read once from memory that the kernel writes.
    fn field<T: Copy>(&self, pick: impl Fn(*const perf_event_mmap_page) -> *const T) -> T {
        // SAFETY: the first page of the mapping holds a perf_event_mmap_page
        // and stays mapped as long as `self` lives.
        unsafe { pick(self.base.as_ptr().cast()).read_volatile() }
    }

    /// `index` and `offset`, read as one under the page's sequence lock.
    pub fn index_and_offset(&self) -> (u32, i64) {
        loop {
            // SAFETY: only the address of a field in the mapped page is taken.
            let before = self.field(|page| unsafe { &raw const (*page).lock });
            fence(Ordering::Acquire);
            // SAFETY: as above.
            let index = self.field(|page| unsafe { &raw const (*page).index });
            // SAFETY: as above.
            let offset = self.field(|page| unsafe { &raw const (*page).offset });
            fence(Ordering::Acquire);
            // SAFETY: as above.
            let after = self.field(|page| unsafe { &raw const (*page).lock });
            if before == after && before.is_multiple_of(2) {
                return (index, offset);
            }
        }
    }

    /// `time_enabled` and `time_running` as of the last update (ns).
    pub fn times(&self) -> (u64, u64) {
        // SAFETY: only addresses of fields in the mapped page are taken.
        let enabled = self.field(|page| unsafe { &raw const (*page).time_enabled });
        // SAFETY: as above.
        let running = self.field(|page| unsafe { &raw const (*page).time_running });
        (enabled, running)
    }

    /// Where the records that there are now end in the endless stream.
    pub fn head(&self) -> u64 {
        // SAFETY: only the address of a field in the mapped page is taken.
        self.field(|page| unsafe { &raw const (*page).data_head })
    }

    /// Takes every record out of the buffer.
    pub fn take(&mut self) -> Vec<Record> {
        self.take_until(self.head())
    }

    /// Takes the records before `head` out of the buffer, which [`Ring::head`] was once.
    pub fn take_until(&mut self, head: u64) -> Vec<Record> {
        fence(Ordering::Acquire);
        // SAFETY: only the address of a field in the mapped page is taken.
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
        // SAFETY: the page is mapped writable; data_tail is ours to write.
        unsafe { (&raw mut (*page).data_tail).write_volatile(tail) };
        records
    }

    /// The word at a position of the endless stream; records are 8-byte aligned.
    fn word(&self, position: u64) -> u64 {
        let offset = position as usize % self.data;
        // SAFETY: the offset is inside the data pages and a multiple of 8.
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
        // SAFETY: the mapping is this value's own and nobody refers into it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.page + self.data) };
    }
}
