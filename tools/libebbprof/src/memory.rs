// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory shared with `ebbprof`, as the program has it.
//!
//! What a program has mapped counts for its limits (`ulimit -v`, mlockall): that is the head, and of
//! each sampled thread its slot. No descriptor stays open, and the program may change its root, user
//! and descriptors afterwards: the head's mapping is what the others are made from.
//!
//! Other processes of the recording can write to all of it, at any time. So no address and no size of
//! a mapping is read there, except once ([`attach`]), and what else is read may be anything.

use alloc::boxed::Box;
use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::Ordering::Release;

use ebb::Error;
use ebb::spr;
use ebbprof_ring::ALIGN;
use ebbprof_ring::Control;
use ebbprof_ring::ENDED;
use ebbprof_ring::FREE;
use ebbprof_ring::MAGIC;
use ebbprof_ring::MOST_BRANCHES;
use ebbprof_ring::MOST_FRAMES;
use ebbprof_ring::OVERHANG;
use ebbprof_ring::PARKED;
use ebbprof_ring::SAMPLE;
use ebbprof_ring::SLOTS;
use ebbprof_ring::Slot;
use ebbprof_ring::TAKEN;
use ebbprof_ring::TEXT;
use ebbprof_ring::futex;
#[cfg(not(feature = "wrap"))]
use ebbprof_ring::size;
use ebbprof_ring::slot_offset;
use ebbprof_ring::slot_size;
use libc::EINVAL;

use crate::handler::Ring;

/// Of Linux 5.14, not in the libc crate for every C library.
const MADV_POPULATE_WRITE: libc::c_int = 23;

static CONTROL: AtomicPtr<Control> = AtomicPtr::new(ptr::null_mut());
/// Words of a ring of that memory, as they were when it was found or made.
static WORDS: AtomicU64 = AtomicU64::new(0);

/// The memory's head, once it was found or made.
pub(crate) fn control() -> Option<&'static Control> {
    // SAFETY: null, or mapped for good.
    unsafe { CONTROL.load(Acquire).as_ref() }
}

/// Makes the memory at `head`, which stays mapped, that of this process; its rings have so many words.
fn set(head: *mut Control, words: u64) {
    WORDS.store(words, Relaxed);
    CONTROL.store(head, Release);
}

/// Has none, for the child of a fork; it stays mapped.
pub(crate) fn forget() {
    CONTROL.store(ptr::null_mut(), Release);
}

/// Asks `ebbprof` to read the rings now.
pub(crate) fn ask(control: &Control) {
    control.asked.fetch_add(1, Release);
    futex::wake(&control.asked);
}

