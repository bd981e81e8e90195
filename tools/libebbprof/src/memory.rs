// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory shared with `ebbprof`, as the program has it.
//!
//! What a program has mapped counts for its limits (`ulimit -v`, mlockall): that is the head, and of
//! each sampled thread its slot. No descriptor stays open, and the program may change its root, user
//! and descriptors afterwards: the head's mapping is what the others are made from.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::Ordering::Release;

use ebb::spr;
use ebbprof_ring::ALIGN;
use ebbprof_ring::Control;
use ebbprof_ring::ENDED;
use ebbprof_ring::FREE;
use ebbprof_ring::MAGIC;
use ebbprof_ring::MOST_FRAMES;
use ebbprof_ring::PARKED;
use ebbprof_ring::SLOTS;
use ebbprof_ring::Slot;
use ebbprof_ring::TAKEN;
use ebbprof_ring::TEXT;
use ebbprof_ring::slot_offset;
use ebbprof_ring::slot_size;

/// Of Linux 5.14, not in the libc crate for every C library.
const MADV_POPULATE_WRITE: libc::c_int = 23;

static CONTROL: AtomicPtr<Control> = AtomicPtr::new(ptr::null_mut());

/// The memory's head, once it was found or made.
pub(crate) fn control() -> Option<&'static Control> {
    // SAFETY: null, or mapped for good.
    unsafe { CONTROL.load(Acquire).as_ref() }
}

/// Has the memory at `head`, which stays mapped.
pub(crate) fn set(head: *mut Control) {
    CONTROL.store(head, Release);
}

/// Has none, for the child of a fork; it stays mapped.
pub(crate) fn forget() {
    CONTROL.store(ptr::null_mut(), Release);
}

/// Makes the memory, of rings with so many words; its descriptor, which `ebbprof` gets, or errno.
pub(crate) fn create(ring: u64) -> Result<libc::c_int, libc::c_int> {
    let fd = ebbprof_ring::create(ring)?;
    match map(fd) {
        Some(head) => {
            // SAFETY: mapped, and nobody else has it yet.
            unsafe { (*head).ring = ring };
            set(head);
            Ok(fd)
        }
        None => {
            let errno = errno();
            // SAFETY: it was opened just now.
            unsafe { libc::close(fd) };
            Err(errno)
        }
    }
}

/// What a recording samples.
pub(crate) struct Wanted<'a> {
    pub(crate) event: &'a CStr,
    pub(crate) period: u64,
    pub(crate) callers: bool,
}

/// Writes to the memory what is sampled from now on. Its name is cut where there is no room.
///
/// # Safety
///
/// [`create`] has made it, and no thread is sampled.
pub(crate) unsafe fn begin(wanted: &Wanted<'_>) {
    let control = CONTROL.load(Acquire);
    let mut event = [0; TEXT];
    let name = wanted.event.to_bytes().iter().take(TEXT - 1);
    event
        .iter_mut()
        .zip(name)
        .for_each(|(to, &from)| *to = from);
    // SAFETY: the caller's contract.
    unsafe {
        (*control).event = event;
        (*control).period = wanted.period;
        (*control).frames = if wanted.callers { MOST_FRAMES } else { 0 };
        (*control).branches = 0;
        (*control).start = AtomicU64::new(spr::read::<{ spr::TB }>());
        (*control).stop = AtomicU32::new(0);
        (*control).namespace = namespace();
        (*control).magic = MAGIC;
    }
}

/// The PID namespace of this process, or 0 where there is no /proc.
fn namespace() -> u64 {
    let mut data = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a string; the call fills in what is read if it succeeds.
    unsafe {
        match libc::stat(c"/proc/self/ns/pid".as_ptr(), data.as_mut_ptr()) {
            0 => (*data.as_ptr()).st_ino,
            _ => 0,
        }
    }
}

/// Whether this process has another number than `ebbprof` knows it by, which is then told.
pub(crate) fn is_foreign(control: &Control) -> bool {
    // 0: not known, as without /proc.
    let (own, others) = (namespace(), control.namespace);
    let foreign = own != 0 && others != 0 && own != others;
    control.foreign.fetch_add(foreign.into(), Relaxed);
    foreign
}

/// The errno of the call that failed last.
pub(crate) fn errno() -> libc::c_int {
    // SAFETY: the C library gives the address of this thread's.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(errno: libc::c_int) {
    // SAFETY: as before.
    unsafe { *libc::__errno_location() = errno };
}

/// Maps what the memory begins with.
pub(crate) fn map(fd: libc::c_int) -> Option<*mut Control> {
    let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping, where the kernel has room.
    let address = unsafe { libc::mmap(ptr::null_mut(), ALIGN, access, shared, fd, 0) };
    if address == libc::MAP_FAILED {
        return None;
    }
    // A core dump has no use for it, nor for the slots, which inherit this.
    // SAFETY: of the mapping just made.
    unsafe { libc::madvise(address, ALIGN, libc::MADV_DONTDUMP) };
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
    let Some(slot) = map_slot(control, n) else {
        control.states[n].store(FREE, Release);
        control.without.fetch_add(1, Relaxed);
        return None;
    };
    Some((n, slot))
}

/// Maps a slot: all that is before it, too, and unmaps that.
fn map_slot(control: &Control, n: usize) -> Option<*mut Slot> {
    let (before, size) = (slot_offset(n, control.ring), slot_size(control.ring));
    let head = ptr::from_ref(control).cast_mut().cast::<libc::c_void>();
    // SAFETY: the head stays where it is: of a shared mapping whose old length is 0, a second one is
    // made. The system finds a place for that.
    let all = unsafe {
        // Of a locked one, all would be in memory.
        libc::munlock(head, ALIGN);
        libc::mremap(head, 0, before + size, libc::MREMAP_MAYMOVE)
    };
    if all == libc::MAP_FAILED {
        return None;
    }
    let slot = all.wrapping_byte_add(before);
    // SAFETY: of the mapping just made.
    unsafe {
        libc::munmap(all, before);
        // First: by these the recorder frees it if the thread is killed in the middle.
        let slot = &*slot.cast::<Slot>();
        // CAST: ids are positive.
        slot.tid
            .store(libc::syscall(libc::SYS_gettid) as u32, Relaxed);
        slot.pid.store(libc::getpid() as u32, Relaxed);
        libc::madvise(
            ptr::from_ref(slot).cast_mut().cast(),
            size,
            MADV_POPULATE_WRITE,
        );
    }
    Some(slot.cast())
}

/// Marks a slot of [`take`] as ended, and unmaps it.
///
/// # Safety
///
/// Nobody in this process writes to it any more, and none of its threads parks it from here on.
pub(crate) unsafe fn give_back(control: &Control, n: usize, slot: *mut Slot) {
    let state = &control.states[n];
    // Nobody waits for a slot that is parked, and nobody empties it: whoever takes it next is not the
    // dead thread whose numbers it has.
    if state.load(Relaxed) == PARKED {
        // SAFETY: the slot is mapped until the end of this function.
        let slot = unsafe { &*slot };
        slot.tid.store(0, Relaxed);
        slot.pid.store(0, Relaxed);
        state.store(FREE, Release);
    } else {
        state.store(ENDED, Release);
    }
    // SAFETY: the caller's contract.
    unsafe { unmap(control, slot) };
}

/// Unmaps a slot of [`take`].
///
/// # Safety
///
/// Nobody in this process writes to it any more.
pub(crate) unsafe fn unmap(control: &Control, slot: *mut Slot) {
    // SAFETY: the caller's contract.
    unsafe { libc::munmap(slot.cast(), slot_size(control.ring)) };
}
