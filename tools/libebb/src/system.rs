// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of a Rust library that the standard library usually has: an allocator and a panic
//! handler.

use core::alloc::GlobalAlloc;
use core::alloc::Layout;
use core::panic::PanicInfo;

/// The C library's allocator.
struct Malloc;

#[global_allocator]
static MALLOC: Malloc = Malloc;

// SAFETY: malloc() returns memory of the given size, aligned to 16 bytes; `alloc` refuses more.
unsafe impl GlobalAlloc for Malloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > 16 {
            return core::ptr::null_mut();
        }
        // SAFETY: The call takes any size.
        unsafe { libc::malloc(layout.size()) }.cast()
    }

    unsafe fn dealloc(&self, memory: *mut u8, _: Layout) {
        // SAFETY: `memory` was returned by `alloc`, which used malloc().
        unsafe { libc::free(memory.cast()) };
    }
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // SAFETY: The call takes no pointers.
    unsafe { libc::abort() }
}
