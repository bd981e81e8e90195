// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the sizes in a perf.data file before `linux-perf-data` parses it. The crate trusts them:
//! it would allocate as much memory as they claim, or fail in the middle. Imports nothing, so that
//! `make check` can run its tests on the host.

use std::io;
use std::io::ErrorKind;
use std::io::Read;
use std::io::Seek;
use std::io::SeekFrom;

const HEADER: usize = 104;
/// Valid sizes of a `struct perf_event_attr`, from that of its first version.
const ATTR: std::ops::Range<u64> = 64..4096;
/// Maximum number of bytes that are read at once.
const MOST: u64 = 16 << 20;
/// The feature `HEADER_EVENT_DESC`.
const EVENT_DESC: u32 = 12;
/// Upper bound of the number of perf's features; other tools define others.
const FEATURES: u32 = 64;
const RECORD_MMAP2: u32 = 10;
/// The record `PERF_RECORD_AUXTRACE`: its data follow it, with a size of their own.
const RECORD_AUXTRACE: u32 = 71;
/// The flag `PERF_RECORD_MISC_MMAP_BUILD_ID`, the offset of the id's length in a record, and its
/// maximum.
const MISC_BUILD_ID: u16 = 1 << 14;
const BUILD_ID_LENGTH: usize = 32;
const MOST_BUILD_ID: u8 = 20;

fn refused(what: &str) -> io::Error {
    io::Error::new(
        ErrorKind::InvalidData,
        format!("not a valid perf.data file: {what}"),
    )
}

/// Byte order of the numbers in the file.
#[derive(Clone, Copy)]
struct Order {
    big: bool,
}

impl Order {
    fn word(self, bytes: &[u8], at: usize) -> io::Result<u64> {
        let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
        let bytes = *bytes.ok_or_else(|| refused("a section is too short"))?;
        Ok(if self.big {
            u64::from_be_bytes(bytes)
        } else {
            u64::from_le_bytes(bytes)
        })
    }

