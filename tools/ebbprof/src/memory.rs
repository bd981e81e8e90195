// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory shared with the profiled programs, as `record` has it: makes it, reads the rings,
//! and gives back what a thread has left.

use std::fs;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::unix::fs::MetadataExt;
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::Ordering::Release;
use std::sync::atomic::fence;

use ebb::config::Ifm;
use ebbprof_ring as ring;
use ebbprof_ring::Control;
use ebbprof_ring::Slot;

/// What is sampled.
pub struct Wanted<'a> {
    pub event: &'a str,
    pub period: u64,
    pub callers: bool,
    pub branches: Option<Ifm>,
}

/// The memory, mapped whole. Programs can write all of it, as they like: what says where something is, or
/// how long, is read once.
pub struct Memory {
    file: File,
    control: *mut Control,
    /// Words of a ring.
    words: u64,
    branches: bool,
}

impl Memory {
    /// A new one, with rings of `words` words, a power of 2.
    pub fn new(wanted: &Wanted<'_>, words: u64) -> io::Result<Self> {
        let fd = ring::create(words).map_err(io::Error::from_raw_os_error)?;
        // SAFETY: it was opened just now.
        let file = unsafe { File::from_raw_fd(fd) };
        let control = map(&file, ring::size(words))?;
        // SAFETY: the file begins with it, all zeroes, and nobody else has it yet.
        unsafe {
            let text = &mut (*control).event;
            // The last byte stays 0.
            for (to, &from) in text
                .iter_mut()
                .zip(wanted.event.as_bytes())
                .take(ring::TEXT - 1)
            {
                *to = from;
            }
            (*control).period = wanted.period;
            (*control).ring = words;
            (*control).frames = if wanted.callers { ring::MOST_FRAMES } else { 0 };
            (*control).branches = wanted.branches.map_or(0, |ifm| ifm as u64 + 1);
            (*control).namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |data| data.ino());
            (*control).magic = ring::MAGIC;
        }
        let branches = wanted.branches.is_some();
        Ok(Self {
            file,
            control,
            words,
            branches,
        })
    }

    /// One that a program has made, which records itself.
    pub fn of_program(file: File) -> io::Result<Self> {
        const OTHER: &str = "the memory is not of this version of libebbprof";
        /// Words of a ring, with which the size of all slots is no overflow.
        const MOST_WORDS: u64 = 1 << 40;
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        if length < ring::ALIGN {
            return Err(io::Error::other(OTHER));
        }
        let control = map(&file, length)?;
        // SAFETY: the file begins with it.
        let (magic, words) = unsafe {
            (
                (*control).magic,
                (&raw const (*control).ring).read_volatile(),
            )
        };
        let sound = magic == ring::MAGIC && words.is_power_of_two() && words <= MOST_WORDS;
        if !sound || ring::size(words) != length {
            return Err(io::Error::other(OTHER));
        }
        Ok(Self {
            file,
            control,
            words,
            branches: false,
        })
    }

    /// The path by which programs of the same user open it.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    pub fn control(&self) -> &Control {
        // SAFETY: mapped as long as `self` lives; what others change are atomics.
        unsafe { &*self.control }
    }

    /// Whether samples have branches.
    pub fn has_branches(&self) -> bool {
        self.branches
    }

    /// Whether process `pid` has it: not after an exec, nor of its own accord. True if nobody says.
    pub fn is_mapped_by(&self, pid: u32) -> bool {
        let Ok(own) = self.file.metadata() else {
            return true;
        };
        let inode = own.ino().to_string();
        let is_own = |line: &[u8]| {
            let mut words = line.split(|&byte| byte == b' ');
            words.nth(4) == Some(inode.as_bytes()) && line.ends_with(b"/memfd:ebbprof (deleted)")
        };
        match fs::read(format!("/proc/{pid}/maps")) {
            Ok(maps) if !maps.is_empty() => maps.split(|&byte| byte == b'\n').any(is_own),
            _ => true,
        }
    }

    /// The event's name.
    pub fn event(&self) -> String {
        text(&self.control().event)
    }

    /// How many slots may be in use.
    pub fn used(&self) -> usize {
        (self.control().used.load(Acquire) as usize).min(ring::SLOTS)
    }

    pub fn state(&self, n: usize) -> u32 {
        self.control().states[n].load(Acquire)
    }

    pub fn slot(&self, n: usize) -> SlotView<'_> {
        let offset = ring::slot_offset(n, self.words);
        let slot = self.control.wrapping_byte_add(offset).cast::<Slot>();
        SlotView {
            // SAFETY: within the mapping; what others change are atomics, and names and texts,
            // of which `SlotView` takes copies.
            slot: unsafe { &*slot },
            words: self.words,
        }
    }

    /// Gives a slot and its memory back.
    pub fn free(&self, n: usize) {
        let words = self.words;
        let flags = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // CAST: some gigabytes.
        let (offset, size) = (ring::slot_offset(n, words), ring::slot_size(words));
        // SAFETY: without pointers.
        unsafe { libc::fallocate(self.file.as_raw_fd(), flags, offset as i64, size as i64) };
        self.control().states[n].store(ring::FREE, Release);
    }
}

