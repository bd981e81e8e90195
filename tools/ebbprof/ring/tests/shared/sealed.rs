// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of the memory: no program can remove pages from processes that have mapped it, but the
//! recorder can still free a slot's memory.

use std::io;
use std::mem::MaybeUninit;

use crate::memory::Memory;
use crate::memory::Random;
use ebbprof_ring::is_sealed;
use ebbprof_ring::size;
use ebbprof_ring::slot_offset;
use ebbprof_ring::slot_size;

const WORDS: u64 = 512;

fn status(fd: i32) -> libc::stat {
    let mut data = MaybeUninit::uninit();
    // SAFETY: `data` is read only if fstat() succeeds, which fills it in.
    unsafe {
        assert_eq!(libc::fstat(fd, data.as_mut_ptr()), 0);
        data.assume_init()
    }
}

/// Tries to change the file's length. Returns the error.
fn resize(fd: i32, length: usize) -> Option<i32> {
    // SAFETY: The call takes no pointer.
    let done = unsafe { libc::ftruncate(fd, length as libc::off_t) };
    (done != 0).then(|| io::Error::last_os_error().raw_os_error().unwrap())
}

#[test]
fn size_cannot_be_changed() {
    let memory = Memory::new(WORDS);
    assert!(is_sealed(memory.fd));
    assert_eq!(resize(memory.fd, 0), Some(libc::EPERM));
    assert_eq!(resize(memory.fd, size(WORDS) + 1), Some(libc::EPERM));
    assert_eq!(status(memory.fd).st_size as usize, size(WORDS));
    // A program cannot forbid others to write to it either.
    // SAFETY: The call takes no pointer.
    let sealed = unsafe { libc::fcntl(memory.fd, libc::F_ADD_SEALS, libc::F_SEAL_FUTURE_WRITE) };
    assert_eq!(sealed, -1);
}

/// With `vm.memfd_noexec` at 2, the kernel refuses all other files.
#[test]
fn file_is_not_executable_where_the_kernel_knows_that() {
    const MFD_NOEXEC_SEAL: libc::c_uint = 8;
    let memory = Memory::new(WORDS);
    // SAFETY: The name is a NUL-terminated string.
    let other = unsafe { libc::memfd_create(c"other".as_ptr(), MFD_NOEXEC_SEAL) };
    let is_known = other >= 0;
    if is_known {
        // SAFETY: `other` was opened above.
        unsafe { libc::close(other) };
    }
    assert_eq!(status(memory.fd).st_mode & 0o111 == 0, is_known);
}

#[test]
fn slot_can_be_given_back() {
    let memory = Memory::new(WORDS);
    memory.scribble(&mut Random::new(1), 1);
    let before = status(memory.fd).st_blocks;
    let flags = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let (offset, length) = (slot_offset(1, WORDS) as i64, slot_size(WORDS) as i64);
    // SAFETY: The call takes no pointer.
    let punched = unsafe { libc::fallocate(memory.fd, flags, offset, length) };
    assert_eq!(punched, 0);
    assert!(status(memory.fd).st_blocks < before);
}

#[test]
fn other_files_are_not_sealed() {
    let (mut pair, none) = ([-1; 2], -1);
    assert!(!is_sealed(none));
    // SAFETY: The array has room for two descriptors.
    let made = unsafe { libc::pipe(pair.as_mut_ptr()) };
    assert_eq!(made, 0);
    assert!(!is_sealed(pair[0]));
    // SAFETY: The name is a NUL-terminated string.
    let unsealed = unsafe { libc::memfd_create(c"ebbprof".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(unsealed >= 0 && !is_sealed(unsealed));
    for fd in [unsealed, pair[0], pair[1]] {
        // SAFETY: All three were opened above.
        unsafe { libc::close(fd) };
    }
}