/// Makes the memory, of rings with so many words; its descriptor, which `ebbprof` gets, or errno.
pub(crate) fn create(ring: u64) -> Result<libc::c_int, libc::c_int> {
    let fd = ebbprof_ring::create(ring)?;
    match map(fd) {
        Some(head) => {
            // SAFETY: mapped, and nobody else has it yet.
            unsafe { (*head).ring = ring };
            set(head, ring);
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
    // SAFETY: a field of the memory's head, of which any bits are a number.
    let others = unsafe { (&raw const control.namespace).read_volatile() };
    let own = namespace();
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

/// Maps the memory at `path`. Returns whether it could.
#[cfg(not(feature = "wrap"))]
pub(crate) fn attach(path: &CStr) -> bool {
    // SAFETY: The path is a string that ends with 0.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 {
        return false;
    }
    let head = (file_size(fd) >= ALIGN as u64).then(|| map(fd));
    let attached = head.flatten().is_some_and(|head| {
        // SAFETY: the memory begins with it, and its file has at least `ALIGN` bytes.
        let (magic, ring) = unsafe {
            (
                (&raw const (*head).magic).read_volatile(),
                (&raw const (*head).ring).read_volatile(),
            )
        };
        if ebbprof_ring::is_other_version(magic) {
            // SAFETY: As before; the field is an atomic, which other processes may change.
            unsafe { (*head).others.fetch_add(1, Relaxed) };
        }
        let sound = magic == MAGIC
            && ring.is_power_of_two()
            && (OVERHANG..=MOST_WORDS).contains(&ring)
            && file_size(fd) >= size(ring) as u64;
        match sound {
            true => set(head, ring),
            // SAFETY: `map` has just mapped it, and no code has its address.
            false => unsafe {
                libc::munmap(head.cast(), ALIGN);
            },
        }
        sound
    });
    // SAFETY: The descriptor was opened here, and no other code has it.
    unsafe { libc::close(fd) };
    attached
}

/// Words of a ring, with which the size of all slots is no overflow. With [`OVERHANG`] or more there is
/// room for the largest sample.
#[cfg(not(feature = "wrap"))]
const MOST_WORDS: u64 = 1 << 40;
const _: () = assert!(SAMPLE + MOST_BRANCHES + MOST_FRAMES <= OVERHANG);

/// Bytes of an open file, or 0.
#[cfg(not(feature = "wrap"))]
fn file_size(fd: libc::c_int) -> u64 {
    let mut data = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the call fills in what is read if it succeeds.
    unsafe {
        match libc::fstat(fd, data.as_mut_ptr()) {
            // CAST: The size of a file is not negative.
            0 => (*data.as_ptr()).st_size as u64,
            _ => 0,
        }
    }
}

/// Maps what the memory begins with.
fn map(fd: libc::c_int) -> Option<*mut Control> {
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

const TOO_MANY: Error = Error::System {
    what: "ebbprof",
    errno: libc::EAGAIN,
    rule: Some("too many threads are sampled, or there is no room of addresses (ulimit -v)"),
};
const NO_MEMORY: Error = Error::System {
    what: "ebbprof",
    errno: libc::ENOMEM,
    rule: Some("the system has no memory for the samples of a thread"),
};

/// Takes a slot that is this thread's, with its ring in memory: its number, and what its handler goes by.
pub(crate) fn take(control: &'static Control) -> Result<(usize, *mut Ring), Error> {
    let free =
        |n: &usize| (control.states[*n].compare_exchange(FREE, TAKEN, Acquire, Relaxed)).is_ok();
    let Some(n) = (0..SLOTS).find(free) else {
        control.without.fetch_add(1, Relaxed);
        return Err(TOO_MANY);
    };
    // CAST: below `SLOTS`.
    control.used.fetch_max(n as u32 + 1, Release);
    let words = WORDS.load(Relaxed);
    let failed = match map_slot(control, words, n) {
        None => (&control.without, TOO_MANY),
        Some(slot) => {
            let size = slot_size(words);
            // SAFETY: `map_slot` has just mapped it.
            if unsafe { fill(slot, size) } {
                return Ok((n, Box::into_raw(Box::new(Ring::new(slot, words)))));
            }
            // SAFETY: As before, and no code writes to it. What there was of its memory is given back.
            unsafe {
                libc::madvise(slot.cast(), size, libc::MADV_REMOVE);
                libc::munmap(slot.cast(), size);
            }
            (&control.unpopulated, NO_MEMORY)
        }
    };
    control.states[n].store(FREE, Release);
    failed.0.fetch_add(1, Relaxed);
    Err(failed.1)
}

/// Maps a slot: all that is before it, too, and unmaps that.
fn map_slot(control: &Control, words: u64, n: usize) -> Option<*mut Slot> {
    let (before, size) = (slot_offset(n, words), slot_size(words));
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
    // SAFETY: of the mapping just made.
    unsafe { libc::munmap(all, before) };
    Some(all.wrapping_byte_add(before).cast())
}

/// Fills the pages of a slot and its ring, so that the handler takes no SIGBUS there. Returns whether there
/// was enough memory.
///
/// # Safety
///
/// The slot is mapped, with so many bytes, and its thread's own.
unsafe fn fill(slot: *mut Slot, size: usize) -> bool {
    let ring = slot.cast::<libc::c_void>().wrapping_byte_add(ALIGN);
    // SAFETY: The caller's contract: both parts are mapped. The slot's own fields are in the first, and in
    // memory when they are written.
    unsafe {
        if !populate(slot.cast(), ALIGN) {
            return false;
        }
        // Before all else: by these the recorder frees it if the thread is killed in the middle.
        // CAST: ids are positive.
        let thread = libc::syscall(libc::SYS_gettid) as u32;
        (*slot).tid.store(thread, Relaxed);
        (*slot).pid.store(libc::getpid() as u32, Relaxed);
        populate(ring, size - ALIGN)
    }
}

/// Fills the pages of a mapping. Returns whether there was enough memory.
///
/// # Safety
///
/// They are mapped, and hold nothing yet.
unsafe fn populate(start: *mut libc::c_void, size: usize) -> bool {
    // SAFETY: The caller's contract.
    if unsafe { libc::madvise(start, size, MADV_POPULATE_WRITE) } == 0 {
        return true;
    }
    // SAFETY: The call asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let (EINVAL, Ok(page)) = (errno(), usize::try_from(page)) else {
        return false;
    };
    // Before Linux 5.14 a system call writes to each page: where there is none, it fails, while a store
    // would end the program.
    (0..size).step_by(page.max(1)).all(|offset| {
        let word = start.wrapping_byte_add(offset);
        // SAFETY: The caller's contract: the call stores the CPU's number there, for which there is room,
        // and the word is 0 again before another code reads it.
        unsafe {
            let null = ptr::null_mut::<libc::c_void>();
            let done = libc::syscall(libc::SYS_getcpu, word, null, null) == 0;
            if done {
                word.cast::<u32>().write_volatile(0);
            }
            done
        }
    })
}

/// Marks a slot of [`take`] as ended, and unmaps it.
///
/// # Safety
///
/// `ring` is of [`take`], this process uses it no more, and none of its threads parks it from here on.
pub(crate) unsafe fn give_back(control: &Control, n: usize, ring: *mut Ring) {
    let state = &control.states[n];
    // Nobody waits for a slot that is parked, and nobody empties it: whoever takes it next is not the
    // dead thread whose numbers it has.
    if state.load(Relaxed) == PARKED {
        // SAFETY: it lives until the end of this function.
        let slot = unsafe { (*ring).slot() };
        slot.tid.store(0, Relaxed);
        slot.pid.store(0, Relaxed);
        state.store(FREE, Release);
    } else {
        state.store(ENDED, Release);
    }
    // SAFETY: the caller's contract.
    unsafe { unmap(ring) };
}

/// Unmaps a slot of [`take`], and ends what its handler went by.
///
/// # Safety
///
/// `ring` is of that, and this process uses it no more.
pub(crate) unsafe fn unmap(ring: *mut Ring) {
    // SAFETY: the caller's contract.
    unsafe {
        let ring = Box::from_raw(ring);
        libc::munmap(ring.slot.cast(), slot_size(ring.mask + 1));
    }
}
