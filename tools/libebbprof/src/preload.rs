// SPDX-License-Identifier: MIT OR Apache-2.0
//! The beginning and the end of a program that `ebbprof record` has preloaded this library into.

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

/// `VARIABLE` as a string of C.
const NAME: &CStr = c"EBBPROF";
const _: () = assert!(NAME.count_bytes() == VARIABLE.len());

#[used]
#[unsafe(link_section = ".init_array")]
static BEGINS: extern "C" fn() = program_begins;

#[used]
#[unsafe(link_section = ".fini_array")]
static ENDS: extern "C" fn() = program_ends;

unsafe extern "C" {
    /// Exists in glibc and musl, but the libc crate does not declare it for both. Returns null in a
    /// program that runs with more privileges than its caller.
    fn secure_getenv(name: *const c_char) -> *mut c_char;
}

extern "C" fn program_begins() {
    let _unnoticed = Unnoticed::begin();
    signals::find();
    blocking::find();
    // SAFETY: `NAME` is a string, and no thread changes the environment before main().
    let path = unsafe { secure_getenv(NAME.as_ptr()) };
    if path.is_null() {
        return;
    }
    // SAFETY: secure_getenv() returned a string of the environment.
    let found = memory::attach(unsafe { CStr::from_ptr(path) });
    let control = memory::control().filter(|control| !memory::is_foreign(control));
    if let (true, Some(control)) = (found && process::watch(), control) {
        sessions::set_state(State::Preloaded);
        // `ebbprof` finds the reason for a failure in the slot.
        let _ = thread::begin(control, PROGRAM);
        if stacks::check().is_err() {
            // Its threads and children are not sampled either.
            sessions::set_state(State::Idle);
        }
    }
}

/// Records the mappings when the program ends: objects may have been loaded since it began.
extern "C" fn program_ends() {
    let _unnoticed = Unnoticed::begin();
    thread::take_stock();
}

/// Interposes dlclose(): `ebbprof` may not have read samples in the object yet, so it gets the
/// mappings before they are removed.
///
/// # Safety
///
/// The requirements of the C library's function apply.
#[unsafe(no_mangle)]
unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    type Close = unsafe extern "C" fn(*mut c_void) -> c_int;
    thread::show_maps();
    // SAFETY: The address is 0 or that of a function of this type.
    let real = unsafe { transmute::<usize, Option<Close>>(c_library!("dlclose")) };
    // SAFETY: The caller guarantees what the C library's function requires.
    real.map_or(-1, |real| unsafe { real(handle) })
}
