// SPDX-License-Identifier: MIT OR Apache-2.0
//! File descriptors that this library keeps open in the program. The program may close any
//! descriptor and reuse its number for a file of its own, so each is identified by its file, too.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicI32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// A descriptor, or none. Only one thread at a time may change it.
pub(crate) struct Kept {
    /// The descriptor plus 1; 0 if there is none.
    number: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

impl Kept {
    pub(crate) const fn none() -> Self {
        Self {
            number: AtomicI32::new(0),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
        }
    }

    /// Stores a descriptor, which is open.
    pub(crate) fn set(&self, descriptor: c_int) {
        let (device, inode) = file(descriptor).unwrap_or_default();
        self.device.store(device, Relaxed);
        self.inode.store(inode, Relaxed);
        self.number.store(descriptor + 1, Relaxed);
    }

    /// Returns the descriptor, unless the program has closed it.
    pub(crate) fn get(&self) -> Option<c_int> {
        let descriptor = self.number.load(Relaxed).checked_sub(1)?;
        let kept = (self.device.load(Relaxed), self.inode.load(Relaxed));
        (descriptor >= 0 && file(descriptor) == Some(kept)).then_some(descriptor)
    }

    /// Closes the descriptor. Returns whether it was still open.
    pub(crate) fn close(&self) -> bool {
        let own = self.get();
        if let Some(descriptor) = own {
            // SAFETY: `get` has checked that it is still the file of `set`, and it is closed once.
            unsafe { libc::close(descriptor) };
        }
        self.number.store(0, Relaxed);
        own.is_some()
    }
}

/// Returns the device and inode of an open file.
fn file(descriptor: c_int) -> Option<(u64, u64)> {
    let mut data = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `data` is read only if fstat() succeeds, which fills it in.
    unsafe {
        match libc::fstat(descriptor, data.as_mut_ptr()) {
            0 => Some(((*data.as_ptr()).st_dev, (*data.as_ptr()).st_ino)),
            _ => None,
        }
    }
}
