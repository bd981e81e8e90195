// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the C library has processes and threads begin.

use core::ffi::CStr;
use core::ffi::c_int;
use core::ffi::c_void;
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use ebbprof_ring::FORK;
use ebbprof_ring::PROGRAM;
use ebbprof_ring::THREAD;
use ebbprof_ring::VARIABLE;

use crate::memory;
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
    let found = memory::attach(unsafe { CStr::from_ptr(path) });
    if let (true, Some(control)) = (found && thread::watch_ends(), memory::control()) {
        // SAFETY: the function lives as long as the program.
        unsafe { libc::pthread_atfork(None, None, Some(child_begins)) };
        thread::begin(control, PROGRAM);
    }
}

/// Objects may have been loaded since it began.
extern "C" fn program_ends() {
    thread::write_maps();
}

/// The child of a fork has no EBBs, but its memory says otherwise.
extern "C" fn child_begins() {
    thread::forget();
    if let Some(control) = memory::control() {
        thread::begin(control, FORK);
    }
}

/// A thread's function and its argument.
#[repr(C)]
struct Start {
    function: *mut c_void,
    argument: *mut c_void,
}

type Create = extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    unsafe extern "C" fn(),
    *mut c_void,
) -> c_int;

/// The C library's `pthread_create`, or 0.
static REAL: AtomicUsize = AtomicUsize::new(0);

fn real() -> Option<Create> {
    let mut address = REAL.load(Relaxed);
    if address == 0 {
        // SAFETY: a string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr()) };
        address = found.expose_provenance();
        REAL.store(address, Relaxed);
    }
    // SAFETY: null, or a function of that type.
    unsafe { transmute::<usize, Option<Create>>(address) }
}

unsafe extern "C" {
    /// What a sampled thread begins with: has it sampled and goes on with its function, which
    /// returns to the C library.
    fn ebbprof_thread();
}

core::arch::global_asm!(
    ".pushsection .text.ebbprof_thread, \"ax\", @progbits",
    ".hidden ebbprof_thread",
    ".globl ebbprof_thread",
    ".type ebbprof_thread, @function",
    "ebbprof_thread:",
    ".cfi_startproc",
    "0: addis 2, 12, .TOC.-0b@ha",
    "addi 2, 2, .TOC.-0b@l",
    ".localentry ebbprof_thread, . - ebbprof_thread",
    "mflr 0",
    "std 0, 16(1)",
    "stdu 1, -32(1)",
    ".cfi_def_cfa_offset 32",
    ".cfi_offset 65, 16",
    "bl ebbprof_thread_begins",
    "nop",
    "addi 1, 1, 32",
    ".cfi_def_cfa_offset 0",
    "ld 0, 16(1)",
    "mtlr 0",
    ".cfi_restore 65",
    "mr 12, 3",
    "mtctr 12",
    "mr 3, 4",
    "bctr",
    ".cfi_endproc",
    ".size ebbprof_thread, . - ebbprof_thread",
    ".popsection",
);

/// # Safety
///
/// `start` is of [`pthread_create`].
#[unsafe(no_mangle)]
unsafe extern "C" fn ebbprof_thread_begins(start: *mut Start) -> Start {
    // SAFETY: the caller's contract.
    let own = unsafe { ptr::read(start) };
    // SAFETY: of malloc.
    unsafe { libc::free(start.cast()) };
    if let Some(control) = memory::control() {
        thread::begin(control, THREAD);
    }
    own
}

/// The C library's, whose thread is sampled.
///
/// # Safety
///
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attr: *const libc::pthread_attr_t,
    function: unsafe extern "C" fn(),
    argument: *mut c_void,
) -> c_int {
    let Some(real) = real() else {
        return libc::ENOSYS;
    };
    // SAFETY: for two words.
    let start = unsafe { libc::malloc(size_of::<Start>()) }.cast::<Start>();
    if start.is_null() || memory::control().is_none() {
        // SAFETY: of malloc, or null.
        unsafe { libc::free(start.cast()) };
        return real(thread, attr, function, argument);
    }
    let own = Start {
        function: function as *mut c_void,
        argument,
    };
    // SAFETY: just made.
    unsafe { start.write(own) };
    // The C library blocks SIGILL meanwhile, which must not come then: see `ebb::step_over`.
    ebb::disable();
    let status = real(thread, attr, ebbprof_thread, start.cast());
    // Fails where the thread is not sampled.
    let _ = ebb::enable();
    if status != 0 {
        // SAFETY: of malloc; no thread has it.
        unsafe { libc::free(start.cast()) };
    }
    status
}
