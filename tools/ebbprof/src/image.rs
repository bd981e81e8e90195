// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of programs, of libraries and of the vDSO, for who reads their symbols.

use std::fs;
use std::ops::Deref;
use std::path::Path;
use std::ptr;
use std::slice;

use memmap2::Mmap;
use object::Object;
use object::ObjectSegment;
use object::ObjectSymbol;

use crate::perfdata::Mapping;
use crate::regular;

/// What the kernel calls the mapping of the code that it has for all programs.
pub const VDSO: &str = "[vdso]";

/// An ELF file in memory.
pub enum Image {
    File(Mmap),
    Vdso(&'static [u8]),
}

impl Image {
    /// What is mapped as `path`, if that is a file or the vDSO.
    pub fn open(path: &Path) -> Option<Self> {
        if path == Path::new(VDSO) {
            return vdso().map(Self::Vdso);
        }
        if !path.is_absolute() {
            return None;
        }
        let (file, _) = regular::open(path, |_| true)?;
        // SAFETY: a program that truncates the file meanwhile ends `ebbprof`, as it would its own.
        unsafe { Mmap::map(&file) }.ok().map(Self::File)
    }
}

impl Deref for Image {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::File(map) => map,
            Self::Vdso(bytes) => bytes,
        }
    }
}

/// Where the handlers of signals return to, from the start of the vDSO on.
pub fn trampoline() -> Option<u64> {
    let file = object::File::parse(vdso()?).ok()?;
    let start = file.segments().next()?.address();
    let mut symbols = file.dynamic_symbols();
    let found = symbols.find(|symbol| symbol.name() == Ok("__kernel_sigtramp_rt64"))?;
    found.address().checked_sub(start)
}

/// That of this process: as long as the same kernel runs, all have the same.
pub fn vdso() -> Option<&'static [u8]> {
    let maps = fs::read("/proc/self/maps").ok()?;
    let mut mappings = maps.split(|&byte| byte == b'\n').filter_map(Mapping::parse);
    let mapping = mappings.find(|mapping| mapping.path == VDSO)?;
    // CAST: usize has 64 bits.
    let start = ptr::with_exposed_provenance(mapping.start as usize);
    // CAST: some pages.
    let length = (mapping.end - mapping.start) as usize;
    // SAFETY: it is mapped as long as the process lives, and nobody writes there.
    Some(unsafe { slice::from_raw_parts(start, length) })
}
