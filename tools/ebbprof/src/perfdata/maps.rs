// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executable mappings, as `/proc/PID/maps` has them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::ffi::OsStringExt;

/// Of none that the system has: it is a program, perhaps, that says so.
const LONGEST_PATH: usize = 4096;

/// A line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub protection: u32,
    pub device: (u32, u32),
    pub inode: u64,
    pub path: OsString,
}

impl Mapping {
    /// The mapping that `line` describes, if it is executable.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let mut words = line.splitn(6, |&byte| byte == b' ');
        let mut word = || str::from_utf8(words.next()?).ok();
        let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
        let (start, end) = word()?.split_once('-')?;
        let permissions = word()?;
        let offset = hex(word()?)?;
        let (major, minor) = word()?.split_once(':')?;
        let inode = word()?.parse().ok()?;
        let path = words.next().unwrap_or_default().trim_ascii_start();
        let path = path.get(..LONGEST_PATH).unwrap_or(path);
        let bits = [('r', 1), ('w', 2), ('x', 4)];
        let mapping = Self {
            start: hex(start)?,
            end: hex(end)?,
            offset,
            protection: (bits.iter())
                .filter(|(letter, _)| permissions.contains(*letter))
                .fold(0, |protection, (_, bit)| protection | bit),
            // CAST: a device's number.
            device: (hex(major)? as u32, hex(minor)? as u32),
            inode,
            path: OsString::from_vec(path.to_vec()),
        };
        (permissions.contains('x') && mapping.start < mapping.end).then_some(mapping)
    }

    /// As perf names it.
    pub fn name(&self) -> &[u8] {
        match self.path.as_bytes() {
            b"" => b"//anon",
            path => path,
        }
    }
}
