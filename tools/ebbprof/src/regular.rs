// SPDX-License-Identifier: MIT OR Apache-2.0
//! Safe opening of files that other processes have named. Opening a FIFO or a device can have side
//! effects, and a file that only its owner may read must not be read on behalf of another user.

use std::fs::File;
use std::fs::Metadata;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens the file at `path` for reading, if it is a regular file for which `is_it` returns `true`.
/// Other files are only examined, not opened.
pub fn open(path: &Path, is_it: impl FnOnce(&Metadata) -> bool) -> Option<(File, Metadata)> {
    open_with(path, 0, is_it)
}

/// Opens a file like [`open`], unless `path` is a symbolic link.
pub fn open_no_link(
    path: &Path,
    is_it: impl FnOnce(&Metadata) -> bool,
) -> Option<(File, Metadata)> {
    open_with(path, libc::O_NOFOLLOW, is_it)
}

fn open_with(
    path: &Path,
    flags: libc::c_int,
    is_it: impl FnOnce(&Metadata) -> bool,
) -> Option<(File, Metadata)> {
    let mut options = File::options();
    let place = options.read(true).custom_flags(libc::O_PATH | flags);
    let place = place.open(path).ok()?;
    let data = place.metadata().ok()?;
    if !data.is_file() || !is_it(&data) {
        return None;
    }
    // Opens the file that was examined, whatever the path leads to now. O_NONBLOCK: does not wait
    // for a lease of another process.
    let path = format!("/proc/self/fd/{}", place.as_raw_fd());
    let mut options = File::options();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path);
    Some((file.ok()?, data))
}

/// Returns whether this process may read files that other users may not.
pub fn is_privileged() -> bool {
    // SAFETY: The call takes no pointers.
    unsafe { libc::geteuid() == 0 }
}

/// Runs an action with the access rights that all users have, if this thread may give up its own.
pub fn as_nobody<T>(action: impl FnOnce() -> Option<T>) -> Option<T> {
    /// User and group id that own no files.
    const NOBODY: u32 = 65534;
    // SAFETY: The calls take no pointers, or a list with its length. They change only this thread:
    // the C library's setgroups() would change all threads.
    unsafe {
        let count = libc::getgroups(0, std::ptr::null_mut());
        let mut groups = vec![0; usize::try_from(count).ok()?];
        if libc::getgroups(count, groups.as_mut_ptr()) != count
            || libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) != 0
        {
            return None;
        }
        let dumpable = libc::prctl(libc::PR_GET_DUMPABLE);
        libc::setfsgid(NOBODY);
        libc::setfsuid(NOBODY);
        // The calls return no error, but the previous identity, so their effect is checked.
        let holds = [libc::setfsuid(u32::MAX), libc::setfsgid(u32::MAX)];
        // CAST: The kernel's user and group ids are u32.
        let done = holds.map(|id| id as u32) == [NOBODY; 2];
        let result = if done { action() } else { None };
        libc::setfsuid(libc::geteuid());
        libc::setfsgid(libc::getegid());
        libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr());
        // Each change of the identity makes the process not dumpable. Programs that begin later
        // could then not open the memory without CAP_SYS_PTRACE, because its path leads through
        // this process.
        if dumpable == 1 {
            libc::prctl(libc::PR_SET_DUMPABLE, 1);
        }
        result
    }
}
