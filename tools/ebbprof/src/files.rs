// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of the programs and libraries that are recorded: their build ids, where the caller's address
//! is at each instruction, and instructions.
//!
//! A path may have another file soon, and a file other contents: a file is known by what the system says of
//! it when it is seen in a process. What is needed of it is copied then, as who truncates a file that is
//! mapped here would end `ebbprof` by SIGBUS.
//!
//! Which files a process has mapped it says itself, and it may have fewer rights than `ebbprof`. So root's
//! `ebbprof` reads a file that the system shows among the process' mappings, or one that all users may
//! read. The contents are the program's, too: no more of them is read at once than [`MOST`].

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::fs::Metadata;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

use object::LittleEndian;
use object::ReadCache;
use object::ReadRef;
use object::elf;
use object::elf::FileHeader64;
use object::read::elf::FileHeader;
use object::read::elf::ProgramHeader;
use object::read::elf::SectionTable;

use crate::callers::Caller;
use crate::callers::Unwinder;
use crate::image;
use crate::image::VDSO;
use crate::perfdata::Mapping;
use crate::regular;

/// Bytes of a part of a file: more than the call frame information of any program has.
const MOST: u64 = 128 << 20;

/// Bytes of call frame information that are kept of all files together.
const MOST_KEPT: usize = 512 << 20;

/// Places, of all files together, of which is kept what was found there: a program can have samples
/// anywhere.
const MOST_PLACES: usize = 1 << 20;

/// Files that are known at a time: a file has any number of paths.
const MOST_FILES: usize = 1 << 14;

/// The bytes of a file, of which a part may be too large to be read.
#[derive(Clone, Copy)]
struct Limited<R>(R);

impl<'a, R: ReadRef<'a>> ReadRef<'a> for Limited<R> {
    fn len(self) -> Result<u64, ()> {
        self.0.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if size > MOST {
            return Err(());
        }
        self.0.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let end = range.end.min(range.start.saturating_add(MOST));
        self.0.read_bytes_at_until(range.start..end, delimiter)
    }
}

/// A file that was seen, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId(usize);

/// What is the same as long as a file is.
#[derive(PartialEq, Eq, Hash)]
struct Identity {
    path: OsString,
    device: u64,
    inode: u64,
    length: u64,
    /// When its contents were changed last, or something else of it.
    changed: (i64, i64),
}

/// Where the bytes of code are.
enum Code {
    File(fs::File),
    Bytes(&'static [u8]),
}

/// What is known of a file.
#[derive(Default)]
struct Known {
    build_id: Option<Vec<u8>>,
    unwinder: Option<Unwinder>,
    code: Option<Code>,
    /// What was found out before, by the place in the file.
    callers: HashMap<u64, Caller>,
    instructions: HashMap<u64, Option<u32>>,
}

/// All files that were seen.
pub struct Files {
    numbers: HashMap<Identity, FileId>,
    known: Vec<Known>,
    /// Bytes of call frame information.
    kept: usize,
    /// How many places of files are known.
    places: usize,
    with_callers: bool,
    with_branches: bool,
}

impl Files {
    /// What samples have says what of a file is read.
    pub fn new(with_callers: bool, with_branches: bool) -> Self {
        Self {
            numbers: HashMap::new(),
            // The first one knows nothing: of what is no file.
            known: vec![Known::default()],
            kept: 0,
            places: 0,
            with_callers,
            with_branches,
        }
    }

    /// The file that `mapping` of process `pid` is of. `is_shown` finds out whether the system shows that
    /// mapping.
    pub fn of(&mut self, pid: u32, mapping: &Mapping, is_shown: impl FnOnce() -> bool) -> FileId {
        let none = FileId(0);
        let is_vdso = mapping.path == VDSO;
        let opened = match is_vdso {
            true => None,
            false => open(pid, mapping, is_shown),
        };
        let data = opened.as_ref().map(|(_, data)| data);
        if data.is_none() && !is_vdso {
            return none;
        }
        let identity = Identity {
            path: mapping.path.clone(),
            device: data.map_or(0, Metadata::dev),
            inode: data.map_or(0, Metadata::ino),
            length: data.map_or(0, Metadata::len),
            changed: data.map_or((0, 0), |data| (data.ctime(), data.ctime_nsec())),
        };
        if let Some(&number) = self.numbers.get(&identity) {
            return number;
        }
        if self.known.len() >= MOST_FILES {
            return none;
        }
        let known = match opened {
            Some((file, _)) => self.read_file(file),
            None => image::vdso().map(|bytes| self.read(bytes, || Some(Code::Bytes(bytes)))),
        };
        let mut known = known.unwrap_or_default();
        let size = known.unwinder.as_ref().map_or(0, Unwinder::size);
        if self.kept + size > MOST_KEPT {
            known.unwinder = None;
        } else {
            self.kept += size;
        }
        let number = FileId(self.known.len());
        self.known.push(known);
        self.numbers.insert(identity, number);
        number
    }

    fn read_file(&self, file: fs::File) -> Option<Known> {
        let cache = ReadCache::new(file.try_clone().ok()?);
        Some(self.read(Limited(&cache), || Some(Code::File(file))))
    }

    fn read<'a>(&self, data: impl ReadRef<'a>, code: impl FnOnce() -> Option<Code>) -> Known {
        let file = Elf::parse(data);
        let unwinder = || Unwinder::read(file.as_ref()?);
        Known {
            build_id: file.as_ref().and_then(Elf::build_id),
            unwinder: self.with_callers.then(unwinder).flatten(),
            code: self.with_branches.then(code).flatten(),
            ..Known::default()
        }
    }

