// SPDX-License-Identifier: GPL-2.0
//! Memory that processes share which are forked from now on.

use std::io;
use std::ptr;
use std::slice;

/// A page of the smallest kind.
const PAGE: usize = 4096;

/// A default value, which stays as long as the process.
pub fn value<T: Default + Sync>() -> io::Result<&'static T> {
    values(1).map(|all| &all[0])
}

/// `count` default values, which stay as long as the process.
pub fn values<T: Default + Sync>(count: usize) -> io::Result<&'static [T]> {
    const { assert!(align_of::<T>() <= PAGE) };
    let bytes = size_of::<T>() * count;
    // SAFETY: a new mapping.
    let memory = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes.max(PAGE),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let first = memory.cast::<T>();
    // SAFETY: the mapping is large enough, and aligned to a page; nobody else has it yet, and it stays.
    unsafe {
        (0..count).for_each(|n| first.add(n).write(T::default()));
        Ok(slice::from_raw_parts(first, count))
    }
}
