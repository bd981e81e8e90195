// SPDX-License-Identifier: GPL-2.0
//! The session that handlers and signals use, held as in a C program: by an address. Other code may
//! close the session at any time.

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

/// Returns the session's address, or null.
#[must_use]
pub fn raw() -> *mut c_void {
    SESSION.load(Relaxed)
}

/// Makes a call for the session. If it fails and the session was closed in the meantime, the error
/// is `Closed`.
pub fn with<R>(call: impl FnOnce(&Session) -> Result<R, Error>) -> Result<R, Error> {
    // SAFETY: The address is from `open`; `hold` copes with a closed session.
    let session = unsafe { Session::hold(raw()) }.ok_or(Error::Closed)?;
    call(&session).map_err(|error| match session.is_closed() {
        true => Error::Closed,
        false => error,
    })
}

/// Closes the session, if there is one.
pub fn close() {
    // SAFETY: The address is from `open`, or null.
    unsafe { Session::close_raw(raw()) };
    SESSION.store(ptr::null_mut(), Relaxed);
}
