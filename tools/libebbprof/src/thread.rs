// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sampling of a thread: from its first function to its end.

use alloc::boxed::Box;
use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::Ordering::Release;

use ebb::Save;
use ebb::Session;
use ebb::spr;
use ebbprof_ring::Control;
use ebbprof_ring::ENDED;
use ebbprof_ring::LIVE;
use ebbprof_ring::Slot;
use ebbprof_ring::THREAD;

use crate::handler::ebbprof_sample;
use crate::maps;
use crate::memory;

/// A thread that is sampled.
pub(crate) struct Sampled {
    session: Option<Session>,
    number: usize,
    slot: *mut Slot,
}

/// The key of the thread's [`Sampled`], plus 1; 0: not made.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Has the ends of threads noticed; tells whether it could.
pub(crate) fn watch_ends() -> bool {
    let mut key = 0;
    // SAFETY: the variable lives, and the destructor takes such a value.
    let made = unsafe { libc::pthread_key_create(&mut key, Some(ends)) } == 0;
    if made {
        KEY.store(key + 1, Release);
    }
    made
}

/// The calling thread's, if it is sampled.
fn current() -> *mut Sampled {
    match KEY.load(Acquire) {
        0 => ptr::null_mut(),
        // SAFETY: the key exists.
        key => unsafe { libc::pthread_getspecific(key - 1) }.cast(),
    }
}

/// Takes the parent's sampling away from the child of a fork, which has inherited its memory.
pub(crate) fn forget() {
    let sampled = current();
    if !sampled.is_null() {
        // SAFETY: the key exists; its value is of `begin`.
        unsafe {
            libc::pthread_setspecific(KEY.load(Relaxed) - 1, ptr::null());
            drop(Box::from_raw(sampled));
        }
    }
}

/// Writes the mappings of the calling thread's process again.
pub(crate) fn write_maps() {
    // SAFETY: null, or of `begin` and this thread's.
    if let Some(sampled) = unsafe { current().as_ref() } {
        // SAFETY: the slot is this thread's.
        unsafe { maps::write(sampled.slot) };
    }
}

/// Has the calling thread sampled.
pub(crate) fn begin(control: &'static Control, origin: u32) {
    let Some((number, slot)) = memory::take(control) else {
        return;
    };
    // SAFETY: the slot is this thread's, and mapped for good.
    unsafe { describe(slot, control, origin) };
    control.states[number].store(LIVE, Release);
    let mut sampled = Box::new(Sampled {
        session: None,
        number,
        slot,
    });
    match start(control, slot) {
        Ok(session) => {
            // SAFETY: as before.
            unsafe { publish(slot, &session) };
            sampled.session = Some(session);
        }
        // SAFETY: as before.
        Err(error) => unsafe { refuse(slot, &error) },
    }
    // SAFETY: the key exists; its destructor gets the box. If there is no memory for it, the end
    // of the thread is noticed by `ebbprof`.
    unsafe { libc::pthread_setspecific(KEY.load(Relaxed) - 1, Box::into_raw(sampled).cast()) };
}

fn start(control: &Control, slot: *mut Slot) -> Result<Session, ebb::Error> {
    let name = CStr::from_bytes_until_nul(&control.event).unwrap_or_default();
    let name = name.to_str().unwrap_or_default();
    let session = Session::open(name, control.period)?;
    // SAFETY: the handler does what one may, with general registers only; the slot is mapped for
    // good.
    unsafe { session.start_raw(Save::Gprs, ebbprof_sample, slot.cast()) }?;
    Ok(session)
}

/// Tells `ebbprof` by which event samples are taken, for when somebody takes the PMU away.
///
/// # Safety
///
/// `slot` is the calling thread's.
unsafe fn publish(slot: *mut Slot, session: &Session) {
    /// `PERF_EVENT_IOC_ID`.
    const ID: libc::c_ulong = 0x4008_2407;
    let (descriptor, mut id) = (session.descriptor(), 0_u64);
    // SAFETY: the call stores to the variable; the caller's contract.
    unsafe {
        if libc::ioctl(descriptor, ID, &raw mut id) == 0 {
            (*slot).event.store(id, Relaxed);
            // CAST: not negative.
            (*slot).descriptor.store(descriptor as u32 + 1, Release);
        }
    }
}

/// # Safety
///
/// `slot` is the calling thread's.
unsafe fn describe(slot: *mut Slot, control: &Control, origin: u32) {
    // SAFETY: the caller's contract; the calls only ask.
    unsafe {
        let s = &*slot;
        s.written.head.store(0, Relaxed);
        s.written.limit.store(0, Relaxed);
        s.written.lost.store(0, Relaxed);
        s.written.mask.store(control.ring - 1, Relaxed);
        s.written.frames.store(control.frames, Relaxed);
        let (stack, size) = if control.frames == 0 { (0, 0) } else { stack() };
        s.written.stack.store(stack, Relaxed);
        s.written.stack_size.store(size, Relaxed);
        s.tail.store(0, Relaxed);
        s.refused.store(0, Relaxed);
        s.descriptor.store(0, Relaxed);
        s.end.store(0, Relaxed);
        s.origin.store(origin, Relaxed);
        // CAST: ids are positive.
        s.pid.store(libc::getpid() as u32, Relaxed);
        s.parent.store(libc::getppid() as u32, Relaxed);
        s.tid.store(libc::syscall(libc::SYS_gettid) as u32, Relaxed);
        s.begin.store(spr::read::<{ spr::TB }>(), Relaxed);
        libc::prctl(libc::PR_GET_NAME, &raw mut (*slot).name);
        if origin != THREAD {
            maps::write(slot);
        }
    }
}

/// The calling thread's stack: its lowest address, and in how many bytes a frame may begin.
fn stack() -> (u64, u64) {
    /// Bytes of the smallest frame.
    const FRAME: usize = 32;
    let mut attr = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut address, mut size) = (ptr::null_mut(), 0);
    // SAFETY: the first call fills in what the others use.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attr.as_mut_ptr()) == 0 {
            libc::pthread_attr_getstack(attr.as_ptr(), &mut address, &mut size);
            libc::pthread_attr_destroy(attr.as_mut_ptr());
        }
    }
    // CAST: usize has 64 bits.
    let size = size.saturating_sub(FRAME) as u64;
    (address.expose_provenance() as u64, size)
}

/// Notes why the thread is not sampled.
///
/// # Safety
///
/// `slot` is the calling thread's.
unsafe fn refuse(slot: *mut Slot, error: &ebb::Error) {
    let reason = error.reason().as_bytes();
    // SAFETY: the caller's contract; as much as fits.
    unsafe {
        let text = &raw mut (*slot).reason;
        let length = reason.len().min(size_of_val(&*text));
        ptr::copy_nonoverlapping(reason.as_ptr(), text.cast(), length);
        // CAST: at most `TEXT`.
        (*slot).refused.store(length as u32, Release);
    }
}

/// The end of a thread.
extern "C" fn ends(sampled: *mut libc::c_void) {
    // SAFETY: of `begin`, and comes here once.
    let sampled = unsafe { Box::from_raw(sampled.cast::<Sampled>()) };
    // No sample is written from here on.
    drop(sampled.session);
    // SAFETY: the slot is this thread's until it is marked as ended; the time base is readable.
    unsafe {
        let now = spr::read::<{ spr::TB }>();
        (*sampled.slot).end.store(now, Relaxed);
    }
    if let Some(control) = memory::control() {
        control.states[sampled.number].store(ENDED, Release);
    }
}
