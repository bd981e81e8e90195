// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a Rust library needs that has no standard library: memory, and an end.

use core::alloc::GlobalAlloc;
use core::alloc::Layout;
use core::panic::PanicInfo;

/// The C library's memory.
struct Malloc;

#[global_allocator]
static MALLOC: Malloc = Malloc;

// SAFETY: malloc gives memory of the size, aligned for any scalar; nothing here needs more.
unsafe impl GlobalAlloc for Malloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > 16 {
            return core::ptr::null_mut();
        }
        // SAFETY: a call of the C library.
        unsafe { libc::malloc(layout.size()) }.cast()
    }

    unsafe fn dealloc(&self, memory: *mut u8, _: Layout) {
        // SAFETY: of `alloc`.
        unsafe { libc::free(memory.cast()) };
    }
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // SAFETY: a call of the C library.
    unsafe { libc::abort() }
}
