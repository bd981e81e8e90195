// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detects a runtime whose stacks are too small for samples. `ebbprof` refuses such a program
//! (`stacks.rs` there explains which and why); this check is for programs that are executed later.

use core::ffi::CStr;
use core::ffi::c_int;
use core::ffi::c_void;
use core::ptr;
use core::slice;

use ebb::Error;
use ebbprof_ring::SMALL_STACKS;

const NAME: &CStr = c"EBBPROF_SMALL_STACKS";
const _: () = assert!(NAME.count_bytes() == SMALL_STACKS.len());

/// Refuses to sample a program with such stacks, unless the environment allows that.
pub(crate) fn check() -> Result<(), Error> {
    // SAFETY: `NAME` is a string, and no thread changes the environment before main.
    let allowed = unsafe { !libc::getenv(NAME.as_ptr()).is_null() };
    if allowed || !are_small() {
        return Ok(());
    }
    Err(Error::System {
        what: "ebbprof",
        errno: libc::EOPNOTSUPP,
        rule: Some("the stacks of its runtime (Go, OCaml 5) may be too small: --small-stacks"),
    })
}

fn are_small() -> bool {
    let mut found = false;
    // SAFETY: The name is a string, and `look` gets the address of `found`, a local variable.
    unsafe {
        let ocaml = libc::dlsym(libc::RTLD_DEFAULT, c"caml_runstack".as_ptr());
        if ocaml.is_null() {
            // Clears the error, which the program must not see.
            libc::dlerror();
        }
        libc::dl_iterate_phdr(Some(look), (&raw mut found).cast());
        found || !ocaml.is_null()
    }
}

/// Looks for Go's note in an object.
///
/// # Safety
///
/// The C library calls it with an object's headers, and `found` points to a `bool`.
// SAFETY: The section "Safety" above has the contract.
unsafe extern "C" fn look(
    object: *mut libc::dl_phdr_info,
    _: libc::size_t,
    found: *mut c_void,
) -> c_int {
    // SAFETY: The C library passes the object's headers, whose segments are mapped.
    unsafe {
        let object = &*object;
        let headers = slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into());
        for header in headers.iter().filter(|one| one.p_type == libc::PT_NOTE) {
            // CAST: A usize has 64 bits on POWER.
            let address = object.dlpi_addr.wrapping_add(header.p_vaddr) as usize;
            let notes = ptr::with_exposed_provenance::<u8>(address);
            // CAST: A size of the mapped file fits a usize.
            if has_note_of_go(slice::from_raw_parts(notes, header.p_memsz as usize)) {
                found.cast::<bool>().write(true);
            }
        }
    }
    0
}

/// Returns whether one of these notes is the build id that Go has given the file.
fn has_note_of_go(mut notes: &[u8]) -> bool {
    /// Size of a note's header: lengths of name and contents, and type.
    const HEADER: usize = 12;
    const GO_BUILD_ID: u32 = 4;
    while let Some((header, rest)) = notes.split_at_checked(HEADER) {
        let word = |n: usize| {
            let bytes = header.get(4 * n..4 * n + 4)?;
            bytes.try_into().ok().map(u32::from_le_bytes)
        };
        let (Some(name), Some(contents), Some(kind)) = (word(0), word(1), word(2)) else {
            return false;
        };
        // CAST: A usize has 64 bits on POWER.
        let (name, contents) = (name as usize, contents as usize);
        if kind == GO_BUILD_ID && rest.get(..name) == Some(b"Go\0\0") {
            return true;
        }
        let length = name.next_multiple_of(4) + contents.next_multiple_of(4);
        let Some(next) = rest.get(length..) else {
            return false;
        };
        notes = next;
    }
    false
}
