// SPDX-License-Identifier: MIT OR Apache-2.0
//! Has a program profile parts of itself by Event Based Branches, as `ebbprof` profiles whole
//! programs: without a kernel entry for each sample. The samples go to a perf.data file, which
//! `ebbprof` and perf read.
//!
//! ```no_run
#![doc = include_str!("../examples/ebbprof_parts.rs")]
//! ```
//!
//! It stands on libebbprof (`make install-ebbprof`), whose page ebbprof(3) says more. The
//! environment variable `EBBPROF_LIB_DIR` names its folder where the linker does not look by itself.
//! A static program is linked with `--wrap` of each function that `pkg-config --static --libs ebbprof`
//! has, by `cargo:rustc-link-arg=-Wl,--wrap=pthread_create` and so on of its own build script.

use std::ffi::CStr;
use std::ffi::CString;
use std::ffi::c_char;
use std::ffi::c_int;
use std::ffi::c_uint;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

// As ebbprof.h has them.
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

/// Why something did not work.
#[derive(Debug)]
pub struct Error {
    reason: String,
    source: io::Error,
}

impl Error {
    /// The system's error that says it best.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.source.raw_os_error().unwrap_or(0)
    }

    fn last() -> Self {
        let source = io::Error::last_os_error();
        let mut reason = [0; 256];
        // SAFETY: the buffer has the bytes, and gets a string.
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

/// What is to be sampled.
#[derive(Clone, Debug)]
pub struct Options {
    event: String,
    period: u64,
    callers: bool,
}

impl Default for Options {
    /// Every 100,003 cycles, without callers.
    fn default() -> Self {
        Self {
            event: "cycles".into(),
            period: 100_003,
            callers: false,
        }
    }
}

impl Options {
    /// The event that is counted; ebbprof(1) says how events are named.
    #[must_use]
    pub fn event(mut self, name: &str) -> Self {
        self.event = name.into();
        self
    }

    /// The counts from one sample to the next, 100 at least.
    #[must_use]
    pub fn period(mut self, counts: u64) -> Self {
        self.period = counts;
        self
    }

    /// Whether samples have their callers.
    #[must_use]
    pub fn callers(mut self, taken: bool) -> Self {
        self.callers = taken;
        self
    }

    /// Begins to record to `file`: the calling thread, and the threads and children of fork that
    /// begin from then on.
    ///
    /// # Errors
    ///
    /// Those of ebbprof(3): a recording is going on, or the event, the file or `ebbprof` itself
    /// cannot be had.
    pub fn start(&self, file: impl AsRef<Path>) -> Result<Recording, Error> {
        let string = |bytes: &[u8]| {
            CString::new(bytes).map_err(|error| Error {
                reason: "a name has a byte 0".into(),
                source: io::Error::new(io::ErrorKind::InvalidInput, error),
            })
        };
        let file = string(file.as_ref().as_os_str().as_bytes())?;
        let event = string(self.event.as_bytes())?;
        // The C library takes 0 for the default.
        let period = self.period.max(1);
        let flags = if self.callers { CALLERS } else { 0 };
        // SAFETY: strings.
        done(unsafe { ebbprof_start(file.as_ptr(), event.as_ptr(), period, flags) })?;
        Ok(Recording(()))
    }
}

/// A recording of this process, of which there is one at a time. Dropping it ends it.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct Recording(());

impl Recording {
    /// Takes no samples of this process until [`resume`](Self::resume).
    ///
    /// # Errors
    ///
    /// In the child of a fork, or while another thread changes the recording.
    pub fn pause(&self) -> Result<(), Error> {
        done(ebbprof_pause())
    }

    /// Takes samples again.
    ///
    /// # Errors
    ///
    /// As [`pause`](Self::pause).
    pub fn resume(&self) -> Result<(), Error> {
        done(ebbprof_resume())
    }

    /// Has the file complete with the samples up to now; the recording goes on.
    ///
    /// # Errors
    ///
    /// As [`pause`](Self::pause), and of writing the file.
    pub fn dump(&self) -> Result<(), Error> {
        done(ebbprof_dump())
    }

    /// Ends the recording; the file is complete.
    ///
    /// # Errors
    ///
    /// As [`dump`](Self::dump).
    pub fn stop(self) -> Result<(), Error> {
        let stopped = done(ebbprof_stop());
        std::mem::forget(self);
        stopped
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // Who wants to know of a failure calls `stop`.
        let _ = done(ebbprof_stop());
    }
}

/// Has the calling thread sampled, too: one that was there before the recording began.
///
/// # Errors
///
/// Nothing is recorded, or the thread cannot be sampled.
pub fn sample_thread() -> Result<(), Error> {
    done(ebbprof_sample_thread())
}
