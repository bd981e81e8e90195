// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `ebbprof record` has preloaded begins and ends with the program.

use core::ffi::CStr;
use core::ffi::c_int;
use core::ffi::c_void;
use core::mem::transmute;
use core::sync::atomic::AtomicUsize;

use ebbprof_ring::ALIGN;
use ebbprof_ring::MAGIC;
use ebbprof_ring::PROGRAM;
use ebbprof_ring::VARIABLE;
use ebbprof_ring::size;

use crate::memory;
use crate::process;
use crate::sessions;
use crate::sessions::State;
use crate::thread;

/// `VARIABLE` as C has it.
const NAME: &CStr = c"EBBPROF";
const _: () = assert!(NAME.count_bytes() == VARIABLE.len());

#[used]
#[unsafe(link_section = ".init_array")]
static BEGINS: extern "C" fn() = program_begins;

#[used]
#[unsafe(link_section = ".fini_array")]
static ENDS: extern "C" fn() = program_ends;

extern "C" fn program_begins() {
    // SAFETY: a string; nobody changes the environment before main.
    let path = unsafe { libc::getenv(NAME.as_ptr()) };
    if path.is_null() {
        return;
    }
    // SAFETY: a string of the environment.
    let found = attach(unsafe { CStr::from_ptr(path) });
    if let (true, Some(control)) = (found && process::watch(), memory::control()) {
        sessions::set_state(State::Preloaded);
        // Why it is not, `ebbprof` finds in its slot.
        let _ = thread::begin(control, PROGRAM);
    }
}

/// Objects may have been loaded since it began.
extern "C" fn program_ends() {
    thread::write_maps();
}

/// The C library's. Of what it unmaps there are samples, perhaps, that `ebbprof` has not read yet.
///
/// # Safety
///
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    type Close = unsafe extern "C" fn(*mut c_void) -> c_int;
    thread::show_maps();
    // SAFETY: null, or a function of that type.
    let real = unsafe { transmute::<usize, Option<Close>>(process::next(&REAL, c"dlclose")) };
    // SAFETY: the caller's contract.
    real.map_or(-1, |real| unsafe { real(handle) })
}

/// Maps the memory at `path`; tells whether it could.
fn attach(path: &CStr) -> bool {
    // SAFETY: a path that ends with 0.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 {
        return false;
    }
    let attached = memory::map(fd, ALIGN).is_some_and(|head| {
        // SAFETY: the memory begins with it, and its file has at least `ALIGN` bytes or this is
        // none of `ebbprof`'s.
        let (magic, ring) = unsafe { ((*head).magic, (*head).ring) };
        // SAFETY: as mapped above.
        unsafe { libc::munmap(head.cast(), ALIGN) };
        let mapped = (magic == MAGIC)
            .then(|| memory::map(fd, size(ring)))
            .flatten();
        mapped.inspect(|&head| memory::set(head)).is_some()
    });
    // SAFETY: it was opened here.
    unsafe { libc::close(fd) };
    attached
}