fn map(file: &File, size: usize) -> io::Result<*mut Control> {
    let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    let fd = file.as_raw_fd();
    // SAFETY: a new mapping of a file that has the size.
    let address = unsafe { libc::mmap(ptr::null_mut(), size, access, shared, fd, 0) };
    match address {
        libc::MAP_FAILED => Err(io::Error::last_os_error()),
        _ => Ok(address.cast()),
    }
}

/// A slot that a thread has.
pub struct SlotView<'a> {
    slot: &'a Slot,
    words: u64,
}

impl SlotView<'_> {
    pub fn pid(&self) -> u32 {
        self.slot.pid.load(Relaxed)
    }

    pub fn tid(&self) -> u32 {
        self.slot.tid.load(Relaxed)
    }

    pub fn parent(&self) -> u32 {
        self.slot.parent.load(Relaxed)
    }

    pub fn origin(&self) -> u32 {
        self.slot.origin.load(Relaxed)
    }

    pub fn begin(&self) -> u64 {
        self.slot.begin.load(Relaxed)
    }

    pub fn end(&self) -> u64 {
        self.slot.end.load(Relaxed)
    }

    pub fn lost(&self) -> u64 {
        self.slot.written.lost.load(Relaxed)
    }

    /// The thread's name.
    pub fn name(&self) -> String {
        text(&copy(&raw const self.slot.name, 16))
    }

    /// Why the thread is not sampled.
    pub fn refusal(&self) -> Option<String> {
        let length = self.slot.refused.load(Acquire) as usize;
        (length != 0).then(|| text(&copy(&raw const self.slot.reason, length)))
    }

    /// The thread's descriptor of its event and the event's id, once samples are taken.
    pub fn event(&self) -> Option<(i32, u64)> {
        let descriptor = self.slot.descriptor.load(Acquire).checked_sub(1)?;
        // CAST: a descriptor.
        Some((descriptor as i32, self.slot.event.load(Relaxed)))
    }

    /// Whether EBBs had ceased to come before the thread ended.
    pub fn has_ceased(&self) -> bool {
        self.slot.ceased.load(Acquire) != 0
    }

    /// How many words of samples the thread has written.
    pub fn written(&self) -> u64 {
        self.slot.written.head.load(Relaxed)
    }

    /// The process' executable mappings, if their version is not `known`; the version, and the time
    /// base when they were looked at.
    pub fn maps(&self, known: u32) -> Option<(u32, u64, Vec<u8>)> {
        let version: &AtomicU32 = &self.slot.maps_version;
        let before = version.load(Acquire);
        if before == known || !before.is_multiple_of(2) {
            return None;
        }
        let length = self.slot.maps_length.load(Acquire) as usize;
        let maps = copy(&raw const self.slot.maps, length);
        let time = self.slot.maps_time.load(Relaxed);
        // The version is read after what it is of.
        fence(Acquire);
        (version.load(Relaxed) == before).then_some((before, time, maps))
    }

    /// Tells the program that this version was read, and its samples.
    pub fn maps_are_read(&self, version: u32) {
        self.slot.maps_read.store(version, Release);
    }

    /// How full the ring is, 0 to 1.
    pub fn filled(&self) -> f64 {
        let head = self.slot.written.head.load(Relaxed);
        let tail = self.slot.tail.load(Relaxed);
        (head.wrapping_sub(tail)) as f64 / self.words as f64
    }

    /// Takes the samples that there are from the ring: time base, address, and further words.
    pub fn take(&self, mut action: impl FnMut(u64, u64, &[u64])) {
        let head = self.slot.written.head.load(Acquire);
        let mut tail = self.slot.tail.load(Relaxed);
        // A program that writes nonsense there gets nonsense, and no endless loop.
        if head.wrapping_sub(tail) > self.words {
            return;
        }
        let mut more = [0; ring::OVERHANG as usize];
        let begin = self.begin();
        while tail < head {
            let first = self.word(tail, 0);
            // CAST: at most 255.
            let count = (first >> ring::MORE_SHIFT) as usize;
            for (n, word) in more.iter_mut().enumerate().take(count) {
                *word = self.word(tail, ring::SAMPLE + n as u64);
            }
            action(
                ring::time_base(first, begin),
                self.word(tail, 1),
                &more[..count],
            );
            tail += ring::SAMPLE + count as u64;
        }
        self.slot.tail.store(tail, Release);
    }

    /// A word of the sample at `place`.
    fn word(&self, place: u64, n: u64) -> u64 {
        let ring = ptr::from_ref(self.slot).wrapping_byte_add(ring::ALIGN);
        // CAST: below the words of a ring and what is behind it.
        let word = ring
            .cast::<AtomicU64>()
            .wrapping_add((place & (self.words - 1)) as usize + n as usize);
        // SAFETY: the ring is behind its slot, and `OVERHANG` words behind that.
        unsafe { (*word).load(Relaxed) }
    }
}

/// The first `length` bytes of a text that its program may be changing.
fn copy<const N: usize>(from: *const [u8; N], length: usize) -> Vec<u8> {
    let byte = |n: usize| from.cast::<u8>().wrapping_add(n);
    // SAFETY: within the array.
    let read = |n: usize| unsafe { byte(n).read_volatile() };
    (0..length.min(N)).map(read).collect()
}

/// Up to the first 0.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}
