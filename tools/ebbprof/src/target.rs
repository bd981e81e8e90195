// SPDX-License-Identifier: MIT OR Apache-2.0
//! Determines which programs can be profiled, and why others cannot.

use std::env;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

use ebb::Save;
use object::Object;
use object::elf;
use object::read::elf::ElfFile64;
use object::read::elf::FileHeader;
use object::read::elf::ProgramHeader;

use crate::stacks;

/// Returns the file that the system runs for `program`, after a search of the PATH like a shell's.
pub fn find(program: &Path) -> io::Result<PathBuf> {
    let found = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|data| data.is_file() && data.mode() & 0o111 != 0)
    };
    let candidates = match program.parent() {
        Some(folder) if folder != Path::new("") => vec![program.to_path_buf()],
        _ => {
            let path = env::var_os("PATH").unwrap_or_default();
            env::split_paths(&path)
                .map(|folder| folder.join(program))
                .collect()
        }
    };
    let missing = || io::Error::new(io::ErrorKind::NotFound, "no such program");
    candidates.into_iter().find(found).ok_or_else(missing)
}

/// Returns why the program at `path`, or the interpreter that it names, cannot be profiled.
pub fn refusal(path: &Path, small_stacks: SmallStacks) -> Option<String> {
    /// Maximum number of nested interpreters that are scripts; the kernel runs no more.
    const SCRIPTS: u32 = 5;
    refusal_within(path, small_stacks, SCRIPTS)
}

fn refusal_within(path: &Path, small_stacks: SmallStacks, scripts: u32) -> Option<String> {
    let said = |reason: &str| Some(format!("{}: {reason}", path.display()));
    let image = match fs::read(path) {
        Ok(image) => image,
        // A program that cannot be read can still be run.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return None,
        Err(error) => return said(&error.to_string()),
    };
    if let Some(rest) = image.strip_prefix(b"#!") {
        let line = rest.split(|&byte| byte == b'\n').next().unwrap_or(rest);
        let line = String::from_utf8_lossy(line);
        let interpreter = line.split_whitespace().next()?;
        return match scripts.checked_sub(1) {
            Some(scripts) => refusal_within(Path::new(interpreter), small_stacks, scripts),
            None => said("too many nested script interpreters"),
        };
    }
    if changes_user(path) {
        return said(
            "it is set-user-ID or has capabilities, so the loader ignores LD_PRELOAD. Profile a copy \
             without these, or run ebbprof as the user that the program runs as",
        );
    }
    match elf_refusal(&image) {
        Ok(Some(reason)) => said(reason),
        Ok(None) if small_stacks == SmallStacks::Refused => stack_refusal(path),
        Ok(None) => None,
        Err(_) => said("it is not a 64-bit little-endian POWER program"),
    }
}

/// Treatment of a program whose stacks are too small for a sample.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SmallStacks {
    Refused,
    Allowed,
}

impl SmallStacks {
    /// Returns the treatment that the option selects.
    pub fn new(allowed: bool) -> Self {
        match allowed {
            true => Self::Allowed,
            false => Self::Refused,
        }
    }
}

fn stack_refusal(path: &Path) -> Option<String> {
    let found = stacks::small(path)?;
    let size = Save::Gprs.stack();
    Some(format!(
        "{found}, whose stacks may have less room than a sample takes ({size} bytes or more), so samples \
         may overwrite data below them. Use --small-stacks to run it nevertheless"
    ))
}

fn elf_refusal(image: &[u8]) -> object::Result<Option<&'static str>> {
    let file = ElfFile64::<object::LittleEndian>::parse(image)?;
    let endian = file.endian();
    let header = file.elf_header();
    if header.e_machine(endian) != elf::EM_PPC64 {
        return Ok(Some("it is built for another processor"));
    }
    let mut segments = file.elf_program_headers().iter();
    if !segments.any(|segment| segment.p_type(endian) == elf::PT_INTERP) {
        return Ok(Some(
            "it is static, so libebbprof cannot be preloaded. Link it dynamically, or link it to \
             libebbprof, see ebbprof(3)",
        ));
    }
    let needs_library = (file.import_libraries()?.flatten())
        .any(|library| library.name().starts_with(b"libebb.so"));
    if needs_library || file.section_by_name("ebb_fixup").is_some() {
        return Ok(Some(
            "it uses EBBs itself (tools/ebb or libebb), and a thread can have only one EBB handler",
        ));
    }
    Ok(None)
}

/// Returns whether the program runs with privileges that its caller does not have.
fn changes_user(path: &Path) -> bool {
    let Ok(data) = fs::metadata(path) else {
        return false;
    };
    // SAFETY: The calls take no pointers.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let other_user = data.mode() & libc::S_ISUID != 0 && data.uid() != user;
    let other_group = data.mode() & libc::S_ISGID != 0 && data.gid() != group;
    let capabilities = user != 0
        && CString::new(path.as_os_str().as_bytes()).is_ok_and(|path| {
            let name = c"security.capability".as_ptr();
            // SAFETY: Both are strings, and a null buffer of size 0 is allowed.
            unsafe { libc::getxattr(path.as_ptr(), name, std::ptr::null_mut(), 0) > 0 }
        });
    other_user || other_group || capabilities
}
