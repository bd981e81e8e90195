// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the file of the memory.

use core::ffi::c_int;
use core::mem::MaybeUninit;

use crate::size;

/// Where descriptors are moved to, out of the way of programs that count on the lowest numbers or
/// close them: half of the numbers that a process has by default.
pub const LEAST_DESCRIPTOR: c_int = 512;

/// Seals of the memory: a process that has it mapped would get SIGBUS where another one makes the
/// file shorter. Holes can still be punched.
const SEALS: c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Creates a file without a name for rings of `ring` words and seals its size. Returns its
/// descriptor, or errno.
///
/// The file is sparse, but the system takes its size for that of a file on a disk: it is made
/// without the limit for those (`ulimit -f`), whose signal would end the program.
///
/// # Errors
///
/// `EFBIG` where the limit is below the size and cannot be raised, else what the system has.
pub fn create(ring: u64) -> Result<c_int, c_int> {
    let fd = move_up(create_empty()?);
    let made = resize(fd, size(ring)).and_then(|()| seal(fd));
    made.map(|()| fd).inspect_err(|_| {
        // SAFETY: `fd` was opened above, and no other code has its number.
        unsafe { libc::close(fd) };
    })
}

/// Creates the file, not executable where the kernel knows such files (since Linux 6.3). With
/// `vm.memfd_noexec` at 2 it refuses all others.
fn create_empty() -> Result<c_int, c_int> {
    /// Not in the libc crate for every C library.
    const MFD_NOEXEC_SEAL: libc::c_uint = 8;
    let usual = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    for flags in [usual | MFD_NOEXEC_SEAL, usual] {
        // SAFETY: the name is a string that ends with 0.
        let fd = unsafe { libc::memfd_create(c"ebbprof".as_ptr(), flags) };
        if fd >= 0 {
            return Ok(fd);
        }
        // An older kernel does not know the flag.
        if errno() != libc::EINVAL {
            break;
        }
    }
    Err(errno())
}

fn seal(fd: c_int) -> Result<(), c_int> {
    // SAFETY: The call takes a descriptor and a number, no pointer.
    match unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) } {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

/// Returns whether the size of an open file is sealed, so that it can be mapped without a fear of
/// SIGBUS.
#[must_use]
pub fn is_sealed(fd: c_int) -> bool {
    // SAFETY: The call takes a descriptor and a number, no pointer.
    let seals = unsafe { libc::fcntl(fd, libc::F_GET_SEALS) };
    seals >= 0 && seals & libc::F_SEAL_SHRINK != 0
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
