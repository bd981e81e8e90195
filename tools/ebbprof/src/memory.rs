// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory shared with the profiled programs, as seen by `record`: creates it, frees the slots
//! of threads that have ended, and determines which processes take part.

use std::fs;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::unix::fs::MetadataExt;
use std::ptr;

use ebb::config::Ifm;
use ebbprof_ring as ring;
use ebbprof_ring::Control;
use ebbprof_ring::View;

use crate::perfdata::Mapping;

/// Parameters of the sampling.
pub struct Wanted<'a> {
    pub event: &'a str,
    pub period: u64,
    pub callers: bool,
    pub branches: Option<Ifm>,
}

/// The memory, all of it mapped. Programs can write anything to it at any time, so each value that
/// determines an offset or a length is read once.
pub struct Memory {
    file: File,
    view: View,
    /// Number of words of a ring.
    words: u64,
    branches: bool,
}

impl Deref for Memory {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

impl Memory {
    /// Creates a memory with rings of `words` words, a power of 2.
    pub fn new(wanted: &Wanted<'_>, words: u64) -> io::Result<Self> {
        let fd = ring::create(words).map_err(io::Error::from_raw_os_error)?;
        // SAFETY: `fd` was just created, and no other code has it.
        let file = unsafe { File::from_raw_fd(fd) };
        let control = map(&file, ring::size(words))?;
        // SAFETY: The file begins with a `Control` of zeroes, and no other process has it yet.
        unsafe {
            let text = &mut (*control).event;
            // The last byte stays 0, so that the name is terminated.
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
        Ok(Self {
            file,
            // SAFETY: It was mapped above with rings of `words` words, and is never unmapped.
            view: unsafe { View::new(control, words) },
            words,
            branches: wanted.branches.is_some(),
        })
    }

    /// Opens the memory of a program that records itself.
    pub fn of_program(file: File) -> io::Result<Self> {
        const OTHER: &str = "the memory has the layout of another version of libebbprof";
        /// Maximum number of words of a ring, with which the size of all slots does not overflow.
        const MOST_WORDS: u64 = 1 << 40;
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        // If the size were not sealed, the program could remove pages that are read here.
        if length < ring::ALIGN || !ring::is_sealed(file.as_raw_fd()) {
            return Err(io::Error::other(OTHER));
        }
        let control = map(&file, length)?;
        // SAFETY: The file begins with these fields, and any bits are a valid number.
        let (magic, words) = unsafe {
            (
                (&raw const (*control).magic).read_volatile(),
                (&raw const (*control).ring).read_volatile(),
            )
        };
        let sound = magic == ring::MAGIC && words.is_power_of_two() && words <= MOST_WORDS;
        if !sound || ring::size(words) != length {
            return Err(io::Error::other(OTHER));
        }
        Ok(Self {
            file,
            // SAFETY: All of it was mapped above, and it is never unmapped.
            view: unsafe { View::new(control, words) },
            words,
            branches: false,
        })
    }

    /// Returns the path with which programs of the same user open it.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Returns whether samples have branches.
    pub fn has_branches(&self) -> bool {
        self.branches
    }

    /// Returns whether a process with these lines of `/proc/PID/maps` has mapped it, which is not
    /// the case after an exec. Compares inodes, because a program can choose any path.
    pub fn is_mapped_in(&self, maps: &[u8]) -> bool {
        let Ok(own) = self.file.metadata() else {
            return false;
        };
        maps.split(|&byte| byte == b'\n').any(|line| {
            Mapping::parse_any(line).is_some_and(|mapping| {
                let device = libc::makedev(mapping.device.0, mapping.device.1);
                (device, mapping.inode) == (own.dev(), own.ino())
            })
        })
    }

    /// Frees a slot and its memory.
    pub fn free(&self, n: usize) {
        let words = self.words;
        let flags = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // CAST: Both are some gigabytes at most.
        let (offset, size) = (ring::slot_offset(n, words), ring::slot_size(words));
        // SAFETY: The call takes no pointers.
        unsafe { libc::fallocate(self.file.as_raw_fd(), flags, offset as i64, size as i64) };
        self.set_free(n);
    }
}

fn map(file: &File, size: usize) -> io::Result<*mut Control> {
    let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    let fd = file.as_raw_fd();
    // SAFETY: The kernel chooses the place of the new mapping, and the file has its size.
    let address = unsafe { libc::mmap(ptr::null_mut(), size, access, shared, fd, 0) };
    match address {
        libc::MAP_FAILED => Err(io::Error::last_os_error()),
        _ => Ok(address.cast()),
    }
}
