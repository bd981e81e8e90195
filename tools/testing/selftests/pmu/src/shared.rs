// SPDX-License-Identifier: GPL-2.0
//! Memory that is shared with the processes that are forked later.

use std::io;
use std::ptr;
use std::slice;

/// The smallest page size.
const PAGE: usize = 4096;

/// Returns a shared default value, which is never freed.
pub fn value<T: Default + Sync>() -> io::Result<&'static T> {
    values(1).map(|all| &all[0])
}

/// Returns `count` shared default values, which are never freed.
pub fn values<T: Default + Sync>(count: usize) -> io::Result<&'static [T]> {
    const { assert!(align_of::<T>() <= PAGE) };
    let bytes = size_of::<T>() * count;
    // SAFETY: This makes a new mapping at an address that the kernel chooses.
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
    // SAFETY: The mapping is large enough, aligned to a page, not yet used by other code, and never
    // unmapped.
    unsafe {
        (0..count).for_each(|n| first.add(n).write(T::default()));
        Ok(slice::from_raw_parts(first, count))
    }
}
