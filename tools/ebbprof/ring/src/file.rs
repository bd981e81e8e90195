// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the file of the memory.

use core::ffi::c_int;
use core::mem::MaybeUninit;

use crate::size;

/// Where descriptors are moved to, out of the way of programs that count on the lowest numbers or
/// close them: half of the numbers that a process has by default.
pub const LEAST_DESCRIPTOR: c_int = 512;

/// Makes a file without a name for rings of `ring` words; its descriptor, or errno.
///
/// The file is sparse, but the system takes its size for that of a file on a disk: it is made
/// without the limit for those (`ulimit -f`), whose signal would end the program.
///
/// # Errors
///
/// `EFBIG` where the limit is below the size and cannot be raised, else what the system has.
pub fn create(ring: u64) -> Result<c_int, c_int> {
    // SAFETY: a string.
    let fd = unsafe { libc::memfd_create(c"ebbprof".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(errno());
    }
    let fd = move_up(fd);
    resize(fd, size(ring)).map(|()| fd).inspect_err(|_| {
        // SAFETY: it was opened here.
        unsafe { libc::close(fd) };
    })
}

/// Moves a descriptor to [`LEAST_DESCRIPTOR`] or above, if there is room.
#[must_use]
pub fn move_up(fd: c_int) -> c_int {
    // SAFETY: without pointers.
    let moved = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, LEAST_DESCRIPTOR) };
    if moved < 0 {
        return fd;
    }
    // SAFETY: nobody has it any more.
    unsafe { libc::close(fd) };
    moved
}

fn resize(fd: c_int, size: usize) -> Result<(), c_int> {
    let mut before = MaybeUninit::uninit();
    // SAFETY: the variable lives.
    if unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, before.as_mut_ptr()) } != 0 {
        return Err(errno());
    }
    // SAFETY: filled in above.
    let before = unsafe { before.assume_init() };
    // CAST: some gigabytes.
    let (least, length) = (size as libc::rlim_t, size as libc::off_t);
    let within = before.rlim_cur >= least;
    if !within && !raise(least, before.rlim_max) {
        return Err(libc::EFBIG);
    }
    // SAFETY: without pointers.
    let result = match unsafe { libc::ftruncate(fd, length) } {
        0 => Ok(()),
        _ => Err(errno()),
    };
    if !within {
        // SAFETY: a limit that lives.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const before) };
    }
    result
}

/// Raises the limit of a file's size to `least`, which is above it.
fn raise(least: libc::rlim_t, most: libc::rlim_t) -> bool {
    let limit = libc::rlimit {
        rlim_cur: least,
        rlim_max: most.max(least),
    };
    // SAFETY: a limit that lives.
    unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) == 0 }
}

fn errno() -> c_int {
    // SAFETY: the C library gives the address of this thread's.
    unsafe { *libc::__errno_location() }
}
