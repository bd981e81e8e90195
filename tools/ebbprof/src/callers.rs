// SPDX-License-Identifier: MIT OR Apache-2.0
//! Determines which words of a sample are return addresses of its callers.
//!
//! A function's return address is in LR until its prologue has saved it, and the back chain does
//! not contain the function's frame until the prologue has created it. Call frame information shows
//! for each instruction how far the prologue is.
//!
//! The chain has the form in which the kernel writes it, with LR second. If LR is not the return
//! address, its place holds a context marker instead. perf skips the second entry if the same
//! information shows that LR is not used (`arch_skip_callchain_idx`), and does not display markers
//! otherwise.
//!
//! A function that a signal has interrupted has not saved a return address for the handler. So the
//! chain ends at the address that the handler returns to.

use gimli::BaseAddresses;
use gimli::CfaRule;
use gimli::EhFrame;
use gimli::EhFrameHdr;
use gimli::EndianSlice;
use gimli::Register;
use gimli::RegisterRule;
use gimli::UnwindContext;
use gimli::UnwindSection;
use object::LittleEndian;
use object::ReadRef;
use object::read::elf::SectionHeader;

use crate::files::Elf;

/// The marker `PERF_CONTEXT_USER`.
const USER: u64 = -512_i64 as u64;
/// Numbers of r1 and LR in call frame information.
const STACK_POINTER: Register = Register(1);
const LINK: Register = Register(65);

/// The place of the caller's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// In LR; the function has no frame.
    Link,
    /// In LR, and the function has a frame.
    LinkFramed,
    /// In the caller's frame; the function's own frame was removed or not created yet.
    Saved,
    /// In the caller's frame, to which the function's own frame links.
    Framed,
}

/// Returns the call chain of a sample at `address`, in a process whose signal handlers return to
/// `trampoline`.
pub fn chain(caller: Caller, address: u64, words: &[u64], trampoline: Option<u64>) -> Vec<u64> {
    let (link, saved) = (words[0], words.get(1).copied());
    let frames = words.get(2..).unwrap_or_default();
    let mut chain = vec![USER, address];
    match (caller, saved) {
        (Caller::Link, _) | (Caller::LinkFramed, None) => chain.push(link),
        // The handler does not follow frames outside of the thread's stack.
        (_, None) => {}
        (Caller::LinkFramed, _) => chain.extend([link, USER]),
        (Caller::Saved, Some(saved)) => chain.extend([USER, saved]),
        (Caller::Framed, _) => chain.push(USER),
    }
    let own = usize::from(caller == Caller::LinkFramed);
    chain.extend(frames.iter().skip(own));
    // The instruction before the trampoline calls the signal handler.
    let is_its = |at: u64| trampoline.is_some_and(|own| at == own || at + 4 == own);
    let end = chain.iter().position(|&at| at < USER && is_its(at));
    chain.truncate(end.map_or(chain.len(), |end| end + 1));
    chain
}

/// Call frame information of a file.
pub struct Unwinder {
    /// The loaded segments: offset and size in the file, and address.
    segments: Vec<(u64, u64, u64)>,
    /// The sections `.eh_frame` and `.eh_frame_hdr`.
    frames: Section,
    header: Section,
}

struct Section {
    bytes: Vec<u8>,
    address: u64,
}

impl Section {
    fn read<'a>(file: &Elf<'a, impl ReadRef<'a>>, name: &str) -> Option<Self> {
        let (_, section) = file
            .sections
            .section_by_name(LittleEndian, name.as_bytes())?;
        Some(Self {
            bytes: section.data(LittleEndian, file.data).ok()?.to_vec(),
            address: section.sh_addr(LittleEndian),
        })
    }

    fn as_slice(&self) -> EndianSlice<'_, gimli::LittleEndian> {
        EndianSlice::new(&self.bytes, gimli::LittleEndian)
    }
}

impl Unwinder {
    /// Returns a copy of the file's call frame information.
    pub fn read<'a>(file: &Elf<'a, impl ReadRef<'a>>) -> Option<Self> {
        Some(Self {
            segments: file.segments(),
            frames: Section::read(file, ".eh_frame")?,
            header: Section::read(file, ".eh_frame_hdr")?,
        })
    }

    /// Returns the number of bytes that it keeps.
    pub fn size(&self) -> usize {
        self.frames.bytes.len() + self.header.bytes.len()
    }

    /// Returns the place of the caller's address for the instruction at `offset` in the file.
    pub fn find(&self, offset: u64) -> Option<Caller> {
        let holds = |segment: &&(u64, u64, u64)| offset.wrapping_sub(segment.0) < segment.1;
        let &(start, _, address) = self.segments.iter().find(holds)?;
        // Wrapping, because the file may contain any values.
        let address = (offset - start).wrapping_add(address);
        let bases = BaseAddresses::default()
            .set_eh_frame(self.frames.address)
            .set_eh_frame_hdr(self.header.address);
        let frames = EhFrame::from(self.frames.as_slice());
        let header = EhFrameHdr::from(self.header.as_slice());
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
