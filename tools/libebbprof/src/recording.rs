// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording that the program itself begins and ends, by the functions of `ebbprof.h`.
//!
//! The memory is made with the first one, and stays: an EBB handler of another thread may be in
//! its middle when the recording ends. For the same reason a thread keeps its slot. Another
//! process, `ebbprof collect`, reads the rings and writes the file (`collector.rs`).

use core::ffi::CStr;
use core::ffi::c_int;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::Ordering::Release;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::fence;

use ebb::Error;
use ebbprof_ring::Control;
use ebbprof_ring::PARKED;
use ebbprof_ring::PROGRAM;
use ebbprof_ring::THREAD;

use crate::collector;
use crate::collector::Collector;
use crate::collector::DUMP;
use crate::collector::STOP;
use crate::descriptor::Kept;
use crate::memory;
use crate::memory::Wanted;
use crate::process;
use crate::sessions;
use crate::sessions::Sessions;
use crate::sessions::State;
use crate::thread;
use crate::unnoticed::Unnoticed;

/// Words of a thread's ring: 1 MiB.
const RING: u64 = 1 << 17;

/// Whether this process has started the recording, and not a parent.
static IS_STARTER: AtomicBool = AtomicBool::new(false);
/// The memory's descriptor, once it was made.
static MEMORY: Kept = Kept::none();
/// Whether a thread changes the recording.
static BUSY: AtomicBool = AtomicBool::new(false);

/// Holds off other threads that would change the recording.
struct Change;

impl Change {
    fn begin() -> Result<Self, Error> {
        (BUSY.compare_exchange(false, true, Acquire, Relaxed))
            .map(|_| Self)
            .map_err(|_| refused(libc::EBUSY, "another thread starts or ends the recording"))
    }

    /// Of a recording that this process has started.
    fn of_recording() -> Result<Self, Error> {
        let change = Self::begin()?;
        match sessions::state() {
            State::Idle => Err(refused(libc::ESRCH, "nothing is recorded")),
            State::Preloaded => Err(by_ebbprof()),
            _ if !IS_STARTER.load(Relaxed) => Err(refused(libc::ESRCH, "a parent process records")),
            _ => Ok(change),
        }
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        BUSY.store(false, Release);
    }
}

pub(crate) fn refused(errno: c_int, rule: &'static str) -> Error {
    Error::System {
        what: "ebbprof",
        errno,
        rule: Some(rule),
    }
}

fn by_ebbprof() -> Error {
    refused(libc::EBUSY, "ebbprof record profiles the program already")
}

/// Has the calling thread sampled, and those that begin from now on.
pub(crate) fn start(file: &CStr, wanted: &Wanted<'_>) -> Result<(), Error> {
    // SAFETY: asks for a number.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return Err(refused(
            libc::EPERM,
            "the program has rights that its caller does not have, whose PATH may have any ebbprof",
        ));
    }
    let _change = Change::begin()?;
    match sessions::state() {
        State::Idle => {}
        State::Preloaded => return Err(by_ebbprof()),
        _ => return Err(refused(libc::EBUSY, "a recording is going on")),
    }
    let (control, memory) = prepare(wanted)?;
    // What refuses the event is told before there is a file.
    thread::open_wanted(control)?.close();
    let collector = Collector::start(memory, file)?;
    collector::set(collector);
    IS_STARTER.store(true, Relaxed);
    sessions::set_state(State::Running);
    thread::begin(control, PROGRAM).inspect_err(|_| {
        let _ = close();
    })
}

/// The memory, with what is wanted, and its descriptor.
fn prepare(wanted: &Wanted<'_>) -> Result<(&'static Control, c_int), Error> {
    let fd = match MEMORY.get() {
        Some(fd) => fd,
        // The first recording, or the program has closed it since: what is mapped stays.
        None => {
            let fd = memory::create(RING).map_err(|errno| {
                refused(
                    errno,
                    match errno {
                        libc::EFBIG => {
                            "the memory for the samples is larger than files may be (ulimit -f)"
                        }
                        _ => "no memory could be had for the samples",
                    },
                )
            })?;
            MEMORY.set(fd);
            fd
        }
    };
    if !watch_end() || !process::watch() {
        return Err(refused(libc::EAGAIN, "the C library has no more room"));
    }
    // SAFETY: made above or before; nothing is recorded.
    unsafe { memory::begin(wanted) };
    let control = memory::control().ok_or(refused(libc::ENOMEM, "there is no memory"))?;
    Ok((control, fd))
}

/// Has the end of the program noticed; tells whether it could.
fn watch_end() -> bool {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    WATCHED.load(Relaxed) || {
        // SAFETY: the function lives as long as the program.
        let watched = unsafe { libc::atexit(end) } == 0;
        WATCHED.store(watched, Relaxed);
        watched
    }
}

/// Has the calling thread sampled too, which was there before.
pub(crate) fn sample_thread() -> Result<(), Error> {
    match memory::control().filter(|_| sessions::state() != State::Idle) {
        None => Err(refused(libc::ESRCH, "nothing is recorded")),
        Some(_) if thread::is_sampled() => Ok(()),
        Some(control) => thread::begin(control, THREAD),
    }
}

/// Takes no samples for a while, or takes them again.
pub(crate) fn set_paused(paused: bool) -> Result<(), Error> {
    let _change = Change::of_recording()?;
    let list = Sessions::lock();
    if paused {
        sessions::set_state(State::Paused);
        fence(SeqCst);
        list.each(|sampled| sampled.look());
    } else {
        // Each handler looks at the next sample.
        sessions::set_state(State::Running);
    }
    Ok(())
}

/// Has the file complete with what was sampled up to now.
pub(crate) fn dump() -> Result<(), Error> {
    let _change = Change::of_recording()?;
    thread::take_stock();
    collector::ask(DUMP)
}

/// Ends the recording; its file is complete.
pub(crate) fn stop() -> Result<(), Error> {
    let _change = Change::of_recording()?;
    close()
}

fn close() -> Result<(), Error> {
    // Objects may have been loaded since it began.
    thread::take_stock();
    let list = Sessions::lock();
    sessions::set_state(State::Idle);
    list.each(|sampled| drop(sampled.session.take()));
    drop(list);
    let asked = collector::ask(STOP);
    let has_socket = collector::end();
    if let Some(control) = memory::control() {
        // Of children, which have it in their own memory, no more samples are wanted.
        control.stop.store(1, Relaxed);
        let list = Sessions::lock();
        if has_socket {
            list.each(|sampled| control.states[sampled.number].store(PARKED, Release));
        } else {
            // The program has closed the socket: nobody knows when the collector has read the last
            // samples. The memory stays as it is, and the next recording has another one.
            leave_memory();
        }
        list.clear();
    }
    asked
}

fn leave_memory() {
    MEMORY.close();
    memory::forget();
}

/// In the child of a fork no other thread changes anything. What the parent has recorded before is
/// not the child's: each that records would write to the same rings.
pub(crate) fn forget_changes() {
    BUSY.store(false, Release);
    IS_STARTER.store(false, Relaxed);
    if sessions::state() == State::Idle {
        leave_memory();
    }
}

/// The program ends.
extern "C" fn end() {
    let _unnoticed = Unnoticed::begin();
    if process::has_own_memory()
        && let Ok(_change) = Change::of_recording()
    {
        let _ = close();
    }
}
