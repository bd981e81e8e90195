// SPDX-License-Identifier: MIT OR Apache-2.0
//! Information about the recorded programs and libraries: build ids, call frame information, and
//! instructions.
//!
//! A path may soon name another file, and a file may get other contents. So a file is identified by
//! its attributes when it is seen in a process, and the needed data are copied then. They are not
//! mapped, because truncating a mapped file would kill `ebbprof` with SIGBUS.
//!
//! A process itself reports which files it has mapped, and it may have fewer privileges than
//! `ebbprof`. So an `ebbprof` of root only reads files that the system shows among the process's
//! mappings, or that all users may read. The contents also belong to the program: at most [`MOST`]
//! bytes are read at once.

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

/// Maximum size of a part of a file in bytes: more than any program's call frame information.
const MOST: u64 = 128 << 20;

/// Maximum size of the call frame information that is kept of all files together, in bytes.
const MOST_KEPT: usize = 512 << 20;

/// Maximum number of places in all files together whose results are cached: a program can have
/// samples anywhere.
const MOST_PLACES: usize = 1 << 20;

/// Maximum number of files that are known at a time: a file can have any number of paths.
const MOST_FILES: usize = 1 << 14;

/// The bytes of a file; reads of parts that are too large fail.
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

/// Number of a file that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId(usize);

/// Identity of one version of a file.
#[derive(PartialEq, Eq, Hash)]
struct Identity {
    path: OsString,
    device: u64,
    inode: u64,
    length: u64,
    /// Time of the last change of its contents or attributes (ctime).
    changed: (i64, i64),
}

/// Source of the bytes of code.
enum Code {
    File(fs::File),
    Bytes(&'static [u8]),
}

/// Data that are kept of a file.
#[derive(Default)]
struct Known {
    build_id: Option<Vec<u8>>,
    unwinder: Option<Unwinder>,
    code: Option<Code>,
    /// Cached results, by offset in the file.
    callers: HashMap<u64, Caller>,
    instructions: HashMap<u64, Option<u32>>,
}

/// All files that were seen.
pub struct Files {
    numbers: HashMap<Identity, FileId>,
    known: Vec<Known>,
    /// Size of the call frame information in bytes.
    kept: usize,
    /// Number of cached results.
    places: usize,
    with_callers: bool,
    with_branches: bool,
}

impl Files {
    /// Creates the table. `with_callers` and `with_branches` select what is read from each file.
    pub fn new(with_callers: bool, with_branches: bool) -> Self {
        Self {
            numbers: HashMap::new(),
            // Entry 0 stands for mappings that are no file.
            known: vec![Known::default()],
            kept: 0,
            places: 0,
            with_callers,
            with_branches,
        }
    }

    /// Returns the file of `mapping` in process `pid`. `is_shown` determines whether the system
    /// shows that mapping.
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

    /// Returns the file's build id, if it has one that fits in a perf.data file.
    pub fn build_id(&self, file: FileId) -> Option<&[u8]> {
        self.known[file.0].build_id.as_deref()
    }

    /// Returns the place of the caller's address at `offset`. Code without call frame information
    /// is a stub, for example of the PLT, or assembly, which mostly has no frame.
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
            // Dropped results can be computed again.
            for known in &mut self.known {
                (known.callers, known.instructions) = (HashMap::new(), HashMap::new());
            }
            self.places = 0;
        }
        self.places += 1;
        &mut self.known[file.0]
    }

    /// Returns the instruction at `offset`.
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
    // map_files needs CAP_CHECKPOINT_RESTORE, and does not exist if the first thread has ended.
    regular::open(&mapped, |_| true).or_else(|| open_path(pid, mapping, Device::Same))
}

/// How the device of a file must match that of its mapping: some file systems show another one
/// there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Device {
    Same,
    AsSeen,
}

/// Opens the file at the path of a mapping, resolved in its process, which may have another root.
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

/// An ELF file, of which only the requested parts are read.
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

    /// Returns the loaded segments: offset and size in the file, and address.
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
        /// Maximum size of a build id in a perf.data file.
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
