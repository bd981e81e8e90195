// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records the executable mappings of the process for `ebbprof`, which may read them only after the
//! process has ended.

use core::ptr;
#[cfg(not(feature = "wrap"))]
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::Ordering::Release;
use core::sync::atomic::fence;
#[cfg(not(feature = "wrap"))]
use core::time::Duration;

use ebb::spr;
#[cfg(not(feature = "wrap"))]
use ebbprof_ring::Control;
use ebbprof_ring::MAPS;
use ebbprof_ring::Slot;
#[cfg(not(feature = "wrap"))]
use ebbprof_ring::futex;

#[cfg(not(feature = "wrap"))]
use crate::memory;

/// Copies the lines of `/proc/self/maps` with executable mappings to `slot`, as many as fit.
///
/// # Safety
///
/// `slot` is mapped, and no other thread writes its mappings.
pub(crate) unsafe fn write(slot: *mut Slot) {
    // SAFETY: The caller guarantees that `slot` is mapped; both fields are atomics.
    let (version, length) = unsafe { (&(*slot).maps_version, &(*slot).maps_length) };
    version.fetch_add(1, Release);
    fence(Release);
    // SAFETY: Problem state can always read the time base, and the caller guarantees the slot.
    unsafe { (*slot).maps_time.store(spr::read::<{ spr::TB }>(), Relaxed) };
    // SAFETY: The caller guarantees that `slot` is mapped.
    let text = unsafe { &raw mut (*slot).maps }.cast::<u8>();
    // SAFETY: The field has `MAPS` bytes, and the caller guarantees that no other thread writes it.
    let end = unsafe { copy(text) };
    // CAST: The length is at most `MAPS`.
    length.store(end as u32, Release);
    version.fetch_add(1, Release);
}

/// Copies the mappings and waits until `ebbprof` has read them, for at most a tenth of a second.
/// After that it does not wait again before `ebbprof` has read that version: it may have been
/// killed.
///
/// # Safety
///
/// `slot` is mapped, and no other thread writes its mappings.
#[cfg(not(feature = "wrap"))]
pub(crate) unsafe fn show(control: &Control, slot: *mut Slot) {
    const MOST: u32 = 100;
    /// Maximum duration of one wait, because a signal or an earlier wake may end it.
    const STEP: Duration = Duration::from_millis(1);
    // SAFETY: The caller guarantees what `write` requires.
    let (version, read, late) = unsafe {
        write(slot);
        let slot = &*slot;
        let version = slot.maps_version.load(Relaxed);
        (version, &slot.maps_read, &slot.maps_late)
    };
    let missing = late.load(Relaxed);
    if missing != 0 && read.load(Acquire) < missing {
        return;
    }
    memory::ask(control);
    for _ in 0..MOST {
        let known = read.load(Acquire);
        if known == version {
            return;
        }
        futex::wait(read, known, STEP);
    }
    late.store(version, Relaxed);
}

/// Copies the lines with executable mappings to `text`. Returns their length.
///
/// # Safety
///
/// `text` is valid for writing [`MAPS`] bytes.
// SAFETY: The section "Safety" above has the contract.
unsafe fn copy(text: *mut u8) -> usize {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: The path is a NUL-terminated string.
    let fd = unsafe { libc::open(c"/proc/self/maps".as_ptr(), flags) };
    if fd < 0 {
        return 0;
    }
    // A line is written after the kept lines; it is kept when its end shows that it is executable.
    let (mut end, mut line, mut blanks, mut executable) = (0, 0, 0, false);
    let mut buffer = [0_u8; 4096];
    loop {
        // SAFETY: `buffer` has as many bytes as passed.
        let count = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
        let read = usize::try_from(count).ok().and_then(|n| buffer.get(..n));
        let Some(read @ [_, ..]) = read else { break };
        for &byte in read {
            if end + line < MAPS {
                // SAFETY: The check above shows that the byte is within the `MAPS` bytes of `text`.
                unsafe { ptr::write(text.add(end + line), byte) };
            }
            line += 1;
            match byte {
                b'\n' => {
                    if executable && end + line <= MAPS {
                        end += line;
                    }
                    (line, blanks, executable) = (0, 0, false);
                }
                // The permissions are in the second word.
                b'x' if blanks == 1 => executable = true,
                b' ' => blanks += 1,
                _ => {}
            }
        }
    }
    // SAFETY: `fd` was opened above, and no other code has it.
    unsafe { libc::close(fd) };
    end
}
