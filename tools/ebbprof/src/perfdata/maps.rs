// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executable mappings as lines of `/proc/PID/maps`. A program writes such lines to the shared
//! memory, and may write anything there. Imports nothing, so that `make check` can run its tests on
//! the host.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::ffi::OsStringExt;

/// Longest path that is kept. The system has no longer ones, but a program may write one.
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
    /// Returns the mapping that `line` describes, if it is executable.
    pub fn parse(line: &[u8]) -> Option<Self> {
        const EXECUTABLE: u32 = 4;
        Self::parse_any(line).filter(|mapping| mapping.protection & EXECUTABLE != 0)
    }

    /// Returns the mapping that `line` describes.
    pub fn parse_any(line: &[u8]) -> Option<Self> {
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
            // CAST: The numbers of a device have 32 bits at most.
            device: (hex(major)? as u32, hex(minor)? as u32),
            inode,
            path: OsString::from_vec(path.to_vec()),
        };
        (mapping.start < mapping.end).then_some(mapping)
    }

    /// Returns whether `other` has the same part of the same file at the same addresses.
    pub fn is_same(&self, other: &Self) -> bool {
        let place = |of: &Self| (of.start, of.end, of.offset, of.device, of.inode);
        place(self) == place(other)
    }

    /// Returns the name that perf uses for the mapping.
    pub fn name(&self) -> &[u8] {
        match self.path.as_bytes() {
            b"" => b"//anon",
            path => path,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::LONGEST_PATH;
    use super::Mapping;

    const LINE: &[u8] = b"10000-30000 r-xp 00001000 08:0a 4711                 /usr/bin/a b";

    #[test]
    fn line_is_a_mapping() {
        let mapping = Mapping::parse(LINE).unwrap();
        assert_eq!(
            (mapping.start, mapping.end, mapping.offset),
            (0x10000, 0x30000, 0x1000)
        );
        assert_eq!(
            (mapping.device, mapping.inode, mapping.protection),
            ((8, 10), 4711, 5)
        );
        assert_eq!(mapping.path, "/usr/bin/a b");
        let other = Mapping::parse(b"10000-30000 r-xp 00001000 08:0a 4711 /b").unwrap();
        assert!(mapping.is_same(&other));
        let other = Mapping::parse(b"10000-30000 r-xp 00001000 08:0a 4712 /usr/bin/a b").unwrap();
        assert!(!mapping.is_same(&other));
    }

    #[test]
    fn only_executable_ones_are_wanted() {
        let data = b"10000-30000 rw-p 00001000 08:0a 4711 /a";
        assert!(Mapping::parse(data).is_none());
        assert!(Mapping::parse_any(data).is_some());
    }

    /// Bytes of a line are replaced at random: every mapping that is found is valid.
    #[test]
    fn arbitrary_lines_are_lived_with() {
        let mut seed = 1_u64;
        let mut random = |end: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 20) as usize % end
        };
        let mut found = 0;
        for _ in 0..200_000 {
            let mut line = LINE.to_vec();
            for _ in 0..random(4) {
                let chosen = random(line.len());
                match random(3) {
                    0 => line[chosen] = random(256) as u8,
                    1 => line[chosen] = b"0f- :x"[random(6)],
                    _ => line.truncate(chosen + 1),
                }
            }
            if random(100) == 0 {
                line.resize(line.len() + random(10_000), 0xff);
            }
            if let Some(mapping) = Mapping::parse(&line) {
                assert!(mapping.start < mapping.end && mapping.protection & 4 != 0);
                assert!(mapping.path.as_bytes().len() <= LONGEST_PATH);
                assert!(!mapping.name().is_empty());
                found += 1;
            }
        }
        assert!(found > 50_000, "{found} mappings");
    }
}
