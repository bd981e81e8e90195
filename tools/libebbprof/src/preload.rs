// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `ebbprof record` has preloaded begins and ends with the program.

use core::ffi::CStr;
use core::ffi::c_char;
use core::ffi::c_int;
use core::ffi::c_void;
use core::mem::transmute;

use ebbprof_ring::PROGRAM;
use ebbprof_ring::VARIABLE;

use crate::blocking;
use crate::c_library::c_library;
use crate::memory;
use crate::process;
use crate::sessions;
use crate::sessions::State;
use crate::signals;
use crate::stacks;
use crate::thread;
use crate::unnoticed::Unnoticed;

/// `VARIABLE` as C has it.
const NAME: &CStr = c"EBBPROF";
const _: () = assert!(NAME.count_bytes() == VARIABLE.len());

#[used]
#[unsafe(link_section = ".init_array")]
static BEGINS: extern "C" fn() = program_begins;

#[used]
#[unsafe(link_section = ".fini_array")]
static ENDS: extern "C" fn() = program_ends;

unsafe extern "C" {
    /// Of glibc and musl, not in the libc crate for each: of a program that runs with rights that
    /// its caller does not have it finds nothing.
    fn secure_getenv(name: *const c_char) -> *mut c_char;
}

extern "C" fn program_begins() {
    let _unnoticed = Unnoticed::begin();
    signals::find();
    blocking::find();
    // SAFETY: a string; nobody changes the environment before main.
    let path = unsafe { secure_getenv(NAME.as_ptr()) };
    if path.is_null() {
        return;
    }
    // SAFETY: a string of the environment.
    let found = memory::attach(unsafe { CStr::from_ptr(path) });
    let control = memory::control().filter(|control| !memory::is_foreign(control));
    if let (true, Some(control)) = (found && process::watch(), control) {
        sessions::set_state(State::Preloaded);
        // Why it is not, `ebbprof` finds in its slot.
        let _ = thread::begin(control, PROGRAM);
        if stacks::check().is_err() {
            // None of its threads and children is, either.
            sessions::set_state(State::Idle);
        }
    }
}

/// Objects may have been loaded since it began.
extern "C" fn program_ends() {
    let _unnoticed = Unnoticed::begin();
    thread::take_stock();
}

/// The C library's. Of what it unmaps there are samples, perhaps, that `ebbprof` has not read yet.
///
/// # Safety
///
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    type Close = unsafe extern "C" fn(*mut c_void) -> c_int;
    thread::show_maps();
    // SAFETY: null, or a function of that type.
    let real = unsafe { transmute::<usize, Option<Close>>(c_library!("dlclose")) };
    // SAFETY: the caller's contract.
    real.map_or(-1, |real| unsafe { real(handle) })
}