    /// Its build id, if it has one that a perf.data file can hold.
    pub fn build_id(&self, file: FileId) -> Option<&[u8]> {
        self.known[file.0].build_id.as_deref()
    }

    /// Where the caller is at `offset`. Code that says nothing is a stub, as of the PLT, or assembly, mostly
    /// without a frame.
    pub fn caller(&mut self, file: FileId, offset: u64) -> Caller {
        let known = &self.known[file.0];
        if let Some(&caller) = known.callers.get(&offset) {
            return caller;
        }
        let unwinder = known.unwinder.as_ref();
        let found = unwinder.and_then(|unwinder| unwinder.find(offset));
        let caller = found.unwrap_or(Caller::Link);
        self.with_room(file).callers.insert(offset, caller);
        caller
    }

    /// Returns the entry of a file, after making room for one more place in it.
    fn with_room(&mut self, file: FileId) -> &mut Known {
        if self.places >= MOST_PLACES {
            // It can be found out again.
            for known in &mut self.known {
                (known.callers, known.instructions) = (HashMap::new(), HashMap::new());
            }
            self.places = 0;
        }
        self.places += 1;
        &mut self.known[file.0]
    }

    /// The instruction at `offset`.
    pub fn instruction(&mut self, file: FileId, offset: u64) -> Option<u32> {
        let known = &self.known[file.0];
        if let Some(&instruction) = known.instructions.get(&offset) {
            return instruction;
        }
        let code = known.code.as_ref()?;
        let read = || {
            let mut word = [0; 4];
            match code {
                Code::File(file) => file.read_exact_at(&mut word, offset).ok()?,
                Code::Bytes(bytes) => {
                    let start = usize::try_from(offset).ok()?;
                    word = *bytes.get(start..)?.first_chunk()?;
                }
            }
            Some(u32::from_le_bytes(word))
        };
        let instruction = read();
        self.with_room(file)
            .instructions
            .insert(offset, instruction);
        instruction
    }
}

/// Opens the file of a mapping.
fn open(
    pid: u32,
    mapping: &Mapping,
    is_shown: impl FnOnce() -> bool,
) -> Option<(fs::File, Metadata)> {
    if !mapping.path.as_bytes().starts_with(b"/") {
        return None;
    }
    if !regular::is_privileged() {
        return open_path(pid, mapping, Device::AsSeen);
    }
    if !is_shown() {
        return regular::as_nobody(|| open_path(pid, mapping, Device::AsSeen));
    }
    let Mapping { start, end, .. } = mapping;
    let mapped = PathBuf::from(format!("/proc/{pid}/map_files/{start:x}-{end:x}"));
    // Not there without CAP_CHECKPOINT_RESTORE, nor of a process whose first thread has ended.
    regular::open(&mapped, |_| true).or_else(|| open_path(pid, mapping, Device::Same))
}

/// How the device of a file is to be that of its mapping: some file systems show another one there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Device {
    Same,
    AsSeen,
}

/// Opens the file at the path of a mapping, as its process sees it, which may have another root.
fn open_path(pid: u32, mapping: &Mapping, device: Device) -> Option<(fs::File, Metadata)> {
    let path = mapping.path.as_bytes().strip_prefix(b"/")?;
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    let roots = [
        PathBuf::from(format!("/proc/{pid}/root")),
        PathBuf::from("/"),
    ];
    let own = libc::makedev(mapping.device.0, mapping.device.1);
    let is_it = |data: &Metadata| match data.dev() == own {
        true => data.ino() == mapping.inode,
        false => device == Device::AsSeen,
    };
    let opened = |root: PathBuf| regular::open(&root.join(path), is_it);
    roots.into_iter().find_map(opened)
}

/// An ELF file, of which no more is read than what is asked for.
pub struct Elf<'a, R: ReadRef<'a>> {
    pub data: R,
    header: &'a FileHeader64<LittleEndian>,
    pub sections: SectionTable<'a, FileHeader64<LittleEndian>, R>,
}

impl<'a, R: ReadRef<'a>> Elf<'a, R> {
    fn parse(data: R) -> Option<Self> {
        let header = FileHeader64::parse(data).ok()?;
        let sections = header.sections(LittleEndian, data).ok()?;
        Some(Self {
            data,
            header,
            sections,
        })
    }

    /// What is loaded: first byte in the file and length; address of the first.
    pub fn segments(&self) -> Vec<(u64, u64, u64)> {
        let segments = self.header.program_headers(LittleEndian, self.data);
        let segments = segments.unwrap_or_default().iter();
        let loaded = segments.filter(|one| one.p_type(LittleEndian) == elf::PT_LOAD);
        let place = |one: &elf::ProgramHeader64<LittleEndian>| {
            let (offset, length) = one.file_range(LittleEndian);
            (offset, length, one.p_vaddr(LittleEndian))
        };
        loaded.map(place).collect()
    }

    fn build_id(&self) -> Option<Vec<u8>> {
        /// Bytes of one in a perf.data file.
        const MOST: usize = 20;
        let segments = self.header.program_headers(LittleEndian, self.data).ok()?;
        let mut notes = segments
            .iter()
            .filter_map(|one| one.notes(LittleEndian, self.data).ok()?);
        let id = notes.find_map(|mut notes| {
            while let Ok(Some(note)) = notes.next() {
                if note.name() == elf::ELF_NOTE_GNU
                    && note.n_type(LittleEndian) == elf::NT_GNU_BUILD_ID
                {
                    return Some(note.desc());
                }
            }
            None
        })?;
        (!id.is_empty() && id.len() <= MOST).then(|| id.to_vec())
    }
}
