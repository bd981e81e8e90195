// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C library's functions that this library has in front, by the same names.

#[cfg(not(feature = "wrap"))]
use core::ffi::CStr;
#[cfg(not(feature = "wrap"))]
use core::sync::atomic::AtomicUsize;
#[cfg(not(feature = "wrap"))]
use core::sync::atomic::Ordering::Relaxed;

/// The address of the C library's function of this name, or 0: of the shared object, which has the name
/// itself, or of a program that was linked with `--wrap` of it, as `ebbprof.pc` has it.
macro_rules! c_library {
    ($name:literal) => {{
        #[cfg(not(feature = "wrap"))]
        {
            static KNOWN: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);
            $crate::c_library::next(&KNOWN, concat!($name, "\0"))
        }
        #[cfg(feature = "wrap")]
        {
            unsafe extern "C" {
                #[link_name = concat!("__real_", $name)]
                fn real();
            }
            real as *const () as usize
        }
    }};
}
pub(crate) use c_library;

/// The next function of this name, which ends with 0: its address, which `known` keeps, or 0.
#[cfg(not(feature = "wrap"))]
pub(crate) fn next(known: &AtomicUsize, name: &str) -> usize {
    let mut address = known.load(Relaxed);
    if address == 0 {
        let name = CStr::from_bytes_until_nul(name.as_bytes()).unwrap_or_default();
        // SAFETY: a string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        address = found.expose_provenance();
        known.store(address, Relaxed);
    }
    address
}