    fn half(self, bytes: &[u8], at: usize) -> io::Result<u32> {
        let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
        let bytes = *bytes.ok_or_else(|| refused("a section is too short"))?;
        Ok(if self.big {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    }
}

/// A section of the file.
struct Section {
    offset: u64,
    size: u64,
}

impl Section {
    /// Parses the section header at offset `at` of `bytes`, and checks that the file contains the
    /// section.
    fn parse(order: Order, bytes: &[u8], at: usize, length: u64) -> io::Result<Self> {
        let (offset, size) = (order.word(bytes, at)?, order.word(bytes, at + 8)?);
        match offset.checked_add(size) {
            Some(end) if end <= length => Ok(Self { offset, size }),
            _ => Err(refused("a section extends beyond the end of the file")),
        }
    }

    fn read(&self, file: &mut (impl Read + Seek)) -> io::Result<Vec<u8>> {
        if self.size > MOST {
            return Err(refused("a section is too large"));
        }
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(self.offset))?;
        file.by_ref().take(self.size).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// Fails if the file cannot be parsed safely.
pub fn check(file: &mut (impl Read + Seek)) -> io::Result<()> {
    let length = file.seek(SeekFrom::End(0))?;
    let header = Section {
        offset: 0,
        size: HEADER as u64,
    }
    .read(file)?;
    let order = match header.get(..8) {
        Some(b"PERFILE2") => Order { big: false },
        Some(b"2ELIFREP") => Order { big: true },
        _ => return Err(refused("bad magic")),
    };
    let attr_size = order.word(&header, 16)?;
    let attributes = Section::parse(order, &header, 24, length)?;
    let data = Section::parse(order, &header, 40, length)?;
    let types = Section::parse(order, &header, 56, length)?;
    let mut features = Vec::new();
    for n in 0..4 * u64::BITS {
        let bits = order.word(&header, 72 + 8 * (n / u64::BITS) as usize)?;
        if bits >> (n % u64::BITS) & 1 != 0 {
            features.push(n);
        }
    }
    if !ATTR.contains(&attr_size) || attributes.size > MOST {
        return Err(refused("attribute size out of range"));
    }
    let is_described = features.contains(&EVENT_DESC);
    if features.last() >= Some(&FEATURES) || !is_described && types.size != 0 {
        return Err(refused("unknown features, or written by a very old perf"));
    }
    let places = Section {
        offset: data.offset + data.size,
        size: 16 * features.len() as u64,
    };
    let places = places.read(file)?;
    for (n, &feature) in features.iter().enumerate() {
        let content = Section::parse(order, &places, 16 * n, length)?.read(file)?;
        if feature == EVENT_DESC {
            check_events(order, &content)?;
        }
    }
    check_records(order, file, &data)
}

/// Checks the event descriptions: their number and the size of an attribute; then for each event
/// its attribute, the number of its ids, the length of its name, the name and the ids.
fn check_events(order: Order, content: &[u8]) -> io::Result<()> {
    let (count, attr_size) = (order.half(content, 0)?, order.half(content, 4)?);
    let mut at = 8_usize;
    if !ATTR.contains(&attr_size.into()) {
        return Err(refused("attribute size out of range"));
    }
    for _ in 0..count {
        at += attr_size as usize;
        let (ids, name) = (order.half(content, at)?, order.half(content, at + 4)?);
        at += 8 + name as usize + 8 * ids as usize;
        if at > content.len() {
            return Err(refused("event description exceeds its section"));
        }
    }
    Ok(())
}

fn check_records(order: Order, file: &mut (impl Read + Seek), data: &Section) -> io::Result<()> {
    file.seek(SeekFrom::Start(data.offset))?;
    let mut left = data.size;
    let mut body = Vec::new();
    while left > 0 {
        // The type, the miscellaneous flags, and the size including this header.
        let mut header = [0; 8];
        file.read_exact(&mut header)?;
        let halves = order.half(&header, 4)?;
        // CAST: The two casts split the word into its halves.
        let (low, high) = (halves as u16, (halves >> 16) as u16);
        let (misc, size) = if order.big { (high, low) } else { (low, high) };
        let content = u64::from(size).checked_sub(8);
        let content = content.filter(|&content| content + 8 <= left);
        let content = content.ok_or_else(|| refused("record size out of range"))?;
        left -= u64::from(size);
        body.clear();
        file.by_ref().take(content).read_to_end(&mut body)?;
        let id_length = body.get(BUILD_ID_LENGTH).copied().unwrap_or(u8::MAX);
        match order.half(&header, 0)? {
            RECORD_AUXTRACE => return Err(refused("AUX trace data are not supported")),
            RECORD_MMAP2 if misc & MISC_BUILD_ID != 0 && id_length > MOST_BUILD_ID => {
                return Err(refused("a build id is too long"));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::check;

    /// A file with an event and a mapping.
    struct File {
        attr_size: u64,
        feature: u32,
        feature_size: u64,
        events: u32,
        name: u32,
        ids: u32,
        record: u32,
        size: u16,
        build_id: u8,
    }

    const SOUND: File = File {
        attr_size: 136,
        feature: 12,
        feature_size: 152,
        events: 1,
        name: 8,
        ids: 1,
        record: 10,
        size: 64,
        build_id: 20,
    };

    impl File {
        fn check(&self) -> bool {
            let mut bytes = b"PERFILE2".to_vec();
            let mut words =
                |words: &[u64]| words.iter().for_each(|n| bytes.extend(n.to_le_bytes()));
            words(&[104, self.attr_size, 104, 136, 240, 64, 0, 0]);
            words(&std::array::from_fn::<u64, 4, _>(|n| {
                match self.feature / 64 == n as u32 {
                    true => 1 << (self.feature % 64),
                    false => 0,
                }
            }));
            words(&[0; 17]);
            bytes.extend(self.record.to_le_bytes());
            bytes.extend([0, 0x40]);
            bytes.extend(self.size.to_le_bytes());
            bytes.extend([0; 32]);
            bytes.push(self.build_id);
            bytes.extend([0; 23]);
            for word in [320, self.feature_size] {
                bytes.extend(word.to_le_bytes());
            }
            for half in [self.events, 120] {
                bytes.extend(half.to_le_bytes());
            }
            bytes.extend([0; 120]);
            for half in [self.ids, self.name] {
                bytes.extend(half.to_le_bytes());
            }
            bytes.extend([0; 16]);
            check(&mut Cursor::new(bytes)).is_ok()
        }
    }

    #[test]
    fn sound_file_is_taken() {
        assert!(SOUND.check());
    }

    #[test]
    fn sizes_beyond_the_file_are_refused() {
        assert!(
            !File {
                attr_size: 0,
                ..SOUND
            }
            .check()
        );
        assert!(
            !File {
                attr_size: u64::MAX,
                ..SOUND
            }
            .check()
        );
        assert!(
            !File {
                feature_size: 153,
                ..SOUND
            }
            .check()
        );
        assert!(
            !File {
                feature_size: u64::MAX,
                ..SOUND
            }
            .check()
        );
        assert!(
            !File {
                events: u32::MAX,
                ..SOUND
            }
            .check()
        );
        assert!(!File { events: 2, ..SOUND }.check());
        assert!(
            !File {
                name: u32::MAX,
                ..SOUND
            }
            .check()
        );
        assert!(
            !File {
                ids: u32::MAX,
                ..SOUND
            }
            .check()
        );
    }

    #[test]
    fn records_that_cannot_be_read_are_refused() {
        assert!(
            !File {
                record: 71,
                ..SOUND
            }
            .check()
        );
        assert!(!File { size: 7, ..SOUND }.check());
        assert!(!File { size: 72, ..SOUND }.check());
        assert!(
            !File {
                build_id: 21,
                ..SOUND
            }
            .check()
        );
        assert!(
            !File {
                feature: 131,
                ..SOUND
            }
            .check()
        );
    }
}
