// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of a slot that its thread writes, except samples and mappings.

use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::Ordering::Release;

use ebb::Error;
use ebb::Session;
use ebb::spr;
use ebbprof_ring::Control;
use ebbprof_ring::MOST_FRAMES;
use ebbprof_ring::Slot;
use ebbprof_ring::THREAD;

use crate::handler::Ring;
use crate::maps;

/// Writes which event takes the samples, so that `ebbprof` can resume it after another event has
/// had the PMU.
///
/// # Safety
///
/// `slot` belongs to the calling thread.
pub(crate) unsafe fn publish(slot: *mut Slot, session: &Session) {
    /// `PERF_EVENT_IOC_ID`.
    const ID: libc::c_ulong = 0x4008_2407;
    let (descriptor, mut id) = (session.descriptor(), 0_u64);
    // SAFETY: The kernel stores to `id` only, and the caller guarantees that the slot is mapped.
    unsafe {
        if libc::ioctl(descriptor, ID, &raw mut id) == 0 {
            (*slot).event.store(id, Relaxed);
            // CAST: The descriptor of an open event is not negative.
            (*slot).descriptor.store(descriptor as u32 + 1, Release);
        }
    }
}

/// Empties the ring.
pub(crate) fn clear(ring: &Ring) {
    let slot = ring.slot();
    let shared = [&slot.written.head, &slot.written.lost, &slot.tail];
    for zero in [&ring.head, &ring.limit, &ring.lost]
        .into_iter()
        .chain(shared)
    {
        zero.store(0, Relaxed);
    }
}

/// Initialises the calling thread's slot, without samples, and describes the thread in it.
pub(crate) fn describe(ring: &Ring, control: &Control, origin: u32) {
    clear(ring);
    // SAFETY: It is a field of the memory's head, and any bits are a valid number.
    let frames = unsafe { (&raw const control.frames).read_volatile() }.min(MOST_FRAMES);
    let (stack, size) = if frames == 0 { (0, 0) } else { stack() };
    ring.frames.store(frames, Relaxed);
    ring.stack.store(stack, Relaxed);
    ring.stack_size.store(size, Relaxed);
    let (slot, s) = (ring.slot, ring.slot());
    // SAFETY: The slot is mapped as long as `ring` lives, and the calls take no pointers.
    unsafe {
        s.begin.store(spr::read::<{ spr::TB }>(), Relaxed);
        s.refused.store(0, Relaxed);
        s.descriptor.store(0, Relaxed);
        s.end.store(0, Relaxed);
        s.maps_read.store(0, Relaxed);
        s.maps_late.store(0, Relaxed);
        s.ceased.store(0, Relaxed);
        s.origin.store(origin, Relaxed);
        // CAST: The kernel numbers processes and threads from 1.
        s.pid.store(libc::getpid() as u32, Relaxed);
        s.parent.store(libc::getppid() as u32, Relaxed);
        s.tid.store(libc::syscall(libc::SYS_gettid) as u32, Relaxed);
        write_name(slot);
        if origin == THREAD {
            s.maps_version.store(0, Relaxed);
        } else {
            maps::write(slot);
        }
    }
}

/// Writes the calling thread's name, which it may have changed.
///
/// # Safety
///
/// `slot` belongs to the calling thread.
// SAFETY: The section "Safety" above has the contract.
pub(crate) unsafe fn write_name(slot: *mut Slot) {
    // SAFETY: The call writes 16 bytes, which the field has.
    unsafe { libc::prctl(libc::PR_GET_NAME, &raw mut (*slot).name) };
}

/// Returns the calling thread's stack: its lowest address, and the size of the part in which a
/// frame may begin.
fn stack() -> (u64, u64) {
    /// Size of the smallest frame in bytes.
    const FRAME: usize = 32;
    let mut attr = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut address, mut size) = (ptr::null_mut(), 0);
    // SAFETY: The first call fills in the attributes that the others use.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attr.as_mut_ptr()) == 0 {
            libc::pthread_attr_getstack(attr.as_ptr(), &mut address, &mut size);
            libc::pthread_attr_destroy(attr.as_mut_ptr());
        }
    }
    // CAST: A usize has 64 bits on POWER.
    let size = size.saturating_sub(FRAME) as u64;
    (address.expose_provenance() as u64, size)
}

/// Records why the thread is not sampled.
///
/// # Safety
///
/// `slot` belongs to the calling thread.
pub(crate) unsafe fn refuse(slot: *mut Slot, error: &Error) {
    let reason = error.reason().as_bytes();
    // SAFETY: The caller guarantees that the slot is mapped, and `length` bytes fit in the field.
    unsafe {
        let text = &raw mut (*slot).reason;
        let length = reason.len().min(size_of_val(&*text));
        ptr::copy_nonoverlapping(reason.as_ptr(), text.cast(), length);
        // CAST: The length is at most `TEXT`.
        (*slot).refused.store(length as u32, Release);
    }
}
