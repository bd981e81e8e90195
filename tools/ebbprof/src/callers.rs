// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which of the words of a sample is the caller's address.
//!
//! A function's return address is in LR until its prologue has saved it, and the back chain does
//! not have the function's frame until the prologue has made that. Call frame information tells for
//! each instruction how far it is. The chain is written as the kernel writes its own, with LR second;
//! but where LR is not the caller's address, a context marker is in its place. perf drops that entry
//! if it finds by the same information that LR is not meant (`arch_skip_callchain_idx`), and shows no
//! marker otherwise.

use std::collections::HashMap;
use std::path::Path;

use gimli::BaseAddresses;
use gimli::CfaRule;
use gimli::EhFrame;
use gimli::EhFrameHdr;
use gimli::EndianSlice;
use gimli::LittleEndian;
use gimli::Register;
use gimli::RegisterRule;
use gimli::UnwindContext;
use gimli::UnwindSection;
use object::Object;
use object::ObjectSection;
use object::ObjectSegment;

use crate::image::Image;

/// `PERF_CONTEXT_USER`.
const USER: u64 = -512_i64 as u64;
/// r1 and LR in call frame information.
const STACK_POINTER: Register = Register(1);
const LINK: Register = Register(65);

/// Where the caller's address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// In LR; there is no frame.
    Link,
    /// In LR, and there is a frame.
    LinkFramed,
    /// In the caller's frame; the function's own is gone already, or not there yet.
    Saved,
    /// In the caller's frame, which the function's own leads to.
    Framed,
}

/// The chain of a sample at `address`.
pub fn chain(caller: Caller, address: u64, words: &[u64]) -> Vec<u64> {
    let (link, saved) = (words[0], words.get(1).copied());
    let frames = words.get(2..).unwrap_or_default();
    let mut chain = vec![USER, address];
    match (caller, saved) {
        // Outside of the stack there is no other.
        (Caller::Link, _) | (_, None) => chain.push(link),
        (Caller::LinkFramed, _) => {
            chain.extend([link, USER]);
            chain.extend(frames.iter().skip(1));
            return chain;
        }
        (Caller::Saved, Some(saved)) => chain.extend([USER, saved]),
        (Caller::Framed, _) => chain.push(USER),
    }
    chain.extend(frames);
    chain
}

/// What was found out before, of each place of a file.
#[derive(Default)]
pub struct Callers {
    files: HashMap<String, Option<Unwinder>>,
    places: HashMap<(String, u64), Caller>,
}

/// Call frame information of a file.
struct Unwinder {
    bytes: Image,
    /// In the file: first byte and length; address of the first.
    segments: Vec<(u64, u64, u64)>,
    /// Of `.eh_frame` and `.eh_frame_hdr`: place in the file, length, and address.
    frames: (usize, usize, u64),
    header: (usize, usize, u64),
}

impl Callers {
    /// Where the caller is at `offset` in the file at `path`. Code that says nothing is a stub, as
    /// of the PLT, or assembly, mostly without a frame.
    pub fn find(&mut self, path: &str, offset: u64) -> Caller {
        let place = (path.to_string(), offset);
        if let Some(&known) = self.places.get(&place) {
            return known;
        }
        let image = self.files.entry(place.0.clone());
        let image = image.or_insert_with(|| Unwinder::read(path));
        let caller = image.as_ref().and_then(|image| image.find(offset));
        *self
            .places
            .entry(place)
            .or_insert(caller.unwrap_or(Caller::Link))
    }
}

impl Unwinder {
    fn read(path: &str) -> Option<Self> {
        let bytes = Image::open(Path::new(path))?;
        let object = object::File::parse(&*bytes).ok()?;
        let place = |name| {
            let section = object.section_by_name(name)?;
            let (offset, length) = section.file_range()?;
            Some((offset as usize, length as usize, section.address()))
        };
        let segments = object.segments().map(|segment| {
            let (offset, length) = segment.file_range();
            (offset, length, segment.address())
        });
        let (segments, frames, header) = (
            segments.collect(),
            place(".eh_frame")?,
            place(".eh_frame_hdr")?,
        );
        Some(Self {
            bytes,
            segments,
            frames,
            header,
        })
    }

    fn section(
        &self,
        (offset, length, _): (usize, usize, u64),
    ) -> Option<EndianSlice<'_, LittleEndian>> {
        Some(EndianSlice::new(
            self.bytes.get(offset..)?.get(..length)?,
            LittleEndian,
        ))
    }

    fn find(&self, offset: u64) -> Option<Caller> {
        let holds = |segment: &&(u64, u64, u64)| offset.wrapping_sub(segment.0) < segment.1;
        let &(start, _, address) = self.segments.iter().find(holds)?;
        let address = offset - start + address;
        let bases = BaseAddresses::default()
            .set_eh_frame(self.frames.2)
            .set_eh_frame_hdr(self.header.2);
        let frames = EhFrame::from(self.section(self.frames)?);
        let header = EhFrameHdr::from(self.section(self.header)?);
        let header = header.parse(&bases, 8).ok()?;
        let entry = header
            .table()?
            .fde_for_address(&frames, &bases, address, EhFrame::cie_from_offset)
            .ok()?;
        let mut context = UnwindContext::new();
        let row = entry
            .unwind_info_for_address(&frames, &bases, &mut context, address)
            .ok()?;
        let framed = !matches!(
            row.cfa(),
            CfaRule::RegisterAndOffset {
                register: STACK_POINTER,
                offset: 0
            }
        );
        let saved = matches!(row.register(LINK), Some(RegisterRule::Offset(_)));
        Some(match (saved, framed) {
            (false, false) => Caller::Link,
            (false, true) => Caller::LinkFramed,
            (true, false) => Caller::Saved,
            (true, true) => Caller::Framed,
        })
    }
}
