// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs whose runtime leaves less room below r1 than a sample needs: a sample overwrites the
//! memory next to their stacks.
//!
//! Such a runtime compares r1 with the end of the stack in each function, and knows how much the
//! function needs:
//!
//! * Go's functions run down to 800 bytes above the end of a goroutine's stack (`StackNosplitBase`
//!   in Go's `internal/abi/stack.go`), and those of its runtime further. Another goroutine's stack
//!   is below.
//! * OCaml 5 runs native code on stacks in the heap (`runtime/power.S` of OCaml). A function finds
//!   `Stack_threshold_words` beyond what it asks for, some hundred bytes. Only that file defines
//!   `caml_runstack`. OCaml 4 and the interpreter of bytecode use the thread's own stack.
//!
//! GCC's `-fsplit-stack` is not among them: `__morestack` of libgcc for 64-bit POWER sets the guard
//! 4 KiB above the end of each stack.

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

/// Loaders that list the shared objects of a program, and do not run it. A program may name any
/// other.
const LOADERS: [&str; 2] = ["/lib64/ld64.so.2", "/lib/ld-musl-powerpc64le.so.1"];

/// Returns what has such stacks, of the program at `path` and the shared objects that it is linked
/// to.
pub fn small(path: &Path) -> Option<String> {
    let runtime = |path: &Path| {
        let cache = ReadCache::new(File::open(path).ok()?);
        let found = of(&cache)?;
        Some(format!("{}: it has {found}", path.display()))
    };
    runtime(path).or_else(|| libraries(path).iter().find_map(|library| runtime(library)))
}

/// Returns the runtime with small stacks that an ELF file has.
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

/// Whether a linker has noted by what build id Go knows the file. `strip` leaves that.
fn has_note_of_go<'a, R: ReadRef<'a>>(file: &ElfFile64<'a, LittleEndian, R>) -> bool {
    /// Type of the note, in Go's `cmd/internal/buildid`.
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

/// Returns the shared objects that the program at `path` is linked to, as its loader finds them.
fn libraries(path: &Path) -> Vec<PathBuf> {
    let list = |loader: &&str| Command::new(loader).arg("--list").arg(path).output().ok();
    let Some(listed) = loader(path).as_ref().and_then(list) else {
        return Vec::new();
    };
    // NAME => PATH (ADDRESS)
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

/// Returns the loader that the program at `path` names, if it is of [`LOADERS`].
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
