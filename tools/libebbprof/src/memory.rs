// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory shared with `ebbprof`, as mapped by the program.
//!
//! A program's mappings count towards its limits (`ulimit -v`, mlockall), so it maps only the head,
//! and a slot for each sampled thread. No descriptor stays open, and the program may change its
//! root directory, user and descriptors afterwards: the mappings of slots are made from that of the
//! head.
//!
//! Other processes of the recording can write to all of it at any time. So no address or size of a
//! mapping is read from it, except once ([`attach`]), and other values read from it may be
//! anything.

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

/// Since Linux 5.14; the libc crate does not define it for every C library.
const MADV_POPULATE_WRITE: libc::c_int = 23;

static CONTROL: AtomicPtr<Control> = AtomicPtr::new(ptr::null_mut());
/// Number of words of a ring of that memory, as of when it was found or created.
static WORDS: AtomicU64 = AtomicU64::new(0);

/// Returns the memory's head, once the memory was found or created.
pub(crate) fn control() -> Option<&'static Control> {
    // SAFETY: The pointer is null or to a mapping that is never removed.
    unsafe { CONTROL.load(Acquire).as_ref() }
}

/// Sets the memory of this process. `head` stays mapped, and its rings have `words` words.
fn set(head: *mut Control, words: u64) {
    WORDS.store(words, Relaxed);
    CONTROL.store(head, Release);
}

/// Clears the memory of this process, for the child of a fork. It stays mapped.
pub(crate) fn forget() {
    CONTROL.store(ptr::null_mut(), Release);
}

/// Requests that `ebbprof` reads the rings now.
pub(crate) fn ask(control: &Control) {
    control.asked.fetch_add(1, Release);
    futex::wake(&control.asked);
}

/// Creates the memory, with rings of `ring` words. Returns its descriptor, for `ebbprof`, or errno.
pub(crate) fn create(ring: u64) -> Result<libc::c_int, libc::c_int> {
    let fd = ebbprof_ring::create(ring)?;
    match map(fd) {
        Some(head) => {
            // SAFETY: It was just mapped, and no other code has its address yet.
            unsafe { (*head).ring = ring };
            set(head, ring);
            Ok(fd)
        }
        None => {
            let errno = errno();
            // SAFETY: `fd` was just created, and no other code has it.
            unsafe { libc::close(fd) };
            Err(errno)
        }
    }
}

/// The parameters of a recording.
pub(crate) struct Wanted<'a> {
    pub(crate) event: &'a CStr,
    pub(crate) period: u64,
    pub(crate) callers: bool,
}

