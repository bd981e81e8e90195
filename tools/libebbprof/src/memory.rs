// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory shared with `ebbprof`, as the program has it.
//!
//! All of it is mapped at once, though only the slots in use cost memory: so no descriptor stays
//! open, and the program may change its root, user and descriptors afterwards.

use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::Ordering::Release;

use ebbprof_ring::ALIGN;
use ebbprof_ring::Control;
use ebbprof_ring::FREE;
use ebbprof_ring::MAGIC;
use ebbprof_ring::SLOTS;
use ebbprof_ring::Slot;
use ebbprof_ring::TAKEN;
use ebbprof_ring::size;
use ebbprof_ring::slot_offset;
use ebbprof_ring::slot_size;

/// Of Linux 5.14, not in the libc crate for every C library.
const MADV_POPULATE_WRITE: libc::c_int = 23;

static CONTROL: AtomicPtr<Control> = AtomicPtr::new(ptr::null_mut());

/// The memory's head, once [`attach`] has found it.
pub(crate) fn control() -> Option<&'static Control> {
    // SAFETY: null, or what `attach` has mapped for good.
    unsafe { CONTROL.load(Acquire).as_ref() }
}

/// Maps the memory at `path`; tells whether it could.
pub(crate) fn attach(path: &CStr) -> bool {
    // SAFETY: a path that ends with 0.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 {
        return false;
    }
    let attached = map(fd, ALIGN).is_some_and(|head| {
        // SAFETY: the memory begins with it, and its file has at least `ALIGN` bytes or this is
        // none of `ebbprof`'s.
        let (magic, ring) = unsafe { ((*head).magic, (*head).ring) };
        // SAFETY: as mapped above.
        unsafe { libc::munmap(head.cast(), ALIGN) };
        let mapped = (magic == MAGIC).then(|| map(fd, size(ring))).flatten();
        mapped
            .inspect(|&head| CONTROL.store(head, Release))
            .is_some()
    });
    // SAFETY: it was opened here.
    unsafe { libc::close(fd) };
    attached
}

fn map(fd: libc::c_int, length: usize) -> Option<*mut Control> {
    let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping, where the kernel has room.
    let address = unsafe { libc::mmap(ptr::null_mut(), length, access, shared, fd, 0) };
    if address == libc::MAP_FAILED {
        return None;
    }
    // A core dump has no use for it.
    // SAFETY: of the mapping just made.
    unsafe { libc::madvise(address, length, libc::MADV_DONTDUMP) };
    Some(address.cast())
}

/// A slot that is this thread's, with its ring in memory: its number and address.
pub(crate) fn take(control: &'static Control) -> Option<(usize, *mut Slot)> {
    let free =
        |n: &usize| (control.states[*n].compare_exchange(FREE, TAKEN, Acquire, Relaxed)).is_ok();
    let Some(n) = (0..SLOTS).find(free) else {
        control.without.fetch_add(1, Relaxed);
        return None;
    };
    // CAST: below `SLOTS`.
    control.used.fetch_max(n as u32 + 1, Release);
    let slot = ptr::from_ref(control)
        .wrapping_byte_add(slot_offset(n, control.ring))
        .cast::<Slot>()
        .cast_mut();
    // SAFETY: the pages of the slot, which is this thread's.
    unsafe { libc::madvise(slot.cast(), slot_size(control.ring), MADV_POPULATE_WRITE) };
    Some((n, slot))
}
