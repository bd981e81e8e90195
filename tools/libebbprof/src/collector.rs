// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that writes the file of a recording: `ebbprof collect`, found on the PATH.
//!
//! It is no child of the program's, which would find it by `wait`, and get SIGCHLD of it. Both
//! talk by a socket: a request is a byte, an answer two: what failed, and errno. Before the
//! first answer comes the process' number.

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

/// Requests.
pub(crate) const DUMP: u8 = b'd';
/// See [`DUMP`].
pub(crate) const STOP: u8 = b's';

/// What it is called with: socket and memory.
const SOCKET: c_int = 3;
const MEMORY: c_int = 4;

/// The socket to it.
pub(crate) struct Collector(c_int);

/// That of the recording.
static CURRENT: Kept = Kept::none();

pub(crate) fn set(collector: Collector) {
    CURRENT.set(collector.0);
}

/// Asks it for something, and waits until it is done.
pub(crate) fn ask(request: u8) -> Result<(), Error> {
    let Some(socket) = CURRENT.get() else {
        return Err(refused(
            libc::EBADF,
            "the program has closed the socket to the process that writes the file, which ends there",
        ));
    };
    // SAFETY: a byte that lives.
    let sent = unsafe { libc::send(socket, (&raw const request).cast(), 1, libc::MSG_NOSIGNAL) };
    if let Some(control) = memory::control() {
        memory::ask(control);
    }
    match sent {
        1 => answer(socket),
        _ => Err(ended()),
    }
}

/// Closes the socket; tells whether the program had not done so.
pub(crate) fn end() -> bool {
    CURRENT.close()
}

fn ended() -> Error {
    refused(libc::EPIPE, "the process that writes the file has ended")
}

fn answer(socket: c_int) -> Result<(), Error> {
    let mut code = [0_u8; 2];
    // SAFETY: the buffer has the bytes.
    let read = unsafe { receive(socket, code.as_mut_ptr().cast(), code.len(), 0) };
    match (read, code) {
        (2, [0, 0]) => Ok(()),
        (2, [NOT_RUN, errno]) => Err(refused(
            errno.into(),
            "ebbprof cannot be run: it is looked for on the PATH",
        )),
        (2, [OTHER, errno]) => Err(refused(
            errno.into(),
            "ebbprof, which is looked for on the PATH, is of another version than this library",
        )),
        (2, [_, errno]) => Err(refused(errno.into(), "the file cannot be written")),
        _ => Err(ended()),
    }
}

/// Lets it look at this process' events, which it may where it could trace it: where Yama forbids that,
/// a process says who may. Its first word is its number.
fn let_look(socket: c_int) {
    let mut number: c_int = 0;
    let length = size_of_val(&number);
    // SAFETY: the variable has the bytes. A shorter message is the answer, and stays there.
    unsafe {
        let flags = libc::MSG_PEEK;
        // CAST: 4.
        if receive(socket, (&raw mut number).cast(), length, flags) == length as isize {
            libc::recv(socket, (&raw mut number).cast(), length, 0);
            // CAST: positive.
            libc::prctl(libc::PR_SET_PTRACER, number as libc::c_ulong, 0, 0, 0);
        }
    }
}

/// `recv`, again where a signal has come.
///
/// # Safety
///
/// As that.
unsafe fn receive(socket: c_int, buffer: *mut libc::c_void, length: usize, flags: c_int) -> isize {
    loop {
        // SAFETY: the caller's contract.
        let read = unsafe { libc::recv(socket, buffer, length, flags) };
        if read >= 0 || errno() != libc::EINTR {
            return read;
        }
    }
}

/// First byte of an answer: it could not be run. The second is an errno.
const NOT_RUN: u8 = 2;
/// See [`NOT_RUN`]: it does not know such a memory.
const OTHER: u8 = 3;

impl Collector {
    /// Has it write what the memory gets to `file`.
    pub(crate) fn start(memory: c_int, file: &CStr) -> Result<Self, Error> {
        let mut pair = [-1; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: the array lives.
        if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) } != 0 {
            return Err(refused(errno(), "there is no socket"));
        }
        let [own, its] = pair;
        let own = ebbprof_ring::move_up(own);
        let mut digits = [0; 12];
        // SAFETY: asks for a number.
        let process = decimal(unsafe { libc::getpid() }, &mut digits);
        let arguments = [
            c"ebbprof".as_ptr(),
            c"collect".as_ptr(),
            process.as_ptr(),
            c"--".as_ptr(),
            file.as_ptr(),
            ptr::null(),
        ];
        // SAFETY: strings that live, and a null; descriptors that are open.
        let child = unsafe { run_apart(&arguments, its, memory) };
        // SAFETY: opened above.
        unsafe { libc::close(its) };
        let started = match child {
            Err(errno) => Err(refused(errno, "there can be no other process")),
            Ok(()) => {
                let_look(own);
                answer(own)
            }
        };
        // SAFETY: as before.
        started.map(|()| Self(own)).inspect_err(|_| unsafe {
            libc::close(own);
        })
    }
}

/// Runs a program as the child of a child that ends at once, neither of which is heard of.
///
/// # Safety
///
/// `arguments` are strings, and end with a null pointer.
// SAFETY: the contract above.
unsafe fn run_apart(
    arguments: &[*const c_char; 6],
    socket: c_int,
    memory: c_int,
) -> Result<(), c_int> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // No handler of the program's runs in the children, which call nothing but the system.
    // SAFETY: the variables live; a child without an exit signal shares nothing.
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
        // CAST: a process' number.
        while libc::waitpid(child as libc::pid_t, ptr::null_mut(), libc::__WCLONE) < 0
            && errno() == libc::EINTR
        {}
    }
    Ok(())
}

/// # Safety
///
/// As [`run_apart`]; in a process of its own.
// SAFETY: the contract above.
unsafe fn become_collector(arguments: &[*const c_char; 6], socket: c_int, memory: c_int) -> ! {
    /// Above those that it gets.
    const ABOVE: c_int = 5;
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the variable lives; descriptors may be closed here as one likes.
    unsafe {
        // A terminal's signals are for the program.
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
        // Who waits for the end of a pipe is not to wait for this process.
        libc::syscall(libc::SYS_close_range, ABOVE, u32::MAX, 0);
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
        // The C library's number may be the parent's.
        // CAST: a process' number.
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

/// Says on the socket that a system call has failed.
///
/// # Safety
///
/// In a process of its own.
// SAFETY: the contract above.
unsafe fn fail(socket: c_int) -> ! {
    // CAST: of Linux, below 134.
    let code = [NOT_RUN, errno() as u8];
    // SAFETY: the array lives.
    unsafe {
        libc::send(socket, code.as_ptr().cast(), code.len(), libc::MSG_NOSIGNAL);
        libc::_exit(1)
    }
}

/// A number that is not negative, in `digits`.
fn decimal(mut number: c_int, digits: &mut [u8; 12]) -> &CStr {
    let mut first = digits.len() - 1;
    loop {
        first -= 1;
        // CAST: below 10.
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return CStr::from_bytes_until_nul(&digits[first..]).unwrap_or_default();
        }
    }
}
