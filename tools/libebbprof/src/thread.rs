// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sampling of a thread: from its first function to its end.

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
    /// The handler's own state; [`memory::take`] made it.
    ring: *mut Ring,
    /// The memory that has the slot: a program may close that, and get another one.
    control: &'static Control,
    calls: Calls,
    /// In the list of `sessions.rs`.
    pub(crate) next: *mut Self,
}

impl Sampled {
    fn ring(&self) -> &Ring {
        // SAFETY: `memory::take` made it, and it lives as long as this.
        unsafe { &*self.ring }
    }

    /// Has the handler look at the state before it writes another sample.
    pub(crate) fn look(&self) {
        self.ring().limit.store(0, Relaxed);
    }
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

/// How many calls without EBBs the calling thread is in, if it is sampled, or was.
pub(crate) fn calls() -> Option<&'static Calls> {
    // SAFETY: null, or of `begin` and this thread's, until its end.
    unsafe { current().as_ref() }.map(|sampled| &sampled.calls)
}

/// The calling thread's, if it is sampled, or was, in this process.
fn current() -> *mut Sampled {
    let sampled = match KEY.load(Acquire) {
        0 => ptr::null_mut(),
        // SAFETY: the key exists.
        key => unsafe { libc::pthread_getspecific(key - 1) }.cast::<Sampled>(),
    };
    match sampled.is_null() || process::has_own_memory() {
        true => sampled,
        false => ptr::null_mut(),
    }
}

/// The same, and waits until `ebbprof` knows them.
#[cfg(not(feature = "wrap"))]
pub(crate) fn show_maps() {
    let _unnoticed = Unnoticed::begin();
    // SAFETY: null, or of `begin` and this thread's.
    let sampled = unsafe { current().as_ref() }.filter(|sampled| sampled.session.is_some());
    let is_read = |sampled: &&Sampled| sampled.control.stop.load(Relaxed) == 0;
    if let Some(sampled) = sampled.filter(is_read) {
        // SAFETY: the slot is this thread's.
        unsafe { maps::show(sampled.control, sampled.ring().slot) };
    }
}

/// Takes the parent's sampling away from the child of a fork, which has inherited its memory, and
/// copies of the descriptors of all its threads' events.
///
/// The calling thread is the only one of the child, so no other can hold the lock of the list. The
/// thread that forked has locked it in the parent; where the parent did not own its memory, any
/// thread of that memory's process may have.
pub(crate) fn forget() {
    let sampled = current();
    let list = Sessions::unlocked();
    list.each(|other| {
        drop(other.session.take());
        // This thread may have forked in its handler, which goes on: it finds no room any more.
        if ptr::eq(other, sampled) {
            other.ring().head.store(u64::MAX / 2, Relaxed);
        } else {
            // SAFETY: of a thread that is not here.
            unsafe { memory::unmap(other.ring) };
        }
    });
    list.clear();
    if !sampled.is_null() {
        // SAFETY: the key exists; its value is of `begin`.
        unsafe {
            libc::pthread_setspecific(KEY.load(Relaxed) - 1, ptr::null());
            drop(Box::from_raw(sampled));
        }
    }
}

/// Writes what may have changed since the calling thread began: the mappings of its process, and whether
/// it still has samples.
pub(crate) fn take_stock() {
    // SAFETY: null, or of `begin` and this thread's.
    if let Some(sampled) = unsafe { current().as_ref() } {
        note_ceased(sampled);
        // SAFETY: the slot is this thread's.
        unsafe { maps::write(sampled.ring().slot) };
    }
}

/// Tells `ebbprof` whether EBBs come no more to the calling thread, though its event is on the PMU: no
/// count tells how many samples are missing.
fn note_ceased(sampled: &Sampled) {
    use ebb::State::Foreign;
    use ebb::State::Paused;
    let state = sampled.session.as_ref().map(Session::state);
    let ceased = matches!(state, Some(Foreign | Paused));
    sampled.ring().slot().ceased.store(ceased.into(), Release);
}

