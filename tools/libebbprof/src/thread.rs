// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sampling of a thread, from its first function to its end.

use alloc::boxed::Box;
use core::ffi::CStr;
use core::ops::RangeInclusive;
use core::ptr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::Ordering::Release;

use ebb::Error;
use ebb::Save;
use ebb::Session;
use ebb::config::Ifm;
use ebb::spr;
use ebbprof_ring::Control;
use ebbprof_ring::LEAST_DESCRIPTOR;
use ebbprof_ring::LIVE;
#[cfg(not(feature = "wrap"))]
use ebbprof_ring::PROGRAM;
use ebbprof_ring::TEXT;

use crate::branches::ebbprof_sample_branches;
use crate::calls::Calls;
#[cfg(not(feature = "wrap"))]
use crate::cost;
use crate::handler::Ring;
use crate::handler::ebbprof_sample;
use crate::maps;
use crate::memory;
use crate::process;
use crate::sessions;
use crate::sessions::Sessions;
use crate::sessions::State;
use crate::slot;
#[cfg(not(feature = "wrap"))]
use crate::stacks;
use crate::unnoticed::Unnoticed;

/// A thread that is sampled, or was.
pub(crate) struct Sampled {
    pub(crate) session: Option<Session>,
    pub(crate) number: usize,
    /// State of the handler, created by [`memory::take`].
    ring: *mut Ring,
    /// The memory that has the slot. A program may close it and get another one.
    control: &'static Control,
    calls: Calls,
    /// Link in the list of `sessions.rs`.
    pub(crate) next: *mut Self,
}

impl Sampled {
    fn ring(&self) -> &Ring {
        // SAFETY: `memory::take` created it, and it lives as long as this.
        unsafe { &*self.ring }
    }

    /// Makes the handler read the state again before it writes another sample.
    pub(crate) fn look(&self) {
        self.ring().limit.store(0, Relaxed);
    }
}

/// The key of the thread's [`Sampled`], plus 1; 0 until it is created.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Registers a destructor for the ends of threads. Returns whether that succeeded.
pub(crate) fn watch_ends() -> bool {
    let mut key = 0;
    // SAFETY: `key` is a local variable, and `ends` accepts every value stored for the key.
    let made = unsafe { libc::pthread_key_create(&mut key, Some(ends)) } == 0;
    if made {
        KEY.store(key + 1, Release);
    }
    made
}

/// Returns the calling thread's count of calls without EBBs, if it is sampled or was.
pub(crate) fn calls() -> Option<&'static Calls> {
    // SAFETY: The pointer is null or from `begin`, and belongs to this thread until its end.
    unsafe { current().as_ref() }.map(|sampled| &sampled.calls)
}

/// Returns the calling thread's state, if it is sampled or was in this process, or null.
fn current() -> *mut Sampled {
    let sampled = match KEY.load(Acquire) {
        0 => ptr::null_mut(),
        // SAFETY: The key exists and is never deleted.
        key => unsafe { libc::pthread_getspecific(key - 1) }.cast::<Sampled>(),
    };
    match sampled.is_null() || process::has_own_memory() {
        true => sampled,
        false => ptr::null_mut(),
    }
}

/// Writes the mappings of the process, and waits until `ebbprof` has read them.
#[cfg(not(feature = "wrap"))]
pub(crate) fn show_maps() {
    let _unnoticed = Unnoticed::begin();
    // SAFETY: The pointer is null or from `begin`, and belongs to this thread.
    let sampled = unsafe { current().as_ref() }.filter(|sampled| sampled.session.is_some());
    let is_read = |sampled: &&Sampled| sampled.control.stop.load(Relaxed) == 0;
    if let Some(sampled) = sampled.filter(is_read) {
        // SAFETY: The slot belongs to this thread.
        unsafe { maps::show(sampled.control, sampled.ring().slot) };
    }
}

/// Removes the parent's sampling from the child of a fork. The child has inherited its parent's
/// memory, and copies of the descriptors of all its threads' events.
///
/// The calling thread is the only one of the child, so no other can hold the lock of the list. In
/// the parent, the thread that forked has locked it; if the parent did not own its memory, any
/// thread of the process that did may have locked it.
pub(crate) fn forget() {
    let sampled = current();
    let list = Sessions::unlocked();
    list.each(|other| {
        drop(other.session.take());
        // This thread may have forked in its handler, which continues: this makes it find no room.
        if ptr::eq(other, sampled) {
            other.ring().head.store(u64::MAX / 2, Relaxed);
        } else {
            // SAFETY: The ring's thread does not exist in this process.
            unsafe { memory::unmap(other.ring) };
        }
    });
    list.clear();
    if !sampled.is_null() {
        // SAFETY: The key exists; its value is a box from `begin`, which nothing uses any more.
        unsafe {
            libc::pthread_setspecific(KEY.load(Relaxed) - 1, ptr::null());
            drop(Box::from_raw(sampled));
        }
    }
}

