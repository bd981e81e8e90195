// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that writes the file of a recording: `ebbprof collect`, found on the PATH.
//!
//! It is not a child of the program, which could otherwise see it with `wait` and get SIGCHLD for
//! it. Both communicate over a socket. A request is one byte. An answer is two bytes: what failed,
//! and errno. Before the first answer the collector sends its process id.

use core::ffi::CStr;
use core::ffi::c_char;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr;

use ebb::Error;

use crate::descriptor::Kept;
use crate::memory;
use crate::memory::errno;
use crate::recording::refused;

/// The request to complete the file.
pub(crate) const DUMP: u8 = b'd';
/// The request to complete the file and end.
pub(crate) const STOP: u8 = b's';

/// The descriptors that the collector inherits: its end of the socket, and the memory.
const SOCKET: c_int = 3;
const MEMORY: c_int = 4;

/// The program's end of the socket to the collector.
pub(crate) struct Collector(c_int);

/// The socket of the current recording.
static CURRENT: Kept = Kept::none();

pub(crate) fn set(collector: Collector) {
    CURRENT.set(collector.0);
}

/// Sends a request to the collector and waits for its answer.
pub(crate) fn ask(request: u8) -> Result<(), Error> {
    let Some(socket) = CURRENT.get() else {
        return Err(refused(
            libc::EBADF,
            "the program has closed the socket to ebbprof collect, which ends the recording",
        ));
    };
    // SAFETY: `request` is a local variable of one byte.
    let sent = unsafe { libc::send(socket, (&raw const request).cast(), 1, libc::MSG_NOSIGNAL) };
    if let Some(control) = memory::control() {
        memory::ask(control);
    }
    match sent {
        1 => answer(socket),
        _ => Err(ended()),
    }
}

/// Closes the socket. Returns whether it was open; the program may have closed it.
pub(crate) fn end() -> bool {
    CURRENT.close()
}

fn ended() -> Error {
    refused(
        libc::EPIPE,
        "ebbprof collect, which writes the file, has ended",
    )
}

fn answer(socket: c_int) -> Result<(), Error> {
    let mut code = [0_u8; 2];
    // SAFETY: `code` has as many bytes as passed.
    let read = unsafe { receive(socket, code.as_mut_ptr().cast(), code.len(), 0) };
    match (read, code) {
        (2, [0, 0]) => Ok(()),
        (2, [NOT_RUN, errno]) => Err(refused(
            errno.into(),
            "cannot run ebbprof, which must be on the PATH",
        )),
        (2, [OTHER, errno]) => Err(refused(
            errno.into(),
            "the ebbprof on the PATH and this library have different versions",
        )),
        (2, [_, errno]) => Err(refused(errno.into(), "cannot write the file")),
        _ => Err(ended()),
    }
}

/// Allows the collector to read this process's events. That takes the permission to trace the
/// process, which Yama gives only to a process that the program names. The collector's first
/// message is its id.
fn let_look(socket: c_int) {
    let mut number: c_int = 0;
    let length = size_of_val(&number);
    // SAFETY: `number` has as many bytes as passed. A shorter message is the answer, which is kept.
    unsafe {
        let flags = libc::MSG_PEEK;
        // CAST: The length is 4.
        if receive(socket, (&raw mut number).cast(), length, flags) == length as isize {
            libc::recv(socket, (&raw mut number).cast(), length, 0);
            // CAST: The kernel's process ids are positive.
            libc::prctl(libc::PR_SET_PTRACER, number as libc::c_ulong, 0, 0, 0);
        }
    }
}

/// Calls `recv`, and repeats it if a signal has interrupted it.
///
/// # Safety
///
/// `buffer` is valid for writing `length` bytes.
unsafe fn receive(socket: c_int, buffer: *mut libc::c_void, length: usize, flags: c_int) -> isize {
    loop {
        // SAFETY: The caller guarantees the bytes of `buffer`.
        let read = unsafe { libc::recv(socket, buffer, length, flags) };
        if read >= 0 || errno() != libc::EINTR {
            return read;
        }
    }
}

/// First byte of an answer: the collector could not be run. The second byte is an errno.
const NOT_RUN: u8 = 2;
/// First byte of an answer: the collector does not know this version of the memory.
const OTHER: u8 = 3;

