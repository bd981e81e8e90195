// SPDX-License-Identifier: MIT OR Apache-2.0
//! Restartable sequences of the interrupted code (rseq(2), `uapi/linux/rseq.h`).
//!
//! The kernel aborts a sequence that it preempts, moves or sends a signal to. It knows one by the
//! thread's `rseq_cs` and by the address that the thread goes on at. While an EBB is handled, that
//! address is the entry's or the handler's, which are outside: the kernel takes the sequence for
//! one that has ended, clears `rseq_cs`, and the sequence would go on as if nothing had been. So
//! each entry does what the kernel does for a signal (`rseq_update_user_cs()` in
//! `linux/rseq_entry.h`):
//!
//! * It clears `rseq_cs`, also if the interrupted address is outside. The kernel does so for the
//!   same reason: the next time there is nothing to look at.
//! * If the address is inside, the program goes on at the sequence's abort address. The handler
//!   still sees where it was.
//! * If the word before that address is not the signature, the program ends, by SIGTRAP here. The
//!   kernel looks at neither version nor flags, unless it debugs sequences, and so does no entry.
//!
//! An entry looks at the area that the C library has registered, and at a word that is 0 where it
//! has registered none: an older C library, or glibc with the tunable `glibc.pthread.rseq=0`.
//!
//! **What an entry cannot see**: the kernel also clears `rseq_cs` if it preempts the thread, or
//! delivers a signal, before the 15th instruction of the entry, which reads the word. The sequence
//! is not aborted then. No program can prevent that: the address has changed before the first
//! instruction, and nothing else records that there was a sequence.

use core::ffi::c_int;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Offset of `rseq_cs` in `struct rseq`.
const RSEQ_CS: u64 = 8;

/// Offsets in `struct rseq_cs`: the first instruction, how many bytes there are up to the last's
/// end, and where the program goes on if they are aborted.
pub(crate) const START_IP: usize = 8;
pub(crate) const POST_COMMIT_OFFSET: usize = 16;
pub(crate) const ABORT_IP: usize = 24;

/// Word before each abort address that the C library registers on this architecture
/// (`RSEQ_SIG`: `twui r5, 11`).
pub(crate) const SIGNATURE: u32 = 0x0fe5_000b;

// Addresses of the C library's `__rseq_offset` and `__rseq_size`, or 0: not every one has them.
core::arch::global_asm!(
    ".pushsection .data.rel.ro.ebb_rseq, \"aw\", @progbits",
    ".weak __rseq_offset",
    ".weak __rseq_size",
    ".balign 8",
    ".globl ebb_rseq_area",
    ".hidden ebb_rseq_area",
    ".type ebb_rseq_area, @object",
    "ebb_rseq_area: .quad __rseq_offset, __rseq_size",
    ".size ebb_rseq_area, 16",
    ".popsection",
    // Where `rseq_cs` is from r13, for the entries.
    ".pushsection .bss.ebb_rseq_cs_offset, \"aw\", @nobits",
    ".balign 8",
    ".globl ebb_rseq_cs_offset",
    ".hidden ebb_rseq_cs_offset",
    ".type ebb_rseq_cs_offset, @object",
    "ebb_rseq_cs_offset: .zero 8",
    ".size ebb_rseq_cs_offset, 8",
    ".popsection",
);

/// Addresses of variables of the C library.
#[repr(C)]
struct Area {
    /// Distance of the area from r13.
    offset: Option<&'static u64>,
    /// How much of the area is in use: 0 if it is not registered.
    size: Option<&'static c_int>,
}

unsafe extern "C" {
    #[link_name = "ebb_rseq_area"]
    static AREA: Area;
    /// Distance of a thread's `rseq_cs` from its r13, the same for all threads.
    #[link_name = "ebb_rseq_cs_offset"]
    static OFFSET: AtomicU64;
}

/// Stores for the entries where `rseq_cs` is: at `none` from r13 if the C library has registered no
/// area.
pub(crate) fn publish_offset(none: u64) {
    // SAFETY: the loader has put the addresses there, and the C library has set the variables
    // before any code of the program ran.
    let area = unsafe { (AREA.offset, AREA.size) };
    let offset = match area {
        (Some(offset), Some(size)) if *size != 0 => offset.wrapping_add(RSEQ_CS),
        _ => none,
    };
    // SAFETY: the variable is never anything else.
    unsafe { OFFSET.store(offset, Relaxed) };
}
