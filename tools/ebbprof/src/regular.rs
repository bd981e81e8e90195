// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that others have named. To open a FIFO or a device is to do something to it, and a file that its
//! owner alone may read is not to be read on the word of another user.

use std::fs::File;
use std::fs::Metadata;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens the file at `path` to read it, if it is a regular one and `is_it` wants it. Anything else is
/// not opened, but looked at.
pub fn open(path: &Path, is_it: impl FnOnce(&Metadata) -> bool) -> Option<(File, Metadata)> {
    open_with(path, 0, is_it)
}

/// Opens a file as [`open`] does, unless `path` is a symbolic link.
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
    // The file that was looked at, whatever the path leads to now. No lease of another process is
    // waited for.
    let path = format!("/proc/self/fd/{}", place.as_raw_fd());
    let mut options = File::options();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path);
    Some((file.ok()?, data))
}

/// Returns whether this process may read what other users may not.
pub fn is_privileged() -> bool {
    // SAFETY: The call asks for a number.
    unsafe { libc::geteuid() == 0 }
}

/// Runs an action with the rights to files that all users have, if this thread may give up its own.
pub fn as_nobody<T>(action: impl FnOnce() -> Option<T>) -> Option<T> {
    /// The user and group that have no files.
    const NOBODY: u32 = 65534;
    // SAFETY: The calls take no pointers, or a list with its length. They change this thread only: the
    // C library's setgroups() would change all.
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
        // The calls return no error, but the identity before them.
        let holds = [libc::setfsuid(u32::MAX), libc::setfsgid(u32::MAX)];
        // CAST: The identities are u32 for the system.
        let done = holds.map(|id| id as u32) == [NOBODY; 2];
        let result = if done { action() } else { None };
        libc::setfsuid(libc::geteuid());
        libc::setfsgid(libc::getegid());
        libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr());
        // The kernel takes that away with each change, and programs that begin later could not open
        // the memory, whose path leads through this process, without CAP_SYS_PTRACE.
        if dumpable == 1 {
            libc::prctl(libc::PR_SET_DUMPABLE, 1);
        }
        result
    }
}
