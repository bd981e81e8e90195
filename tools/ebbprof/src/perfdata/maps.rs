// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executable mappings, as `/proc/PID/maps` has them, and the build ids of their files.

use std::collections::HashMap;
use std::path::Path;

use object::Object;

use crate::image::Image;

/// A line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub protection: u32,
    pub device: (u32, u32),
    pub inode: u64,
    pub path: String,
}

impl Mapping {
    /// The mapping that `line` describes, if it is executable.
    pub fn parse(line: &str) -> Option<Self> {
        let mut rest = line;
        let mut word = || {
            let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
            rest = behind;
            word
        };
        let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
        let (start, end) = word().split_once('-')?;
        let permissions = word();
        let offset = hex(word())?;
        let (major, minor) = word().split_once(':')?;
        let inode = word().parse().ok()?;
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
            path: rest.trim_start().to_string(),
        };
        (permissions.contains('x') && mapping.start < mapping.end).then_some(mapping)
    }

    /// As perf names it.
    pub fn name(&self) -> &str {
        match self.path.as_str() {
            "" => "//anon",
            path => path,
        }
    }
}

/// Build ids of files that were asked for before.
#[derive(Default)]
pub struct BuildIds(HashMap<String, Option<Vec<u8>>>);

impl BuildIds {
    /// That of the file at `path`, if it has one that a perf.data file can hold.
    pub fn of(&mut self, path: &str) -> Option<&[u8]> {
        let known = self.0.entry(path.to_string());
        known.or_insert_with(|| read(path)).as_deref()
    }
}

fn read(path: &str) -> Option<Vec<u8>> {
    let image = Image::open(Path::new(path))?;
    let id = object::File::parse(&*image)
        .ok()?
        .build_id()
        .ok()??
        .to_vec();
    (id.len() <= 20).then_some(id)
}
