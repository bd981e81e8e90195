// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of programs, libraries and the vDSO, from which symbols are read.

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

/// The kernel's name for the mapping of the code that it provides to all programs.
pub const VDSO: &str = "[vdso]";

/// An ELF file in memory.
pub enum Image {
    File(Mmap),
    Vdso(&'static [u8]),
}

impl Image {
    /// Opens the file that is mapped as `path`, or the vDSO.
    pub fn open(path: &Path) -> Option<Self> {
        if path == Path::new(VDSO) {
            return vdso().map(Self::Vdso);
        }
        if !path.is_absolute() {
            return None;
        }
        let (file, _) = regular::open(path, |_| true)?;
        // SAFETY: If a program truncates the file at this time, `ebbprof` gets SIGBUS, as any
        // program that maps a file would; no other code of `ebbprof` writes to it.
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

/// Returns the address that signal handlers return to, relative to the start of the vDSO.
pub fn trampoline() -> Option<u64> {
    let file = object::File::parse(vdso()?).ok()?;
    let start = file.segments().next()?.address();
    let mut symbols = file.dynamic_symbols();
    let found = symbols.find(|symbol| symbol.name() == Ok("__kernel_sigtramp_rt64"))?;
    found.address().checked_sub(start)
}

/// Returns the vDSO of this process. All processes have the same as long as the same kernel runs.
pub fn vdso() -> Option<&'static [u8]> {
    let maps = fs::read("/proc/self/maps").ok()?;
    let mut mappings = maps.split(|&byte| byte == b'\n').filter_map(Mapping::parse);
    let mapping = mappings.find(|mapping| mapping.path == VDSO)?;
    // CAST: A usize has 64 bits on POWER.
    let start = ptr::with_exposed_provenance(mapping.start as usize);
    // CAST: The size is a few pages.
    let length = (mapping.end - mapping.start) as usize;
    // SAFETY: The vDSO is mapped as long as the process lives, and is never written.
    Some(unsafe { slice::from_raw_parts(start, length) })
}
