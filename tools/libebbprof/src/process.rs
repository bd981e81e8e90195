// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the C library has processes and threads begin.

use core::ffi::c_int;
use core::ffi::c_void;
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::AtomicI32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use ebb::Error;
use ebbprof_ring::Control;
use ebbprof_ring::FORK;
use ebbprof_ring::THREAD;

use crate::c_library::c_library;
use crate::calls;
use crate::memory;
use crate::recording;
use crate::sessions;
use crate::sessions::State;
use crate::thread;
use crate::unnoticed::Unnoticed;

/// Number of the process that this memory belongs to, or 0 until a thread of it is to be sampled.
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// The mark of that process.
static MARK: AtomicU64 = AtomicU64::new(0);

/// Returns whether the memory belongs to this process.
///
/// Two kinds of children find what their parent wrote, as no handler of `pthread_atfork` runs for
/// them. The child of `clone` or `_Fork` has a copy. Its mark differs, and its number may not: it
/// may be the first process of a namespace, as its parent is of another. The child of `vfork`
/// shares the memory with the mark. Its number differs. Neither may touch the slots, which its
/// parent goes on using.
///
/// The EBB handler need not ask: such a child has no EBBs. The kernel clears EBBHR and BESCR of a
/// new task (`clear_task_ebb`), and [`thread::begin`] refuses to start a session.
pub(crate) fn has_own_memory() -> bool {
    let process = PROCESS.load(Relaxed);
    process == 0
        // By `syscall`: a sample of `getpid` would look like one of the program's own calls.
        // SAFETY: `SYS_getpid` takes no argument, and cannot fail.
        || process == unsafe { libc::syscall(libc::SYS_getpid) } as libc::pid_t
            && ebb::process_mark().is_ok_and(|mark| mark == MARK.load(Relaxed))
}

/// Refuses what a process may do in its own memory only.
pub(crate) fn check_memory() -> Result<(), Error> {
    has_own_memory().then_some(()).ok_or(Error::System {
        what: "ebbprof",
        errno: libc::EOPNOTSUPP,
        rule: Some("this process was made by another call than fork(3)"),
    })
}

/// Notes that the memory belongs to this process; returns whether that worked.
fn note() -> bool {
    let Ok(mark) = ebb::process_mark() else {
        return false;
    };
    MARK.store(mark, Relaxed);
    // SAFETY: `getpid` takes no pointer, and cannot fail.
    PROCESS.store(unsafe { libc::getpid() }, Relaxed);
    true
}

/// Has the ends of threads noticed, and forks; tells whether it could.
pub(crate) fn watch() -> bool {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !note() {
        return false;
    }
    WATCHED.load(Relaxed) || {
        // SAFETY: the functions live as long as the program.
        let at_fork =
            || unsafe { libc::pthread_atfork(Some(forks), Some(has_forked), Some(child_begins)) };
        let watched = thread::watch_ends() && at_fork() == 0;
        WATCHED.store(watched, Relaxed);
        watched
    }
}

/// The C library blocks SIGILL in a fork.
extern "C" fn forks() {
    if has_own_memory() {
        sessions::lock_for_fork();
        calls::begin();
    }
}

extern "C" fn has_forked() {
    if has_own_memory() {
        calls::end();
        sessions::unlock_after_fork();
    }
}

/// The child of a fork has no EBBs, but its memory says otherwise.
extern "C" fn child_begins() {
    let _unnoticed = Unnoticed::begin();
    // Cannot fail: the page of the mark is there.
    note();
    thread::forget();
    if sampling().is_some_and(memory::is_foreign) {
        sessions::set_state(State::Idle);
    }
    recording::forget_changes();
    // The parent's pause is not the child's, which could not end it.
    if sessions::state() == State::Paused {
        sessions::set_state(State::Running);
    }
    if let Some(control) = sampling() {
        let _ = thread::begin(control, FORK);
    }
}

/// The shared memory, if threads are to be sampled that begin now.
fn sampling() -> Option<&'static Control> {
    let goes_on = |control: &&_| !is_stopped(control) && sessions::state() != State::Idle;
    memory::control().filter(goes_on)
}

/// Whether nobody takes samples any more, as they cannot be written.
fn is_stopped(control: &Control) -> bool {
    control.stop.load(Relaxed) != 0
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

unsafe extern "C" {
    /// What a sampled thread begins with: has it sampled and goes on with its function, which
    /// returns to the C library.
    fn ebbprof_thread_entry();
}

core::arch::global_asm!(
    ".pushsection .text.ebbprof_thread_entry, \"ax\", @progbits",
    ".hidden ebbprof_thread_entry",
    ".globl ebbprof_thread_entry",
    ".type ebbprof_thread_entry, @function",
    "ebbprof_thread_entry:",
    ".cfi_startproc",
    "0: addis 2, 12, .TOC.-0b@ha",
    "addi 2, 2, .TOC.-0b@l",
    ".localentry ebbprof_thread_entry, . - ebbprof_thread_entry",
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
    ".size ebbprof_thread_entry, . - ebbprof_thread_entry",
    ".popsection",
);

/// # Safety
///
/// `start` is of [`pthread_create`].
#[unsafe(no_mangle)]
unsafe extern "C" fn ebbprof_thread_begins(start: *mut Start) -> Start {
    let _unnoticed = Unnoticed::begin();
    // SAFETY: the caller's contract.
    let own = unsafe { ptr::read(start) };
    // SAFETY: of malloc.
    unsafe { libc::free(start.cast()) };
    if let Some(control) = sampling() {
        let _ = thread::begin(control, THREAD);
    }
    own
}

/// The C library's, whose thread is sampled.
///
/// # Safety
///
/// As the C library's.
#[cfg_attr(not(feature = "wrap"), unsafe(export_name = "pthread_create"))]
#[cfg_attr(feature = "wrap", unsafe(export_name = "__wrap_pthread_create"))]
unsafe extern "C" fn create(
    thread: *mut libc::pthread_t,
    attr: *const libc::pthread_attr_t,
    function: unsafe extern "C" fn(),
    argument: *mut c_void,
) -> c_int {
    // SAFETY: null, or a function of that type.
    let real = unsafe { transmute::<usize, Option<Create>>(c_library!("pthread_create")) };
    let Some(real) = real else {
        return libc::ENOSYS;
    };
    let _unnoticed = Unnoticed::begin();
    // SAFETY: for two words.
    let start = unsafe { libc::malloc(size_of::<Start>()) }.cast::<Start>();
    if start.is_null() || sampling().is_none() {
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
    let status = calls::without_ebbs(|| real(thread, attr, ebbprof_thread_entry, start.cast()));
    if status != 0 {
        // SAFETY: of malloc; no thread has it.
        unsafe { libc::free(start.cast()) };
    }
    status
}
