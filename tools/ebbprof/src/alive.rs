// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which processes and threads the system has.

use std::io;

use crate::perfdata::Thread;

/// Whether there is such a thread.
pub fn is_alive(thread: Thread) -> bool {
    // SAFETY: sends nothing.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, thread.pid, thread.tid, 0) };
    sent == 0 || !is_missing()
}

/// Whether there is a process of this number, were it one that nobody has waited for.
pub fn exists(pid: u32) -> bool {
    // CAST: a process' number.
    // SAFETY: sends nothing.
    let sent = unsafe { libc::kill(pid as libc::pid_t, 0) };
    sent == 0 || !is_missing()
}

/// Whether the call that failed just now has found nobody.
fn is_missing() -> bool {
    io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}
