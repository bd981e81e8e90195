// SPDX-License-Identifier: MIT OR Apache-2.0
//! The executable mappings of the process, for `ebbprof`: when it looks itself, the process may
//! have ended.

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
    // SAFETY: the caller's contract.
    let (version, length) = unsafe { (&(*slot).maps_version, &(*slot).maps_length) };
    version.fetch_add(1, Release);
    fence(Release);
    // SAFETY: the time base is always readable; the caller's contract.
    unsafe { (*slot).maps_time.store(spr::read::<{ spr::TB }>(), Relaxed) };
    // SAFETY: a field of the slot.
    let text = unsafe { &raw mut (*slot).maps }.cast::<u8>();
    // SAFETY: the field has the bytes.
    let end = unsafe { copy(text) };
    // CAST: at most `MAPS`.
    length.store(end as u32, Release);
    version.fetch_add(1, Release);
}

/// Copies them, and has `ebbprof` read them now, which is waited for, a tenth of a second at most;
/// and not again before it has read what was waited for: it may have been killed.
///
/// # Safety
///
/// As [`write`].
#[cfg(not(feature = "wrap"))]
pub(crate) unsafe fn show(control: &Control, slot: *mut Slot) {
    const MOST: u32 = 100;
    /// After which a signal or a wake of before is no end of the waiting.
    const STEP: Duration = Duration::from_millis(1);
    // SAFETY: the caller's contract.
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

/// # Safety
///
/// `text` has [`MAPS`] bytes.
// SAFETY: the contract above.
unsafe fn copy(text: *mut u8) -> usize {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a path that ends with 0.
    let fd = unsafe { libc::open(c"/proc/self/maps".as_ptr(), flags) };
    if fd < 0 {
        return 0;
    }
    // The text of a line is written where the lines end, and stays there if it is wanted.
    let (mut end, mut line, mut blanks, mut executable) = (0, 0, 0, false);
    let mut buffer = [0_u8; 4096];
    loop {
        // SAFETY: the buffer has the bytes.
        let count = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
        let read = usize::try_from(count).ok().and_then(|n| buffer.get(..n));
        let Some(read @ [_, ..]) = read else { break };
        for &byte in read {
            if end + line < MAPS {
                // SAFETY: within the text.
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
                // The second word has the permissions.
                b'x' if blanks == 1 => executable = true,
                b' ' => blanks += 1,
                _ => {}
            }
        }
    }
    // SAFETY: it was opened here.
    unsafe { libc::close(fd) };
    end
}
