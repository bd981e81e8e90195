// SPDX-License-Identifier: MIT OR Apache-2.0
//! The EBB library for C programs: what `include/ebb.h` declares, by `tools/ebb`.
//!
//! The header and ebb(3) say what the functions do. They return 0, or -1 with errno set and a
//! reason for `ebb_strerror`.

#![no_std]

mod context;
mod system;

use core::ffi::CStr;
use core::ffi::c_char;
use core::ffi::c_int;
use core::ffi::c_uint;
use core::ffi::c_void;

use ebb::Error;
use ebb::RawHandler;
use ebb::Save;
use ebb::Session;
use ebb::State;
use ebb::config::Ifm;

// As in ebb.h; check-abi.py compares them.
const EBB_BHRB_ANY: c_uint = 1;
const EBB_BHRB_CALLS: c_uint = 3;
const EBB_BHRB_INDIRECT: c_uint = 5;
const EBB_BHRB_CONDITIONAL: c_uint = 7;
const EBB_SAVE_GPRS: c_uint = 0;
const EBB_SAVE_ALL_GPRS: c_uint = 1;
const EBB_SAVE_FULL: c_uint = 2;
const EBB_IDLE: c_int = 0;
const EBB_RUNNING: c_int = 1;
const EBB_PAUSED: c_int = 2;
const EBB_EVICTED: c_int = 3;
const EBB_FOREIGN: c_int = 4;
const EBB_GONE: c_int = 5;
const EBB_ENDED: c_int = 6;

/// Notes why a call failed.
fn fail(error: &Error) -> c_int {
    ebb::set_last_reason(error.reason());
    // SAFETY: the C library gives the address of this thread's errno.
    unsafe { *libc::__errno_location() = error.errno() };
    -1
}

/// What a function returns that has nothing to return.
fn status(result: Result<(), Error>) -> c_int {
    result.map_or_else(|error| fail(&error), |()| 0)
}

/// A call with an argument that the header forbids.
fn invalid(reason: &'static str) -> Error {
    Error::System {
        what: "libebb",
        errno: libc::EINVAL,
        rule: Some(reason),
    }
}

/// # Safety
///
/// `name` is null or a string.
unsafe fn text<'a>(name: *const c_char) -> Result<&'a str, Error> {
    if name.is_null() {
        return Err(Error::NoSuchEvent);
    }
    // SAFETY: the caller's contract.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_str().map_err(|_| Error::NoSuchEvent)
}

/// `struct ebb`: what `Session::into_raw` gives the address of.
type Ebb = c_void;

/// Does `call` with a session, which stays as long. If a signal's handler has closed it meanwhile, that
/// is why it fails.
///
/// # Safety
///
/// `ebb` is null or of `ebb_open`.
unsafe fn with<R>(
    ebb: *const Ebb,
    call: impl FnOnce(&Session) -> Result<R, Error>,
) -> Result<R, Error> {
    if ebb.is_null() {
        return Err(invalid("no session"));
    }
    // SAFETY: the caller's contract.
    let session = unsafe { Session::hold(ebb) }.ok_or(Error::Closed)?;
    call(&session).map_err(|error| match session.is_closed() {
        true => Error::Closed,
        false => error,
    })
}

#[unsafe(no_mangle)]
extern "C" fn ebb_supported() -> c_int {
    ebb::supported().into()
}

/// # Safety
///
/// `event` is a string.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_open(event: *const c_char, period: u64, flags: c_uint) -> *mut Ebb {
    let open = || {
        let branches = match flags {
            0 => None,
            EBB_BHRB_ANY => Some(Ifm::All),
            EBB_BHRB_CALLS => Some(Ifm::Calls),
            EBB_BHRB_INDIRECT => Some(Ifm::Indirect),
            EBB_BHRB_CONDITIONAL => Some(Ifm::Conditional),
            _ => return Err(invalid("unknown flags")),
        };
        // SAFETY: the caller's contract.
        Session::open_with(unsafe { text(event) }?, period, branches)
    };
    match open() {
        Ok(session) => session.into_raw(),
        Err(error) => {
            fail(&error);
            core::ptr::null_mut()
        }
    }
}

/// # Safety
///
/// `ebb` is of `ebb_open`, `event` is a string.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_add(ebb: *mut Ebb, event: *const c_char, period: u64) -> c_int {
    // SAFETY: the caller's contract.
    let added = unsafe { with(ebb, |session| session.add(text(event)?, period)) };
    // CAST: 1 to 5.
    added.map_or_else(|error| fail(&error), |n| n as c_int)
}