/// Writes what may have changed since the calling thread began: the mappings of its process, and
/// whether it still gets samples.
pub(crate) fn take_stock() {
    // SAFETY: The pointer is null or from `begin`, and belongs to this thread.
    if let Some(sampled) = unsafe { current().as_ref() } {
        note_ceased(sampled);
        // SAFETY: The slot belongs to this thread.
        unsafe { maps::write(sampled.ring().slot) };
    }
}

/// Reports to `ebbprof` whether the calling thread no longer gets EBBs although its event is on the
/// PMU. No count shows how many samples are missing then.
fn note_ceased(sampled: &Sampled) {
    use ebb::State::Foreign;
    use ebb::State::Paused;
    let state = sampled.session.as_ref().map(Session::state);
    let ceased = matches!(state, Some(Foreign | Paused));
    sampled.ring().slot().ceased.store(ceased.into(), Release);
}

/// Starts sampling the calling thread, or records in its slot why that failed.
pub(crate) fn begin(control: &'static Control, origin: u32) -> Result<(), Error> {
    process::check_memory()?;
    let sampled = match current() {
        // SAFETY: The pointer is null or from an earlier call, and belongs to this thread.
        own if unsafe { own.as_ref() }.is_none_or(|own| !ptr::eq(own.control, control)) => {
            let (number, ring) = memory::take(control)?;
            let new = Box::into_raw(Box::new(Sampled {
                session: None,
                number,
                ring,
                control,
                calls: Calls::new(0),
                next: ptr::null_mut(),
            }));
            // Set twice: if a signal handler reads the key during the thread's first
            // pthread_setspecific(), the C library clears the value. If there is no memory for it,
            // `ebbprof` notices the end of the thread. From here on no handler can find the
            // previous box, whose recording is over, so this thread does not write to its slot any
            // more.
            // SAFETY: The key exists, and its destructor takes over the new box. The previous box
            // was made here.
            unsafe {
                for _ in 0..2 {
                    libc::pthread_setspecific(KEY.load(Relaxed) - 1, new.cast());
                }
                if !own.is_null() {
                    memory::unmap((*own).ring);
                    drop(Box::from_raw(own));
                }
            }
            new
        }
        // The thread was sampled in an earlier recording, in the same memory.
        own => own,
    };
    // SAFETY: It was just made or belongs to this thread; others access only sessions in the list.
    let (number, ring) = unsafe { ((*sampled).number, &*(*sampled).ring) };
    slot::describe(ring, control, origin);
    #[cfg(not(feature = "wrap"))]
    if origin == PROGRAM && sessions::state() == State::Preloaded {
        cost::measure(control, ring);
        slot::clear(ring);
    }
    control.states[number].store(LIVE, Release);
    #[cfg(not(feature = "wrap"))]
    let started = check_stacks(origin).and_then(|()| start(control, ring));
    #[cfg(feature = "wrap")]
    let started = start(control, ring);
    match &started {
        // SAFETY: The slot belongs to this thread.
        Ok(session) => unsafe { slot::publish(ring.slot, session) },
        // SAFETY: The slot belongs to this thread.
        Err(error) => unsafe { slot::refuse(ring.slot, error) },
    }
    let session = started?;
    let list = Sessions::lock();
    match sessions::state() {
        // Another thread has just stopped the recording.
        State::Idle => return Err(STOPPED),
        // Another thread may have just paused the recording, before this thread was in the list.
        // SAFETY: It belongs to this thread.
        State::Paused => unsafe { (*sampled).look() },
        State::Preloaded | State::Running => {}
    }
    // SAFETY: It lives until `ends` removes it from the list.
    unsafe {
        (*sampled).session = Some(session);
        list.add(sampled);
    }
    Ok(())
}

const STOPPED: Error = Error::System {
    what: "ebbprof",
    errno: libc::ESRCH,
    rule: Some("no recording is running"),
};

