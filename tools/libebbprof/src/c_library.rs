// SPDX-License-Identifier: MIT OR Apache-2.0
//! The addresses of the C library's functions that this library interposes.

#[cfg(not(feature = "wrap"))]
use core::ffi::CStr;
#[cfg(not(feature = "wrap"))]
use core::sync::atomic::AtomicUsize;
#[cfg(not(feature = "wrap"))]
use core::sync::atomic::Ordering::Relaxed;

/// Returns the address of the C library's function of this name, or 0. The shared object defines a
/// function of the same name; programs are linked with `--wrap` for it, as in `ebbprof.pc`.
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

/// Returns the address of the next function with this NUL-terminated name, or 0. Caches it in
/// `known`.
#[cfg(not(feature = "wrap"))]
pub(crate) fn next(known: &AtomicUsize, name: &str) -> usize {
    let mut address = known.load(Relaxed);
    if address == 0 {
        let name = CStr::from_bytes_until_nul(name.as_bytes()).unwrap_or_default();
        // SAFETY: `name` is a NUL-terminated string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        address = found.expose_provenance();
        known.store(address, Relaxed);
    }
    address
}
