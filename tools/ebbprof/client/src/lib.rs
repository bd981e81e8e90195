// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lets a program profile parts of itself with Event Based Branches, as `ebbprof` profiles whole
//! programs: without a kernel entry for each sample. The samples go to a perf.data file, which
//! `ebbprof` and perf read.
//!
//! ```no_run
#![doc = include_str!("../examples/ebbprof_parts.rs")]
//! ```
//!
//! The crate uses libebbprof (`make install-ebbprof`); see ebbprof(3) for details. If the linker
//! does not find the library, set the environment variable `EBBPROF_LIB_DIR` to its folder. A
//! static program must be linked with `--wrap` for each function that `pkg-config --static --libs
//! ebbprof` lists: its build script prints `cargo:rustc-link-arg=-Wl,--wrap=pthread_create` and so
//! on.

use std::ffi::CStr;
use std::ffi::CString;
use std::ffi::c_char;
use std::ffi::c_int;
use std::ffi::c_uint;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

// The declarations of ebbprof.h.
unsafe extern "C" {
    fn ebbprof_start(
        file: *const c_char,
        event: *const c_char,
        period: u64,
        flags: c_uint,
    ) -> c_int;
    safe fn ebbprof_sample_thread() -> c_int;
    safe fn ebbprof_pause() -> c_int;
    safe fn ebbprof_resume() -> c_int;
    safe fn ebbprof_dump() -> c_int;
    safe fn ebbprof_stop() -> c_int;
    fn ebbprof_strerror(buffer: *mut c_char, size: usize) -> *mut c_char;
}

const CALLERS: c_uint = 1;

/// An error of an operation on a recording.
#[derive(Debug)]
pub struct Error {
    reason: String,
    source: io::Error,
}

impl Error {
    /// Returns the errno of the operation.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.source.raw_os_error().unwrap_or(0)
    }

    fn last() -> Self {
        let source = io::Error::last_os_error();
        let mut reason = [0; 256];
        // SAFETY: The function writes a string to the buffer, which has as many bytes as passed.
        let reason = unsafe { CStr::from_ptr(ebbprof_strerror(reason.as_mut_ptr(), reason.len())) };
        Self {
            reason: reason.to_string_lossy().into_owned(),
            source,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.source)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

fn done(status: c_int) -> Result<(), Error> {
    match status {
        0 => Ok(()),
        _ => Err(Error::last()),
    }
}

/// Options of a recording.
#[derive(Clone, Debug)]
pub struct Options {
    event: String,
    period: u64,
    callers: bool,
}

impl Default for Options {
    /// Returns the options for a sample every 100,003 cycles, without callers.
    fn default() -> Self {
        Self {
            event: "cycles".into(),
            period: 100_003,
            callers: false,
        }
    }
}

impl Options {
    /// Sets the event that is counted; see ebbprof(1) for names.
    #[must_use]
    pub fn event(mut self, name: &str) -> Self {
        self.event = name.into();
        self
    }

    /// Sets the counts from one sample to the next, at least 100.
    #[must_use]
    pub fn period(mut self, counts: u64) -> Self {
        self.period = counts;
        self
    }

    /// Sets whether samples have their callers.
    #[must_use]
    pub fn callers(mut self, taken: bool) -> Self {
        self.callers = taken;
        self
    }

    /// Starts a recording to `file` of the calling thread, and of the threads and children of fork
    /// that begin afterwards.
    ///
    /// # Errors
    ///
    /// The errors of ebbprof_start() in ebbprof(3): a recording is already running; or the event,
    /// the file or the program `ebbprof` cannot be opened.
    pub fn start(&self, file: impl AsRef<Path>) -> Result<Recording, Error> {
        let string = |bytes: &[u8]| {
            CString::new(bytes).map_err(|error| Error {
                reason: "a name contains a NUL byte".into(),
                source: io::Error::new(io::ErrorKind::InvalidInput, error),
            })
        };
        let file = string(file.as_ref().as_os_str().as_bytes())?;
        let event = string(self.event.as_bytes())?;
        // The C function treats 0 as the default.
        let period = self.period.max(1);
        let flags = if self.callers { CALLERS } else { 0 };
        // SAFETY: Both pointers are to NUL-terminated strings.
        done(unsafe { ebbprof_start(file.as_ptr(), event.as_ptr(), period, flags) })?;
        Ok(Recording(()))
    }
}

/// A recording of this process. There is one at a time. Dropping it ends it.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct Recording(());

impl Recording {
    /// Stops taking samples of this process until [`resume`](Self::resume).
    ///
    /// # Errors
    ///
    /// The process is the child of a fork, or another thread changes the recording.
    pub fn pause(&self) -> Result<(), Error> {
        done(ebbprof_pause())
    }

    /// Resumes taking samples.
    ///
    /// # Errors
    ///
    /// The errors of [`pause`](Self::pause).
    pub fn resume(&self) -> Result<(), Error> {
        done(ebbprof_resume())
    }

    /// Completes the file with the samples up to now; the recording continues.
    ///
    /// # Errors
    ///
    /// The errors of [`pause`](Self::pause), and errors of writing the file.
    pub fn dump(&self) -> Result<(), Error> {
        done(ebbprof_dump())
    }

    /// Ends the recording and completes the file.
    ///
    /// # Errors
    ///
    /// The errors of [`dump`](Self::dump).
    pub fn stop(self) -> Result<(), Error> {
        let stopped = done(ebbprof_stop());
        std::mem::forget(self);
        stopped
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // A caller that needs the error calls `stop`.
        let _ = done(ebbprof_stop());
    }
}

/// Starts sampling the calling thread, if it existed before the recording began.
///
/// # Errors
///
/// No recording is running, or the thread cannot be sampled.
pub fn sample_thread() -> Result<(), Error> {
    done(ebbprof_sample_thread())
}