/// Has the calling thread sampled, or says why it is not.
pub(crate) fn begin(control: &'static Control, origin: u32) -> Result<(), Error> {
    process::check_memory()?;
    let sampled = match current() {
        // SAFETY: null, or of an earlier call and this thread's.
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
            // Twice: a signal's handler that asks in the middle of a thread's first has that cleared. If
            // there is no memory for it, `ebbprof` notices the end of the thread. No handler finds the old
            // one behind that, of which the recording is over: this thread's writes to its slot no more.
            // SAFETY: the key exists; its destructor gets the box. The old one is of here.
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
        // Of what was recorded before.
        own => own,
    };
    // SAFETY: just made, or this thread's, of which others look at listed sessions only.
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
        // SAFETY: as before.
        Ok(session) => unsafe { slot::publish(ring.slot, session) },
        // SAFETY: as before.
        Err(error) => unsafe { slot::refuse(ring.slot, error) },
    }
    let session = started?;
    let list = Sessions::lock();
    match sessions::state() {
        // Somebody has stopped it just now.
        State::Idle => return Err(STOPPED),
        // Somebody has paused it just now, perhaps.
        // SAFETY: this thread's.
        State::Paused => unsafe { (*sampled).look() },
        State::Preloaded | State::Running => {}
    }
    // SAFETY: it lives until `ends` takes it out.
    unsafe {
        (*sampled).session = Some(session);
        list.add(sampled);
    }
    Ok(())
}

const STOPPED: Error = Error::System {
    what: "ebbprof",
    errno: libc::ESRCH,
    rule: Some("nothing is recorded"),
};

/// Whether the calling thread is sampled.
pub(crate) fn is_sampled() -> bool {
    // SAFETY: null, or of `begin` and this thread's.
    unsafe { current().as_ref() }.is_some_and(|sampled| sampled.session.is_some())
}

/// Refuses a preloaded program with small stacks, in its first thread: none of the others is sampled
/// then. They may not ask the loader, whose lock `dlopen` has while a constructor waits for a thread.
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

/// Starts the session, which is the calling thread's; its handler writes samples to the ring.
pub(crate) fn take_samples(session: &Session, control: &Control, ring: &Ring) -> Result<(), Error> {
    let handler = match branches(control) {
        0 => ebbprof_sample,
        _ => ebbprof_sample_branches,
    };
    let ring = ptr::from_ref(ring).cast_mut().cast();
    // SAFETY: the handlers do what one may, with general registers only; the ring lives until the
    // session is closed.
    unsafe { session.start_raw(Save::Gprs, handler, ring) }
}

/// Returns which branches are wanted: any number, as other processes may have written it.
fn branches(control: &Control) -> u64 {
    // SAFETY: a field of the memory's head, of which any bits are a number.
    unsafe { (&raw const control.branches).read_volatile() }
}

/// Counts from one sample to the next that are no more than a program can bear.
pub(crate) const PERIODS: RangeInclusive<u64> = 100..=1 << 63;

/// Opens the event that is wanted for the calling thread.
pub(crate) fn open_wanted(control: &Control) -> Result<Session, Error> {
    let (event, period) = (&raw const control.event, &raw const control.period);
    // Other processes cannot change this copy.
    // SAFETY: fields of the memory's head, of which any bits are bytes and a number.
    let (event, period): ([u8; TEXT], u64) =
        unsafe { (event.read_volatile(), period.read_volatile()) };
    let name = CStr::from_bytes_until_nul(&event).unwrap_or_default();
    if !PERIODS.contains(&period) {
        return Err(Error::Period);
    }
    open(control, name.to_str().unwrap_or_default(), period)
}

/// Opens an event with the branches that are wanted, and has its descriptor out of the program's way:
/// a shell script's `exec 3>file` closes whatever it finds there.
pub(crate) fn open(control: &Control, name: &str, period: u64) -> Result<Session, Error> {
    // CAST: 0 to 3, or none.
    let branches = branches(control).checked_sub(1).map(|ifm| ifm as u8);
    let session = Session::open_with(name, period, branches.and_then(Ifm::new))?;
    session.move_descriptors(LEAST_DESCRIPTOR);
    // The handler uses none, and what they do at the end is the program's as well.
    ebb::outlast_variables();
    Ok(session)
}

/// The end of a thread.
extern "C" fn ends(sampled: *mut libc::c_void) {
    // The slot goes on being that of the thread which has made this process.
    if !process::has_own_memory() {
        return;
    }
    let _unnoticed = Unnoticed::begin();
    let sampled = sampled.cast::<Sampled>();
    // SAFETY: of `begin`, and comes here once. From the list it is gone before it is freed, and
    // its session is closed before others could take its slot; no sample is written from there on.
    let sampled = unsafe {
        let list = Sessions::lock();
        list.remove(sampled);
        note_ceased(&*sampled);
        let mut sampled = Box::from_raw(sampled);
        drop(sampled.session.take());
        sampled
    };
    // SAFETY: the slot is this thread's until it is marked as ended; the time base is readable.
    unsafe {
        let now = spr::read::<{ spr::TB }>();
        sampled.ring().slot().end.store(now, Relaxed);
        slot::write_name(sampled.ring().slot);
    }
    // SAFETY: as before; nothing of this process has its address any more.
    unsafe { memory::give_back(sampled.control, sampled.number, sampled.ring) };
}