/// Writes the parameters of a recording to the memory. The event's name is truncated to what fits.
///
/// # Safety
///
/// [`create`] has created the memory, and no thread is sampled.
pub(crate) unsafe fn begin(wanted: &Wanted<'_>) {
    let control = CONTROL.load(Acquire);
    let mut event = [0; TEXT];
    let name = wanted.event.to_bytes().iter().take(TEXT - 1);
    event
        .iter_mut()
        .zip(name)
        .for_each(|(to, &from)| *to = from);
    // SAFETY: The caller guarantees that `control` is mapped and no other code accesses it.
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

/// Returns the PID namespace of this process, or 0 if /proc is not mounted.
fn namespace() -> u64 {
    let mut data = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: The path is a string; `data` is read only if stat() succeeds, which fills it in.
    unsafe {
        match libc::stat(c"/proc/self/ns/pid".as_ptr(), data.as_mut_ptr()) {
            0 => (*data.as_ptr()).st_ino,
            _ => 0,
        }
    }
}

/// Returns whether this process has another PID namespace than `ebbprof`, where its process id
/// would be wrong. Counts such processes in the memory.
pub(crate) fn is_foreign(control: &Control) -> bool {
    // 0 means that the namespace is unknown.
    // SAFETY: It is a field of the memory's head, and any bits are a valid number.
    let others = unsafe { (&raw const control.namespace).read_volatile() };
    let own = namespace();
    let foreign = own != 0 && others != 0 && own != others;
    control.foreign.fetch_add(foreign.into(), Relaxed);
    foreign
}

/// Returns the errno of the last call that failed.
pub(crate) fn errno() -> libc::c_int {
    // SAFETY: The C library returns the address of this thread's errno.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(errno: libc::c_int) {
    // SAFETY: The C library returns the address of this thread's errno.
    unsafe { *libc::__errno_location() = errno };
}

/// Maps the memory at `path`. Returns whether that succeeded.
#[cfg(not(feature = "wrap"))]
pub(crate) fn attach(path: &CStr) -> bool {
    // SAFETY: The path is a NUL-terminated string.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 {
        return false;
    }
    let head = (file_size(fd) >= ALIGN as u64).then(|| map(fd));
    let attached = head.flatten().is_some_and(|head| {
        // SAFETY: The memory begins with the head, and its file has at least `ALIGN` bytes.
        let (magic, ring) = unsafe {
            (
                (&raw const (*head).magic).read_volatile(),
                (&raw const (*head).ring).read_volatile(),
            )
        };
        if ebbprof_ring::is_other_version(magic) {
            // SAFETY: As above; the field is an atomic, which other processes may change.
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

/// Maximum number of words of a ring, with which the size of all slots does not overflow. A ring
/// with at least [`OVERHANG`] words has room for the largest sample.
#[cfg(not(feature = "wrap"))]
const MOST_WORDS: u64 = 1 << 40;
const _: () = assert!(SAMPLE + MOST_BRANCHES + MOST_FRAMES <= OVERHANG);

/// Returns the size of an open file in bytes, or 0.
#[cfg(not(feature = "wrap"))]
fn file_size(fd: libc::c_int) -> u64 {
    let mut data = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `data` is read only if fstat() succeeds, which fills it in.
    unsafe {
        match libc::fstat(fd, data.as_mut_ptr()) {
            // CAST: The size of a file is not negative.
            0 => (*data.as_ptr()).st_size as u64,
            _ => 0,
        }
    }
}

/// Maps the head of the memory.
fn map(fd: libc::c_int) -> Option<*mut Control> {
    let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: The kernel chooses the place of the new mapping, so none is replaced.
    let address = unsafe { libc::mmap(ptr::null_mut(), ALIGN, access, shared, fd, 0) };
    if address == libc::MAP_FAILED {
        return None;
    }
    // A core dump does not need it, nor the slots, whose mappings inherit this.
    // SAFETY: It is the mapping that was just made.
    unsafe { libc::madvise(address, ALIGN, libc::MADV_DONTDUMP) };
    Some(address.cast())
}

const TOO_MANY: Error = Error::System {
    what: "ebbprof",
    errno: libc::EAGAIN,
    rule: Some("too many threads are sampled, or the address space is too small (ulimit -v)"),
};
const NO_MEMORY: Error = Error::System {
    what: "ebbprof",
    errno: libc::ENOMEM,
    rule: Some("not enough memory for the samples of a thread"),
};

/// Takes a slot with its ring for this thread. Returns its number, and the state of its handler.
pub(crate) fn take(control: &'static Control) -> Result<(usize, *mut Ring), Error> {
    let free =
        |n: &usize| (control.states[*n].compare_exchange(FREE, TAKEN, Acquire, Relaxed)).is_ok();
    let Some(n) = (0..SLOTS).find(free) else {
        control.without.fetch_add(1, Relaxed);
        return Err(TOO_MANY);
    };
    // CAST: `n` is below `SLOTS`.
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
            // SAFETY: As above, and no code writes to it. MADV_REMOVE frees the part that was
            // filled.
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

/// Maps a slot: maps everything before it, too, and then unmaps that.
fn map_slot(control: &Control, words: u64, n: usize) -> Option<*mut Slot> {
    let (before, size) = (slot_offset(n, words), slot_size(words));
    let head = ptr::from_ref(control).cast_mut().cast::<libc::c_void>();
    // SAFETY: The head's mapping is not changed: with an old length of 0, mremap() creates a second
    // mapping of the same memory, at a place that the kernel chooses.
    let all = unsafe {
        // If the head were locked, all of the new mapping would be, and would be allocated.
        libc::munlock(head, ALIGN);
        libc::mremap(head, 0, before + size, libc::MREMAP_MAYMOVE)
    };
    if all == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: The range is the first part of the mapping that was just made.
    unsafe { libc::munmap(all, before) };
    Some(all.wrapping_byte_add(before).cast())
}

/// Allocates the pages of a slot and its ring, so that the handler gets no SIGBUS there. Returns
/// whether there was enough memory.
///
/// # Safety
///
/// The slot is mapped with `size` bytes, and belongs to the calling thread.
unsafe fn fill(slot: *mut Slot, size: usize) -> bool {
    let ring = slot.cast::<libc::c_void>().wrapping_byte_add(ALIGN);
    // SAFETY: The caller guarantees that both parts are mapped. The slot's fields are in the first
    // part, which is allocated before they are written.
    unsafe {
        if !populate(slot.cast(), ALIGN) {
            return false;
        }
        // Must come before the ring: the recorder frees the slot by these if the thread is killed
        // now.
        // CAST: Ids are positive.
        let thread = libc::syscall(libc::SYS_gettid) as u32;
        (*slot).tid.store(thread, Relaxed);
        (*slot).pid.store(libc::getpid() as u32, Relaxed);
        populate(ring, size - ALIGN)
    }
}

/// Allocates the pages of a mapping. Returns whether there was enough memory.
///
/// # Safety
///
/// The range is mapped, and holds no data yet.
unsafe fn populate(start: *mut libc::c_void, size: usize) -> bool {
    // SAFETY: The caller guarantees that the range is mapped.
    if unsafe { libc::madvise(start, size, MADV_POPULATE_WRITE) } == 0 {
        return true;
    }
    // SAFETY: The call takes no pointers.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let (EINVAL, Ok(page)) = (errno(), usize::try_from(page)) else {
        return false;
    };
    // Before Linux 5.14 a system call writes to each page: it fails if there is no memory, whereas
    // a store would kill the program.
    (0..size).step_by(page.max(1)).all(|offset| {
        let word = start.wrapping_byte_add(offset);
        // SAFETY: The caller guarantees that the page is mapped. The kernel stores the CPU's number
        // there, and the word is set to 0 again before other code reads it.
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
/// `ring` is from [`take`], this process no longer uses it, and none of its threads parks it from
/// now on.
pub(crate) unsafe fn give_back(control: &Control, n: usize, ring: *mut Ring) {
    let state = &control.states[n];
    // A parked slot has no reader that would free it. Its ids are cleared, so that the thread that
    // takes it next is not mistaken for the dead one.
    if state.load(Relaxed) == PARKED {
        // SAFETY: The ring lives until the end of this function.
        let slot = unsafe { (*ring).slot() };
        slot.tid.store(0, Relaxed);
        slot.pid.store(0, Relaxed);
        state.store(FREE, Release);
    } else {
        state.store(ENDED, Release);
    }
    // SAFETY: The caller guarantees that the ring is from `take` and no longer used.
    unsafe { unmap(ring) };
}

/// Unmaps a slot of [`take`], and frees the state of its handler.
///
/// # Safety
///
/// `ring` is from [`take`], and this process no longer uses it.
pub(crate) unsafe fn unmap(ring: *mut Ring) {
    // SAFETY: The caller guarantees that `take` made the box and the mapping, and nothing uses
    // them.
    unsafe {
        let ring = Box::from_raw(ring);
        libc::munmap(ring.slot.cast(), slot_size(ring.mask + 1));
    }
}