impl Collector {
    /// Starts a collector that writes the samples in the memory to `file`.
    pub(crate) fn start(memory: c_int, file: &CStr) -> Result<Self, Error> {
        let mut pair = [-1; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: `pair` has two elements.
        if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) } != 0 {
            return Err(refused(errno(), "cannot create a socket"));
        }
        let [own, its] = pair;
        let own = ebbprof_ring::move_up(own);
        let mut digits = [0; 12];
        // SAFETY: The call takes no pointers.
        let process = decimal(unsafe { libc::getpid() }, &mut digits);
        let arguments = [
            c"ebbprof".as_ptr(),
            c"collect".as_ptr(),
            process.as_ptr(),
            c"--".as_ptr(),
            file.as_ptr(),
            ptr::null(),
        ];
        // SAFETY: The arguments are strings that live, and a null pointer; both descriptors are
        // open.
        let child = unsafe { run_apart(&arguments, its, memory) };
        // SAFETY: `its` was opened above, and is not used after this.
        unsafe { libc::close(its) };
        let started = match child {
            Err(errno) => Err(refused(errno, "cannot create a process")),
            Ok(()) => {
                let_look(own);
                answer(own)
            }
        };
        // SAFETY: `own` was opened above, and no `Collector` has it if there was an error.
        started.map(|()| Self(own)).inspect_err(|_| unsafe {
            libc::close(own);
        })
    }
}

/// Runs a program as the child of a child that exits at once, so that the calling program notices
/// neither.
///
/// # Safety
///
/// `arguments` are NUL-terminated strings and a final null pointer.
// SAFETY: The section "Safety" above has the contract.
unsafe fn run_apart(
    arguments: &[*const c_char; 6],
    socket: c_int,
    memory: c_int,
) -> Result<(), c_int> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // Signals stay blocked, so that no handler of the program runs in the children. These make only
    // system calls.
    // SAFETY: All pointers refer to local variables. A child without flags shares no memory.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let child = libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0);
        if child == 0 {
            match libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) {
                0 => become_collector(arguments, socket, memory),
                -1 => fail(socket),
                _ => libc::_exit(0),
            }
        }
        let failed = errno();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        if child < 0 {
            return Err(failed);
        }
        // CAST: A process id fits in a pid_t.
        while libc::waitpid(child as libc::pid_t, ptr::null_mut(), libc::__WCLONE) < 0
            && errno() == libc::EINTR
        {}
    }
    Ok(())
}

/// Turns the calling process into the collector.
///
/// # Safety
///
/// `arguments` meet the requirements of [`run_apart`], and the process has no other use.
// SAFETY: The section "Safety" above has the contract.
unsafe fn become_collector(arguments: &[*const c_char; 6], socket: c_int, memory: c_int) -> ! {
    /// The lowest descriptor above those that the collector inherits.
    const ABOVE: c_int = 5;
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: The variable is local, and no other code of this process uses its descriptors.
    unsafe {
        // A new session, because a terminal's signals are for the program only.
        libc::setsid();
        let socket = libc::fcntl(socket, libc::F_DUPFD, ABOVE);
        let memory = libc::fcntl(memory, libc::F_DUPFD, ABOVE);
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for standard in 0..3 {
            libc::dup2(null, standard);
        }
        if libc::dup2(socket, SOCKET) < 0 || libc::dup2(memory, MEMORY) < 0 {
            fail(socket);
        }
        // Closes pipes: a process that waits for the end of one must not wait for the collector.
        libc::syscall(libc::SYS_close_range, ABOVE, u32::MAX, 0);
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
        // The C library may have cached the parent's process id.
        // CAST: A process id fits in an int.
        let number = libc::syscall(libc::SYS_getpid) as c_int;
        let length = size_of_val(&number);
        libc::send(
            SOCKET,
            (&raw const number).cast(),
            length,
            libc::MSG_NOSIGNAL,
        );
        libc::execvp(arguments[0], arguments.as_ptr());
        fail(SOCKET)
    }
}

/// Reports on the socket that a system call has failed, and exits.
///
/// # Safety
///
/// The calling process has no other use.
// SAFETY: The section "Safety" above has the contract.
unsafe fn fail(socket: c_int) -> ! {
    // CAST: An errno of Linux is at most 133.
    let code = [NOT_RUN, errno() as u8];
    // SAFETY: `code` is a local array.
    unsafe {
        libc::send(socket, code.as_ptr().cast(), code.len(), libc::MSG_NOSIGNAL);
        libc::_exit(1)
    }
}

/// Writes a number that is not negative to `digits` as a string.
fn decimal(mut number: c_int, digits: &mut [u8; 12]) -> &CStr {
    let mut first = digits.len() - 1;
    loop {
        first -= 1;
        // CAST: The remainder is below 10.
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return CStr::from_bytes_until_nul(&digits[first..]).unwrap_or_default();
        }
    }
}
