// SPDX-License-Identifier: MIT OR Apache-2.0
//! Implements `include/ebbprof.h`. The header and ebbprof(3) describe the functions.

use core::ffi::CStr;
use core::ffi::c_char;
use core::ffi::c_int;
use core::ffi::c_uint;

use ebb::Error;

use crate::memory::Wanted;
use crate::memory::set_errno;
use crate::process;
use crate::recording;
use crate::recording::refused;
use crate::thread;
use crate::unnoticed::Unnoticed;

// Value from ebbprof.h.
const EBBPROF_CALLERS: c_uint = 1;

const DEFAULT_PERIOD: u64 = 100_003;

/// Runs a function's `action` and converts its result to the function's result.
fn status(action: impl FnOnce() -> Result<(), Error>) -> c_int {
    let unnoticed = Unnoticed::begin();
    let Err(error) = process::check_memory().and_then(|()| action()) else {
        return 0;
    };
    ebb::set_last_reason(error.reason());
    drop(unnoticed);
    set_errno(error.errno());
    -1
}

/// # Safety
///
/// `file` and `event` are each null or a NUL-terminated string.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebbprof_start(
    file: *const c_char,
    event: *const c_char,
    period: u64,
    flags: c_uint,
) -> c_int {
    let text = |text: *const c_char, default: &'static CStr| match text.is_null() {
        true => default,
        // SAFETY: The caller guarantees that `text` is a string if it is not null.
        false => unsafe { CStr::from_ptr(text) },
    };
    let wanted = Wanted {
        event: text(event, c"cycles"),
        period: if period == 0 { DEFAULT_PERIOD } else { period },
        callers: flags & EBBPROF_CALLERS != 0,
    };
    if flags & !EBBPROF_CALLERS != 0 {
        return status(|| Err(refused(libc::EINVAL, "unknown flags")));
    }
    if wanted.event.count_bytes() >= ebbprof_ring::TEXT {
        return status(|| Err(Error::NoSuchEvent));
    }
    if !thread::PERIODS.contains(&wanted.period) {
        return status(|| Err(refused(libc::EINVAL, "a period must be 100 to 2^63 counts")));
    }
    status(|| recording::start(text(file, c"perf.data"), &wanted))
}

#[unsafe(no_mangle)]
extern "C" fn ebbprof_sample_thread() -> c_int {
    status(recording::sample_thread)
}

#[unsafe(no_mangle)]
extern "C" fn ebbprof_pause() -> c_int {
    status(|| recording::set_paused(true))
}

#[unsafe(no_mangle)]
extern "C" fn ebbprof_resume() -> c_int {
    status(|| recording::set_paused(false))
}

#[unsafe(no_mangle)]
extern "C" fn ebbprof_dump() -> c_int {
    status(recording::dump)
}

#[unsafe(no_mangle)]
extern "C" fn ebbprof_stop() -> c_int {
    status(recording::stop)
}

/// # Safety
///
/// `buffer` is valid for writing `size` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebbprof_strerror(buffer: *mut c_char, size: usize) -> *mut c_char {
    let reason = ebb::last_reason();
    if let Some(room) = size.checked_sub(1) {
        let length = reason.len().min(room);
        // SAFETY: The caller guarantees `size` bytes, and `length` bytes plus the NUL fit in them.
        unsafe {
            buffer.copy_from_nonoverlapping(reason.as_ptr().cast(), length);
            buffer.add(length).write(0);
        }
    }
    buffer
}
