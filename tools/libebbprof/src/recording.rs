// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings that the program itself starts and ends with the functions of `ebbprof.h`.
//!
//! The memory is created for the first one and never unmapped, because an EBB handler of another
//! thread may be running when the recording ends. For the same reason a thread keeps its slot.
//! Another process, `ebbprof collect`, reads the rings and writes the file (`collector.rs`).

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

/// Number of words of a thread's ring: 1 MiB.
const RING: u64 = 1 << 17;

/// Whether this process, and not a parent, has started the recording.
static IS_STARTER: AtomicBool = AtomicBool::new(false);
/// The memory's descriptor, once it was created.
static MEMORY: Kept = Kept::none();
/// Whether a thread is changing the recording.
static BUSY: AtomicBool = AtomicBool::new(false);

/// A lock that keeps other threads from changing the recording.
struct Change;

impl Change {
    fn begin() -> Result<Self, Error> {
        (BUSY.compare_exchange(false, true, Acquire, Relaxed))
            .map(|_| Self)
            .map_err(|_| refused(libc::EBUSY, "another thread starts or ends a recording"))
    }

    /// Takes the lock if this process has started the recording.
    fn of_recording() -> Result<Self, Error> {
        let change = Self::begin()?;
        match sessions::state() {
            State::Idle => Err(refused(libc::ESRCH, "no recording is running")),
            State::Preloaded => Err(by_ebbprof()),
            _ if !IS_STARTER.load(Relaxed) => Err(refused(
                libc::ESRCH,
                "a parent process has started the recording",
            )),
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
    refused(libc::EBUSY, "ebbprof record already profiles the program")
}

/// Starts a recording of the calling thread and those that begin from now on.
pub(crate) fn start(file: &CStr, wanted: &Wanted<'_>) -> Result<(), Error> {
    // SAFETY: The call takes no pointers.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return Err(refused(
            libc::EPERM,
            "a privileged (set-user-ID) program must not run ebbprof from its caller's PATH",
        ));
    }
    let _change = Change::begin()?;
    match sessions::state() {
        State::Idle => {}
        State::Preloaded => return Err(by_ebbprof()),
        _ => return Err(refused(libc::EBUSY, "a recording is already running")),
    }
    let (control, memory) = prepare(wanted)?;
    // Opens the event once, so that an error is reported before the file exists.
    thread::open_wanted(control)?.close();
    let collector = Collector::start(memory, file)?;
    collector::set(collector);
    IS_STARTER.store(true, Relaxed);
    sessions::set_state(State::Running);
    thread::begin(control, PROGRAM).inspect_err(|_| {
        let _ = close();
    })
}

/// Writes the parameters to the memory. Returns the memory and its descriptor.
fn prepare(wanted: &Wanted<'_>) -> Result<(&'static Control, c_int), Error> {
    let fd = match MEMORY.get() {
        Some(fd) => fd,
        // This is the first recording, or the program has closed the descriptor; mappings remain.
        None => {
            let fd = memory::create(RING).map_err(|errno| {
                refused(
                    errno,
                    match errno {
                        libc::EFBIG => {
                            "the memory for the samples exceeds the file size limit (ulimit -f)"
                        }
                        _ => "cannot create the memory for the samples",
                    },
                )
            })?;
            MEMORY.set(fd);
            fd
        }
    };
    if !watch_end() || !process::watch() {
        return Err(refused(
            libc::EAGAIN,
            "cannot register a function for the end of the program",
        ));
    }
    // SAFETY: `create` made the memory, now or before, and nothing is recorded.
    unsafe { memory::begin(wanted) };
    let control = memory::control().ok_or(refused(libc::ENOMEM, "out of memory"))?;
    Ok((control, fd))
}

/// Registers a function for the end of the program. Returns whether that succeeded.
fn watch_end() -> bool {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    WATCHED.load(Relaxed) || {
        // SAFETY: The function is never unloaded.
        let watched = unsafe { libc::atexit(end) } == 0;
        WATCHED.store(watched, Relaxed);
        watched
    }
}

/// Starts sampling the calling thread, which existed before the recording.
pub(crate) fn sample_thread() -> Result<(), Error> {
    match memory::control().filter(|_| sessions::state() != State::Idle) {
        None => Err(refused(libc::ESRCH, "no recording is running")),
        Some(_) if thread::is_sampled() => Ok(()),
        Some(control) => thread::begin(control, THREAD),
    }
}

/// Pauses or resumes sampling.
pub(crate) fn set_paused(paused: bool) -> Result<(), Error> {
    let _change = Change::of_recording()?;
    let list = Sessions::lock();
    if paused {
        sessions::set_state(State::Paused);
        fence(SeqCst);
        list.each(|sampled| sampled.look());
    } else {
        // Each handler reads the state again before it takes a sample.
        sessions::set_state(State::Running);
    }
    Ok(())
}

/// Completes the file with the samples up to now.
pub(crate) fn dump() -> Result<(), Error> {
    let _change = Change::of_recording()?;
    thread::take_stock();
    collector::ask(DUMP)
}

/// Ends the recording and completes its file.
pub(crate) fn stop() -> Result<(), Error> {
    let _change = Change::of_recording()?;
    close()
}

fn close() -> Result<(), Error> {
    // Objects may have been loaded since the thread began.
    thread::take_stock();
    let list = Sessions::lock();
    sessions::set_state(State::Idle);
    list.each(|sampled| drop(sampled.session.take()));
    drop(list);
    let asked = collector::ask(STOP);
    let has_socket = collector::end();
    if let Some(control) = memory::control() {
        // Children have a copy of the state in their own memory; `stop` is in the shared memory and
        // ends their samples, too.
        control.stop.store(1, Relaxed);
        let list = Sessions::lock();
        if has_socket {
            list.each(|sampled| control.states[sampled.number].store(PARKED, Release));
        } else {
            // The program has closed the socket, so this process cannot know when the collector has
            // read the last samples. The memory is abandoned, and the next recording gets another
            // one.
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

/// Resets the state of recordings in the child of a fork, where no other thread changes it. The
/// child must not use the memory of the parent's past recordings: both would write to the same
/// rings.
pub(crate) fn forget_changes() {
    BUSY.store(false, Release);
    IS_STARTER.store(false, Relaxed);
    if sessions::state() == State::Idle {
        leave_memory();
    }
}

/// Ends the recording when the program ends.
extern "C" fn end() {
    let _unnoticed = Unnoticed::begin();
    if process::has_own_memory()
        && let Ok(_change) = Change::of_recording()
    {
        let _ = close();
    }
}
