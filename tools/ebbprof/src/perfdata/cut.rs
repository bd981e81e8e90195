// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recovery from a full disk: cuts the file after the last complete record, so that it can be read.

use std::fs::File;
use std::io;
use std::io::BufReader;
use std::io::ErrorKind;
use std::io::Read;
use std::io::Seek;
use std::io::SeekFrom;

use super::DATA_OFFSET;
use super::RECORD_SAMPLE;
use super::Writer;

/// The complete records of a file, up to the first that is not.
#[derive(Default)]
struct Whole {
    length: u64,
    samples: u64,
}

impl Writer {
    /// Cuts the file to what was written before a write failed. Returns how many samples it has.
    pub fn cut(&mut self) -> io::Result<u64> {
        self.drop_buffer()?;
        let mut file = self.file.get_ref();
        file.seek(SeekFrom::Start(DATA_OFFSET))?;
        let whole = whole(BufReader::new(file).take(self.length))?;
        // The header overwrites the previous one, so there is room for it.
        self.length = whole.length;
        self.write_header_again(0)?;
        File::set_len(self.file.get_ref(), DATA_OFFSET + whole.length)?;
        Ok(whole.samples)
    }
}

fn whole(mut records: impl Read) -> io::Result<Whole> {
    let mut found = Whole::default();
    loop {
        // The type, the miscellaneous flags, and the size including this header.
        let mut header = [0; 8];
        match records.read_exact(&mut header) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(found),
            other => other?,
        }
        let [kind @ .., _, _, low, high] = header;
        let size = u64::from(u16::from_le_bytes([low, high]));
        let Some(content) = size.checked_sub(8) else {
            return Ok(found);
        };
        let content = records.by_ref().take(content);
        if io::copy(&mut { content }, &mut io::sink())? + 8 != size {
            return Ok(found);
        }
        found.length += size;
        found.samples += u64::from(u32::from_le_bytes(kind) == RECORD_SAMPLE);
    }
}
