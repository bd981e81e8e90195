// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creates the file of the shared memory.

use core::ffi::c_int;
use core::mem::MaybeUninit;

use crate::size;

/// Lowest number that descriptors are moved to, away from programs that expect the lowest numbers
/// to be free or close them: half of the numbers that a process has by default.
pub const LEAST_DESCRIPTOR: c_int = 512;

/// Seals of the memory: if another process could shorten the file, a process that has mapped it
/// would get SIGBUS. Punching holes remains possible.
const SEALS: c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Creates a file without a name for rings of `ring` words and seals its size. Returns its
/// descriptor, or errno.
///
/// The file is sparse, but the kernel applies the limit for the size of files (`ulimit -f`) to it,
/// and its signal would kill the program. So the limit is raised while the size is set.
///
/// # Errors
///
/// `EFBIG` if the limit is below the size and cannot be raised, else the errno of the system call.
pub fn create(ring: u64) -> Result<c_int, c_int> {
    let fd = move_up(create_empty()?);
    let made = resize(fd, size(ring)).and_then(|()| seal(fd));
    made.map(|()| fd).inspect_err(|_| {
        // SAFETY: `fd` was opened above, and no other code has its number.
        unsafe { libc::close(fd) };
    })
}

/// Creates the file, not executable if the kernel supports that (since Linux 6.3). With
/// `vm.memfd_noexec` at 2 the kernel refuses all others.
fn create_empty() -> Result<c_int, c_int> {
    /// The libc crate does not define it for every C library.
    const MFD_NOEXEC_SEAL: libc::c_uint = 8;
    let usual = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    for flags in [usual | MFD_NOEXEC_SEAL, usual] {
        // SAFETY: The name is a NUL-terminated string.
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

/// Returns whether the size of an open file is sealed, so that mapping it cannot cause SIGBUS.
#[must_use]
pub fn is_sealed(fd: c_int) -> bool {
    // SAFETY: The call takes a descriptor and a number, no pointer.
    let seals = unsafe { libc::fcntl(fd, libc::F_GET_SEALS) };
    seals >= 0 && seals & libc::F_SEAL_SHRINK != 0
}

/// Moves a descriptor to [`LEAST_DESCRIPTOR`] or above, if a number is free.
#[must_use]
pub fn move_up(fd: c_int) -> c_int {
    // SAFETY: The call takes no pointers.
    let moved = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, LEAST_DESCRIPTOR) };
    if moved < 0 {
        return fd;
    }
    // SAFETY: The caller has given up `fd`, which `moved` replaces.
    unsafe { libc::close(fd) };
    moved
}

fn resize(fd: c_int, size: usize) -> Result<(), c_int> {
    let mut before = MaybeUninit::uninit();
    // SAFETY: `before` is a local variable.
    if unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, before.as_mut_ptr()) } != 0 {
        return Err(errno());
    }
    // SAFETY: The call above has filled it in.
    let before = unsafe { before.assume_init() };
    // CAST: The size is some gigabytes.
    let (least, length) = (size as libc::rlim_t, size as libc::off_t);
    let within = before.rlim_cur >= least;
    if !within && !raise(least, before.rlim_max) {
        return Err(libc::EFBIG);
    }
    // SAFETY: The call takes no pointers.
    let result = match unsafe { libc::ftruncate(fd, length) } {
        0 => Ok(()),
        _ => Err(errno()),
    };
    if !within {
        // SAFETY: `before` is a local variable.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const before) };
    }
    result
}

/// Raises the limit for the size of files to `least`. Returns whether that succeeded.
fn raise(least: libc::rlim_t, most: libc::rlim_t) -> bool {
    let limit = libc::rlimit {
        rlim_cur: least,
        rlim_max: most.max(least),
    };
    // SAFETY: `limit` is a local variable.
    unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) == 0 }
}

fn errno() -> c_int {
    // SAFETY: The C library returns the address of this thread's errno.
    unsafe { *libc::__errno_location() }
}
