// SPDX-License-Identifier: MIT OR Apache-2.0
//! The EBB library for C programs: implements `include/ebb.h` with `tools/ebb`.
//!
//! The header and the manual pages describe the functions. On failure they return -1, set errno and
//! store a reason for `ebb_strerror`.

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

// Values from ebb.h; check-abi.py compares them.
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

/// Records why a call failed, and returns the function's result.
fn fail(error: &Error) -> c_int {
    ebb::set_last_reason(error.reason());
    // SAFETY: The C library returns the address of this thread's errno.
    unsafe { *libc::__errno_location() = error.errno() };
    -1
}

/// Converts the result of a call without a value to the function's result.
fn status(result: Result<(), Error>) -> c_int {
    result.map_or_else(|error| fail(&error), |()| 0)
}

/// Returns the error for an argument that the header forbids.
fn invalid(reason: &'static str) -> Error {
    Error::System {
        what: "libebb",
        errno: libc::EINVAL,
        rule: Some(reason),
    }
}

/// Returns the string of an argument.
///
/// # Safety
///
/// `name` is null or a NUL-terminated string.
unsafe fn text<'a>(name: *const c_char) -> Result<&'a str, Error> {
    if name.is_null() {
        return Err(Error::NoSuchEvent);
    }
    // SAFETY: The caller guarantees that `name` is a string if it is not null.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_str().map_err(|_| Error::NoSuchEvent)
}

/// The type `struct ebb` of C. Pointers to it are addresses that `Session::into_raw` returned.
type Ebb = c_void;

/// Calls `call` with a session, whose memory stays valid during the call. If a signal handler has
/// closed the session in the meantime, the error is `Closed`.
///
/// # Safety
///
/// `ebb` is null or was returned by `ebb_open`.
unsafe fn with<R>(
    ebb: *const Ebb,
    call: impl FnOnce(&Session) -> Result<R, Error>,
) -> Result<R, Error> {
    if ebb.is_null() {
        return Err(invalid("no session"));
    }
    // SAFETY: The caller guarantees that `ebb` was returned by `ebb_open`.
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
/// `event` is a NUL-terminated string.
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
        // SAFETY: The caller guarantees that `event` is a string.
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
/// `ebb` was returned by `ebb_open`, and `event` is a NUL-terminated string.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_add(ebb: *mut Ebb, event: *const c_char, period: u64) -> c_int {
    // SAFETY: The caller guarantees that `ebb` is from `ebb_open` and `event` is a string.
    let added = unsafe { with(ebb, |session| session.add(text(event)?, period)) };
    // CAST: The number is 1 to 5.
    added.map_or_else(|error| fail(&error), |n| n as c_int)
}

/// # Safety
///
/// `ebb` was returned by `ebb_open`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_counter(ebb: *const Ebb, n: c_uint) -> c_int {
    // SAFETY: The caller guarantees that `ebb` is from `ebb_open`.
    let pmc = unsafe {
        with(ebb, |session| {
            session.pmc(n as usize).ok_or(Error::NoSuchNumber)
        })
    };
    pmc.map_or_else(|error| fail(&error), |pmc| pmc as c_int)
}

/// # Safety
///
/// `ebb` was returned by `ebb_open`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_set_period(ebb: *mut Ebb, n: c_uint, period: u64, jitter: u64) -> c_int {
    // SAFETY: The caller guarantees that `ebb` is from `ebb_open`.
    status(unsafe {
        with(ebb, |session| {
            session.set_period(n as usize, period, jitter)
        })
    })
}

/// # Safety
///
/// `ebb` was returned by `ebb_open`, and `value` is valid for writing.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_read(ebb: *const Ebb, n: c_uint, value: *mut u32) -> c_int {
    // SAFETY: The caller guarantees that `ebb` is from `ebb_open`.
    let read = unsafe { with(ebb, |session| session.read(n as usize)) };
    // SAFETY: The caller guarantees that `value` is valid for writing.
    status(read.map(|count| unsafe { value.write(count) }))
}

/// # Safety
///
/// `ebb` was returned by `ebb_open`, and the handler follows the rules of ebb(7).
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
        // SAFETY: The caller guarantees that `ebb` is from `ebb_open` and the handler follows the
        // rules.
        unsafe { with(ebb, |session| session.start_raw(save, handler, user)) }
    };
    status(start())
}

/// # Safety
///
/// `ebb` was returned by `ebb_open`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_pause(ebb: *mut Ebb) -> c_int {
    // SAFETY: The caller guarantees that `ebb` is from `ebb_open`.
    status(unsafe { with(ebb, Session::pause) })
}

/// # Safety
///
/// `ebb` was returned by `ebb_open`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_resume(ebb: *mut Ebb) -> c_int {
    // SAFETY: The caller guarantees that `ebb` is from `ebb_open`.
    status(unsafe { with(ebb, Session::resume) })
}

/// # Safety
///
/// `ebb` is null or was returned by `ebb_open`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_close(ebb: *mut Ebb) {
    // SAFETY: The caller guarantees that `ebb` is null or from `ebb_open`.
    unsafe { Session::close_raw(ebb) };
}

/// # Safety
///
/// `ebb` was returned by `ebb_open`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_state(ebb: *const Ebb) -> c_int {
    // SAFETY: The caller guarantees that `ebb` is from `ebb_open`.
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
/// `ebb` was returned by `ebb_open`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_count(ebb: *const Ebb) -> u64 {
    // SAFETY: The caller guarantees that `ebb` is from `ebb_open`.
    unsafe { with(ebb, |session| Ok(session.count())) }.unwrap_or(0)
}

/// # Safety
///
/// `ebb` was returned by `ebb_open`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_fd(ebb: *const Ebb) -> c_int {
    // SAFETY: The caller guarantees that `ebb` is from `ebb_open`.
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
/// `buffer` is valid for writing `size` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_strerror(buffer: *mut c_char, size: usize) -> *mut c_char {
    let reason = ebb::last_reason();
    let length = reason.len().min(size.saturating_sub(1));
    if size != 0 {
        // SAFETY: The caller guarantees `size` bytes, and `length` bytes plus the NUL fit in them.
        unsafe {
            buffer.copy_from_nonoverlapping(reason.as_ptr().cast(), length);
            buffer.add(length).write(0);
        }
    }
    buffer
}

/// # Safety
///
/// `ucontext` is the third argument that the kernel passed to a handler of SIGILL.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_step_over(ucontext: *mut c_void) -> c_int {
    // SAFETY: The caller guarantees that `ucontext` is from the kernel.
    unsafe { ebb::step_over(ucontext) }.into()
}
