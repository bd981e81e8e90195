// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hooks for the creation of processes and threads by the C library.

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

/// Id of the process that this memory belongs to; 0 until one of its threads is to be sampled.
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// The mark of that process.
static MARK: AtomicU64 = AtomicU64::new(0);

/// Returns whether the memory belongs to this process.
///
/// Two kinds of children see data of their parent, because no handler of `pthread_atfork` runs for
/// them. The child of `clone` or `_Fork` has a copy of the memory. Its mark differs, but its id may
/// not: it may be the first process of a PID namespace, as its parent is of another. The child of
/// `vfork` shares the memory with the mark. Its id differs. Neither may touch the slots, which the
/// parent still uses.
///
/// The EBB handler need not check this, because such a child has no EBBs. The kernel clears EBBHR
/// and BESCR of a new task (`clear_task_ebb`), and [`thread::begin`] refuses to start a session.
pub(crate) fn has_own_memory() -> bool {
    let process = PROCESS.load(Relaxed);
    process == 0
        // With `syscall`, because a sample in `getpid` would look like a call of the program's own.
        // SAFETY: `SYS_getpid` takes no argument and cannot fail.
        || process == unsafe { libc::syscall(libc::SYS_getpid) } as libc::pid_t
            && ebb::process_mark().is_ok_and(|mark| mark == MARK.load(Relaxed))
}

/// Fails in a process that does not own its memory.
pub(crate) fn check_memory() -> Result<(), Error> {
    has_own_memory().then_some(()).ok_or(Error::System {
        what: "ebbprof",
        errno: libc::EOPNOTSUPP,
        rule: Some("this process was not created by fork(3)"),
    })
}

/// Records that the memory belongs to this process. Returns whether that succeeded.
fn note() -> bool {
    let Ok(mark) = ebb::process_mark() else {
        return false;
    };
    MARK.store(mark, Relaxed);
    // SAFETY: `getpid` takes no pointer and cannot fail.
    PROCESS.store(unsafe { libc::getpid() }, Relaxed);
    true
}

/// Registers handlers for the ends of threads and for forks. Returns whether that succeeded.
pub(crate) fn watch() -> bool {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !note() {
        return false;
    }
    WATCHED.load(Relaxed) || {
        // SAFETY: The functions are never unloaded.
        let at_fork =
            || unsafe { libc::pthread_atfork(Some(forks), Some(has_forked), Some(child_begins)) };
        let watched = thread::watch_ends() && at_fork() == 0;
        WATCHED.store(watched, Relaxed);
        watched
    }
}

/// Turns EBBs off before a fork, during which the C library blocks SIGILL.
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

/// Starts sampling in the child of a fork. It has no EBBs, although its copied memory indicates
/// some.
extern "C" fn child_begins() {
    let _unnoticed = Unnoticed::begin();
    // Cannot fail, because the page of the mark exists.
    note();
    thread::forget();
    if sampling().is_some_and(memory::is_foreign) {
        sessions::set_state(State::Idle);
    }
    recording::forget_changes();
    // A pause of the parent does not apply to the child, which could not end it.
    if sessions::state() == State::Paused {
        sessions::set_state(State::Running);
    }
    if let Some(control) = sampling() {
        let _ = thread::begin(control, FORK);
    }
}

/// Returns the shared memory, if threads that begin now are to be sampled.
fn sampling() -> Option<&'static Control> {
    let goes_on = |control: &&_| !is_stopped(control) && sessions::state() != State::Idle;
    memory::control().filter(goes_on)
}

/// Returns whether sampling has stopped because the samples cannot be written.
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
    /// Entry of a sampled thread: starts sampling and jumps to the thread's function, which returns
    /// to the C library.
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

/// Starts sampling in a new thread. Returns the thread's function and argument.
///
/// # Safety
///
/// `start` is from [`create`].
#[unsafe(no_mangle)]
unsafe extern "C" fn ebbprof_thread_begins(start: *mut Start) -> Start {
    let _unnoticed = Unnoticed::begin();
    // SAFETY: The caller guarantees that `create` has written it.
    let own = unsafe { ptr::read(start) };
    // SAFETY: `create` got it from malloc(), and nothing else uses it.
    unsafe { libc::free(start.cast()) };
    if let Some(control) = sampling() {
        let _ = thread::begin(control, THREAD);
    }
    own
}

/// Interposes pthread_create() so that the new thread is sampled.
///
/// # Safety
///
/// The requirements of the C library's function apply.
#[cfg_attr(not(feature = "wrap"), unsafe(export_name = "pthread_create"))]
#[cfg_attr(feature = "wrap", unsafe(export_name = "__wrap_pthread_create"))]
unsafe extern "C" fn create(
    thread: *mut libc::pthread_t,
    attr: *const libc::pthread_attr_t,
    function: unsafe extern "C" fn(),
    argument: *mut c_void,
) -> c_int {
    // SAFETY: The address is 0 or that of a function of this type.
    let real = unsafe { transmute::<usize, Option<Create>>(c_library!("pthread_create")) };
    let Some(real) = real else {
        return libc::ENOSYS;
    };
    let _unnoticed = Unnoticed::begin();
    // SAFETY: The call takes any size.
    let start = unsafe { libc::malloc(size_of::<Start>()) }.cast::<Start>();
    if start.is_null() || sampling().is_none() {
        // SAFETY: `start` is null or from malloc(), and not used after this.
        unsafe { libc::free(start.cast()) };
        return real(thread, attr, function, argument);
    }
    let own = Start {
        function: function as *mut c_void,
        argument,
    };
    // SAFETY: `start` has the size of a `Start` and is not null.
    unsafe { start.write(own) };
    let status = calls::without_ebbs(|| real(thread, attr, ebbprof_thread_entry, start.cast()));
    if status != 0 {
        // SAFETY: `start` is from malloc(), and no thread was created that would use it.
        unsafe { libc::free(start.cast()) };
    }
    status
}