/// # Safety
///
/// `ebb` is of `ebb_open`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_counter(ebb: *const Ebb, n: c_uint) -> c_int {
    // SAFETY: the caller's contract.
    let pmc = unsafe {
        with(ebb, |session| {
            session.pmc(n as usize).ok_or(Error::NoSuchNumber)
        })
    };
    pmc.map_or_else(|error| fail(&error), |pmc| pmc as c_int)
}

/// # Safety
///
/// `ebb` is of `ebb_open`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_set_period(ebb: *mut Ebb, n: c_uint, period: u64, jitter: u64) -> c_int {
    // SAFETY: the caller's contract.
    status(unsafe {
        with(ebb, |session| {
            session.set_period(n as usize, period, jitter)
        })
    })
}

/// # Safety
///
/// `ebb` is of `ebb_open`, `value` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_read(ebb: *const Ebb, n: c_uint, value: *mut u32) -> c_int {
    // SAFETY: the caller's contract.
    let read = unsafe { with(ebb, |session| session.read(n as usize)) };
    // SAFETY: as before.
    status(read.map(|count| unsafe { value.write(count) }))
}

/// # Safety
///
/// `ebb` is of `ebb_open`; the handler is as ebb(7) says.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_start(
    ebb: *mut Ebb,
    handler: Option<RawHandler>,
    user: *mut c_void,
    save: c_uint,
) -> c_int {
    let start = || {
        let save = match save {
            EBB_SAVE_GPRS => Save::Gprs,
            EBB_SAVE_ALL_GPRS => Save::AllGprs,
            EBB_SAVE_FULL => Save::Full,
            _ => return Err(invalid("unknown save level")),
        };
        let handler = handler.ok_or(invalid("no handler"))?;
        // SAFETY: the caller's contract.
        unsafe { with(ebb, |session| session.start_raw(save, handler, user)) }
    };
    status(start())
}

/// # Safety
///
/// `ebb` is of `ebb_open`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_pause(ebb: *mut Ebb) -> c_int {
    // SAFETY: the caller's contract.
    status(unsafe { with(ebb, Session::pause) })
}

/// # Safety
///
/// `ebb` is of `ebb_open`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_resume(ebb: *mut Ebb) -> c_int {
    // SAFETY: the caller's contract.
    status(unsafe { with(ebb, Session::resume) })
}

/// # Safety
///
/// `ebb` is null or of `ebb_open`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_close(ebb: *mut Ebb) {
    // SAFETY: the caller's contract.
    unsafe { Session::close_raw(ebb) };
}

/// # Safety
///
/// `ebb` is of `ebb_open`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_state(ebb: *const Ebb) -> c_int {
    // SAFETY: the caller's contract.
    let state = unsafe { with(ebb, |session| Ok(session.state())) };
    let state = state.map(|state| match state {
        State::Idle => EBB_IDLE,
        State::Running => EBB_RUNNING,
        State::Paused => EBB_PAUSED,
        State::Evicted => EBB_EVICTED,
        State::Foreign => EBB_FOREIGN,
        State::Gone => EBB_GONE,
        State::Ended => EBB_ENDED,
    });
    state.unwrap_or_else(|error| fail(&error))
}

/// # Safety
///
/// `ebb` is of `ebb_open`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_count(ebb: *const Ebb) -> u64 {
    // SAFETY: the caller's contract.
    unsafe { with(ebb, |session| Ok(session.count())) }.unwrap_or(0)
}

/// # Safety
///
/// `ebb` is of `ebb_open`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_fd(ebb: *const Ebb) -> c_int {
    // SAFETY: the caller's contract.
    let descriptor = unsafe {
        with(ebb, |session| match session.descriptor() {
            -1 => Err(Error::Closed),
            open => Ok(open),
        })
    };
    descriptor.unwrap_or_else(|error| fail(&error))
}

/// # Safety
///
/// `buffer` has `size` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_strerror(buffer: *mut c_char, size: usize) -> *mut c_char {
    let reason = ebb::last_reason();
    let length = reason.len().min(size.saturating_sub(1));
    if size != 0 {
        // SAFETY: the caller's contract; the text and its end fit.
        unsafe {
            buffer.copy_from_nonoverlapping(reason.as_ptr().cast(), length);
            buffer.add(length).write(0);
        }
    }
    buffer
}

/// # Safety
///
/// `ucontext` is what the kernel gave to a handler of SIGILL.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_step_over(ucontext: *mut c_void) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { ebb::step_over(ucontext) }.into()
}
