// SPDX-License-Identifier: GPL-2.0
//! The session that handlers and signals are about, as the C library has it: by an address, at which
//! it may be closed at any time.

use ebb::Error;
use ebb::Session;
use ktap::Outcome;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

static SESSION: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Opens a session of cycles.
pub fn open(period: u64) -> Outcome {
    SESSION.store(Session::open("cycles", period)?.into_raw(), Relaxed);
    Ok(())
}

/// Its address, or null.
#[must_use]
pub fn raw() -> *mut c_void {
    SESSION.load(Relaxed)
}

/// Makes a call for the session. If the session was closed in the meantime, that is why it fails.
pub fn with<R>(call: impl FnOnce(&Session) -> Result<R, Error>) -> Result<R, Error> {
    // SAFETY: `open` has put the address there; what it is of may be closed by now.
    let session = unsafe { Session::hold(raw()) }.ok_or(Error::Closed)?;
    call(&session).map_err(|error| match session.is_closed() {
        true => Error::Closed,
        false => error,
    })
}

/// Closes it, if there is one.
pub fn close() {
    // SAFETY: of `open`.
    unsafe { Session::close_raw(raw()) };
    SESSION.store(ptr::null_mut(), Relaxed);
}
