// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors that this library keeps in a program which closes whatever it does not know, and
//! opens files of its own in the same place: each is known by its file, too.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicI32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// A descriptor, or none. Who changes it holds off others that would.
pub(crate) struct Kept {
    /// Plus 1; 0: none.
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

    /// Keeps this one, which is open.
    pub(crate) fn set(&self, descriptor: c_int) {
        let (device, inode) = file(descriptor).unwrap_or_default();
        self.device.store(device, Relaxed);
        self.inode.store(inode, Relaxed);
        self.number.store(descriptor + 1, Relaxed);
    }

    /// It, unless the program has closed it.
    pub(crate) fn get(&self) -> Option<c_int> {
        let descriptor = self.number.load(Relaxed).checked_sub(1)?;
        let kept = (self.device.load(Relaxed), self.inode.load(Relaxed));
        (descriptor >= 0 && file(descriptor) == Some(kept)).then_some(descriptor)
    }

    /// Closes it; tells whether it was still open.
    pub(crate) fn close(&self) -> bool {
        let own = self.get();
        if let Some(descriptor) = own {
            // SAFETY: of `set`, and closed once.
            unsafe { libc::close(descriptor) };
        }
        self.number.store(0, Relaxed);
        own.is_some()
    }
}

/// The device and the inode of an open file.
fn file(descriptor: c_int) -> Option<(u64, u64)> {
    let mut data = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the call fills in what is read if it succeeds.
    unsafe {
        match libc::fstat(descriptor, data.as_mut_ptr()) {
            0 => Some(((*data.as_ptr()).st_dev, (*data.as_ptr()).st_ino)),
            _ => None,
        }
    }
}