/// Returns whether the calling thread is sampled.
pub(crate) fn is_sampled() -> bool {
    // SAFETY: The pointer is null or from `begin`, and belongs to this thread.
    unsafe { current().as_ref() }.is_some_and(|sampled| sampled.session.is_some())
}

/// Refuses a preloaded program with small stacks in its first thread, in which case no other is
/// sampled. Other threads must not call the loader: `dlopen` holds its lock while a constructor
/// waits for a thread.
#[cfg(not(feature = "wrap"))]
fn check_stacks(origin: u32) -> Result<(), Error> {
    match origin == PROGRAM && sessions::state() == State::Preloaded {
        true => stacks::check(),
        false => Ok(()),
    }
}

fn start(control: &Control, ring: &Ring) -> Result<Session, Error> {
    let session = open_wanted(control)?;
    take_samples(&session, control, ring)?;
    Ok(session)
}

/// Starts the calling thread's session, whose handler writes samples to the ring.
pub(crate) fn take_samples(session: &Session, control: &Control, ring: &Ring) -> Result<(), Error> {
    let handler = match branches(control) {
        0 => ebbprof_sample,
        _ => ebbprof_sample_branches,
    };
    let ring = ptr::from_ref(ring).cast_mut().cast();
    // SAFETY: The handlers follow the rules and use general registers only; the ring lives until
    // the session is closed.
    unsafe { session.start_raw(Save::Gprs, handler, ring) }
}

/// Returns which branches are requested. It may be any number, which other processes may have
/// written.
fn branches(control: &Control) -> u64 {
    // SAFETY: It is a field of the memory's head, and any bits are a valid number.
    unsafe { (&raw const control.branches).read_volatile() }
}

/// Valid periods: shorter ones would take all of the program's time.
pub(crate) const PERIODS: RangeInclusive<u64> = 100..=1 << 63;

/// Opens the requested event for the calling thread.
pub(crate) fn open_wanted(control: &Control) -> Result<Session, Error> {
    let (event, period) = (&raw const control.event, &raw const control.period);
    // Copies them, so that other processes cannot change them between check and use.
    // SAFETY: They are fields of the memory's head, and any bits are valid bytes and a number.
    let (event, period): ([u8; TEXT], u64) =
        unsafe { (event.read_volatile(), period.read_volatile()) };
    let name = CStr::from_bytes_until_nul(&event).unwrap_or_default();
    if !PERIODS.contains(&period) {
        return Err(Error::Period);
    }
    open(control, name.to_str().unwrap_or_default(), period)
}

/// Opens an event with the requested branches, and moves its descriptor to a high number: a shell
/// script's `exec 3>file` closes whatever descriptor 3 is.
pub(crate) fn open(control: &Control, name: &str, period: u64) -> Result<Session, Error> {
    // CAST: A number that is cut is harmless: `Ifm::new` refuses those above 3, and any filter is
    // valid.
    let branches = branches(control).checked_sub(1).map(|ifm| ifm as u8);
    let session = Session::open_with(name, period, branches.and_then(Ifm::new))?;
    session.move_descriptors(LEAST_DESCRIPTOR);
    // The handler uses no thread-local variables, and their destructors are part of the program.
    ebb::outlast_variables();
    Ok(session)
}

/// Ends the sampling of a thread that ends.
extern "C" fn ends(sampled: *mut libc::c_void) {
    // The slot still belongs to the thread that has created this process.
    if !process::has_own_memory() {
        return;
    }
    let _unnoticed = Unnoticed::begin();
    let sampled = sampled.cast::<Sampled>();
    // SAFETY: The box is from `begin`, and the destructor runs once. It is removed from the list
    // before it is freed, and its session is closed before its slot can be taken again, so no
    // sample is written after that.
    let sampled = unsafe {
        let list = Sessions::lock();
        list.remove(sampled);
        note_ceased(&*sampled);
        let mut sampled = Box::from_raw(sampled);
        drop(sampled.session.take());
        sampled
    };
    // SAFETY: The slot belongs to this thread until it is marked as ended. Problem state can always
    // read the time base.
    unsafe {
        let now = spr::read::<{ spr::TB }>();
        sampled.ring().slot().end.store(now, Relaxed);
        slot::write_name(sampled.ring().slot);
    }
    // SAFETY: The ring is from `take`, and nothing in this process has its address any more.
    unsafe { memory::give_back(sampled.control, sampled.number, sampled.ring) };
}
