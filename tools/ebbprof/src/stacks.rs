// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detects programs whose runtime leaves less room below r1 than a sample needs: a sample would
//! overwrite memory next to their stacks.
//!
//! Such a runtime compares r1 with the end of the stack in each function, and knows how much the
//! function needs:
//!
//! * Go's functions use their stack down to 800 bytes above the end of a goroutine's stack
//!   (`StackNosplitBase` in Go's `internal/abi/stack.go`), and those of its runtime even further.
//!   Another goroutine's stack may be below.
//! * OCaml 5 runs native code on stacks in the heap (`runtime/power.S` of OCaml). A function gets
//!   `Stack_threshold_words` more than it requests, some hundred bytes. Only that file defines
//!   `caml_runstack`. OCaml 4 and the bytecode interpreter use the thread's own stack.
//!
//! GCC's `-fsplit-stack` is safe: `__morestack` of libgcc for 64-bit POWER sets the guard 4 KiB
//! above the end of each stack.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use object::LittleEndian;
use object::Object;
use object::ObjectSymbol;
use object::ReadCache;
use object::ReadRef;
use object::elf;
use object::read::elf::ElfFile64;
use object::read::elf::FileHeader;
use object::read::elf::ProgramHeader;

/// Loaders that can list the shared objects of a program without running it. Others are not run,
/// because a program may name any file as its loader.
const LOADERS: [&str; 2] = ["/lib64/ld64.so.2", "/lib/ld-musl-powerpc64le.so.1"];

/// Returns which runtime with small stacks the program at `path` or a shared object of it has.
pub fn small(path: &Path) -> Option<String> {
    let runtime = |path: &Path| {
        let cache = ReadCache::new(File::open(path).ok()?);
        let found = of(&cache)?;
        Some(format!("{}: it has {found}", path.display()))
    };
    runtime(path).or_else(|| libraries(path).iter().find_map(|library| runtime(library)))
}

/// Returns the runtime with small stacks that an ELF file contains.
fn of<'a, R: ReadRef<'a>>(data: R) -> Option<&'static str> {
    let file = ElfFile64::<LittleEndian, R>::parse(data).ok()?;
    if has_note_of_go(&file) {
        return Some("Go's runtime");
    }
    let is_ocaml_5 = |name: object::Result<&str>| name == Ok("caml_runstack");
    let mut symbols = file.dynamic_symbols().chain(file.symbols());
    symbols
        .any(|symbol| symbol.is_definition() && is_ocaml_5(symbol.name()))
        .then_some("the native runtime of OCaml 5")
}

/// Returns whether the file has the note with Go's build id, which `strip` keeps.
fn has_note_of_go<'a, R: ReadRef<'a>>(file: &ElfFile64<'a, LittleEndian, R>) -> bool {
    /// Type of the note, from Go's `cmd/internal/buildid`.
    const GO_BUILD_ID: elf::NoteType = elf::NoteType(4);
    let headers = file.elf_header().program_headers(LittleEndian, file.data());
    let mut notes = headers
        .unwrap_or_default()
        .iter()
        .filter_map(|one| one.notes(LittleEndian, file.data()).ok()?);
    notes.any(|mut notes| {
        while let Ok(Some(note)) = notes.next() {
            if note.name() == b"Go" && note.n_type(LittleEndian) == GO_BUILD_ID {
                return true;
            }
        }
        false
    })
}

/// Returns the shared objects of the program at `path`, as its loader finds them.
fn libraries(path: &Path) -> Vec<PathBuf> {
    let list = |loader: &&str| Command::new(loader).arg("--list").arg(path).output().ok();
    let Some(listed) = loader(path).as_ref().and_then(list) else {
        return Vec::new();
    };
    // The format of a line is NAME => PATH (ADDRESS).
    let path_of = |line: &[u8]| {
        let start = line.windows(4).position(|four| four == b" => ")? + 4;
        let end = line.windows(2).rposition(|two| two == b" (")?;
        let path = OsStr::from_bytes(line.get(start..end)?);
        Some(PathBuf::from(path))
    };
    (listed.stdout.split(|&byte| byte == b'\n'))
        .filter_map(path_of)
        .collect()
}

/// Returns the loader of the program at `path`, if it is one of [`LOADERS`].
fn loader(path: &Path) -> Option<&'static str> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = ElfFile64::<LittleEndian, _>::parse(&cache).ok()?;
    let segments = file.elf_program_headers();
    let named = segments
        .iter()
        .find(|one| one.p_type(LittleEndian) == elf::PT_INTERP)?;
    let name = named.data(LittleEndian, file.data()).ok()?;
    let name = name.strip_suffix(b"\0")?;
    LOADERS.into_iter().find(|loader| loader.as_bytes() == name)
}
