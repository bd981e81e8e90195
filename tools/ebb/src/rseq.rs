// SPDX-License-Identifier: MIT OR Apache-2.0
//! Restartable sequences of the interrupted code (rseq(2), `uapi/linux/rseq.h`).
//!
//! The kernel aborts a sequence that it preempts, migrates or sends a signal to. It detects one by
//! the thread's `rseq_cs` and its next instruction's address. During an EBB that address is in the
//! entry or the handler, outside of the sequence. The kernel would assume that the sequence has
//! ended and clear `rseq_cs`, and the sequence would continue as if it had not been interrupted. So
//! each entry does what the kernel does for a signal (`rseq_update_user_cs()` in
//! `linux/rseq_entry.h`):
//!
//! * It clears `rseq_cs`, even if the interrupted address is outside, like the kernel: there is
//!   nothing to check the next time.
//! * If the address is inside, the program continues at the sequence's abort address. The handler
//!   still sees the interrupted address.
//! * If the word before the abort address is not the signature, the program is killed, here by
//!   SIGTRAP. The kernel checks version and flags only when it debugs sequences; no entry does.
//!
//! An entry reads the area that the C library has registered. If it has registered none, the entry
//! reads a word that is 0; this is so with an older C library, or with glibc and the tunable
//! `glibc.pthread.rseq=0`.
//!
//! **Limitation**: the kernel also clears `rseq_cs` if it preempts the thread or delivers a signal
//! before the 15th instruction of the entry, which reads the word. The sequence is then not
//! aborted. No program can prevent that: the address has changed before the first instruction, and
//! nothing else records that there was a sequence.

use core::ffi::c_int;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Offset of `rseq_cs` in `struct rseq`.
const RSEQ_CS: u64 = 8;

/// Offsets in `struct rseq_cs` of the first instruction's address, the length in bytes, and the
/// address at which an aborted program continues.
pub(crate) const START_IP: usize = 8;
pub(crate) const POST_COMMIT_OFFSET: usize = 16;
pub(crate) const ABORT_IP: usize = 24;

/// Word before each abort address, which the C library registers on this architecture
/// (`RSEQ_SIG`: `twui r5, 11`).
pub(crate) const SIGNATURE: u32 = 0x0fe5_000b;

// Addresses of the C library's `__rseq_offset` and `__rseq_size`, or 0 if it has no such variables.
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
    // Distance of `rseq_cs` from r13, for the entries.
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
    /// Size of the part of the area that is in use; 0 if it is not registered.
    size: Option<&'static c_int>,
}

unsafe extern "C" {
    #[link_name = "ebb_rseq_area"]
    static AREA: Area;
    /// Distance of a thread's `rseq_cs` from its r13, the same for all threads.
    #[link_name = "ebb_rseq_cs_offset"]
    static OFFSET: AtomicU64;
}

/// Stores the distance of `rseq_cs` from r13 for the entries: `none` if the C library has
/// registered no area.
pub(crate) fn publish_offset(none: u64) {
    // SAFETY: The dynamic loader or the linker has set the addresses, and the C library has set the
    // variables, before any code of the program ran.
    let area = unsafe { (AREA.offset, AREA.size) };
    let offset = match area {
        (Some(offset), Some(size)) if *size != 0 => offset.wrapping_add(RSEQ_CS),
        _ => none,
    };
    // SAFETY: All code accesses the variable as an `AtomicU64`; the entries only read it.
    unsafe { OFFSET.store(offset, Relaxed) };
}
