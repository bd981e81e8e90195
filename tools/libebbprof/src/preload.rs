// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `ebbprof record` has preloaded begins and ends with the program.

use core::ffi::CStr;
use core::ffi::c_char;
use core::ffi::c_int;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::mem::transmute;
use core::sync::atomic::Ordering::Relaxed;

use ebbprof_ring::ALIGN;
use ebbprof_ring::MAGIC;
use ebbprof_ring::MOST_FRAMES;
use ebbprof_ring::PROGRAM;
use ebbprof_ring::VARIABLE;
use ebbprof_ring::size;

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
    let found = attach(unsafe { CStr::from_ptr(path) });
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

/// Bytes of an open file, or 0.
fn file_size(fd: c_int) -> u64 {
    let mut data = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the call fills in what is read if it succeeds.
    unsafe {
        match libc::fstat(fd, data.as_mut_ptr()) {
            // CAST: not negative.
            0 => (*data.as_ptr()).st_size as u64,
            _ => 0,
        }
    }
}

/// Maps the memory at `path`; tells whether it could.
fn attach(path: &CStr) -> bool {
    /// Words of a ring, with which the size of all slots is no overflow.
    const MOST_WORDS: u64 = 1 << 40;
    // SAFETY: a path that ends with 0.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 {
        return false;
    }
    let head = (file_size(fd) >= ALIGN as u64).then(|| memory::map(fd));
    let attached = head.flatten().is_some_and(|head| {
        // SAFETY: the memory begins with it, and its file has at least `ALIGN` bytes.
        let (magic, ring, frames) = unsafe { ((*head).magic, (*head).ring, (*head).frames) };
        if ebbprof_ring::is_other_version(magic) {
            // SAFETY: as before; what others change there too.
            unsafe { (*head).others.fetch_add(1, Relaxed) };
        }
        let sound = magic == MAGIC
            && ring.is_power_of_two()
            && ring <= MOST_WORDS
            && frames <= MOST_FRAMES
            && file_size(fd) >= size(ring) as u64;
        match sound {
            true => memory::set(head),
            // SAFETY: as mapped above.
            false => unsafe {
                libc::munmap(head.cast(), ALIGN);
            },
        }
        sound
    });
    // SAFETY: it was opened here.
    unsafe { libc::close(fd) };
    attached
}
