// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks which processes and threads exist.

use std::io;

use crate::perfdata::Thread;

/// Returns whether the thread exists.
pub fn is_alive(thread: Thread) -> bool {
    // SAFETY: Signal 0 only checks that the thread exists.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, thread.pid, thread.tid, 0) };
    sent == 0 || !is_missing()
}

/// Returns whether the process `pid` exists, zombies included.
pub fn exists(pid: u32) -> bool {
    // CAST: A process id fits in a pid_t.
    // SAFETY: Signal 0 only checks that the process exists.
    let sent = unsafe { libc::kill(pid as libc::pid_t, 0) };
    sent == 0 || !is_missing()
}

/// Returns whether the last call failed because the target does not exist.
fn is_missing() -> bool {
    io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}
