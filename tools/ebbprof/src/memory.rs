// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory shared with the profiled programs, as `record` has it: makes it, gives back what a thread
//! has left, and finds out which processes take part.

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
    view: View,
    /// Words of a ring.
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
        Ok(Self {
            file,
            // SAFETY: mapped above, with rings of so many words, and never unmapped.
            view: unsafe { View::new(control, words) },
            words,
            branches: wanted.branches.is_some(),
        })
    }

    /// One that a program has made, which records itself.
    pub fn of_program(file: File) -> io::Result<Self> {
        const OTHER: &str = "the memory is not of this version of libebbprof";
        /// Words of a ring, with which the size of all slots is no overflow.
        const MOST_WORDS: u64 = 1 << 40;
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        // Of any other file the program could take the pages away that are read here.
        if length < ring::ALIGN || !ring::is_sealed(file.as_raw_fd()) {
            return Err(io::Error::other(OTHER));
        }
        let control = map(&file, length)?;
        // SAFETY: the file begins with them; any bits are a number.
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
            // SAFETY: mapped above, whole, and never unmapped.
            view: unsafe { View::new(control, words) },
            words,
            branches: false,
        })
    }

    /// The path by which programs of the same user open it.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Whether samples have branches.
    pub fn has_branches(&self) -> bool {
        self.branches
    }

    /// Whether a process with these lines of `/proc/PID/maps` has it: not after an exec, nor of its own
    /// accord. By its inode, which no other file has.
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

    /// Gives a slot and its memory back.
    pub fn free(&self, n: usize) {
        let words = self.words;
        let flags = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // CAST: some gigabytes.
        let (offset, size) = (ring::slot_offset(n, words), ring::slot_size(words));
        // SAFETY: without pointers.
        unsafe { libc::fallocate(self.file.as_raw_fd(), flags, offset as i64, size as i64) };
        self.set_free(n);
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
