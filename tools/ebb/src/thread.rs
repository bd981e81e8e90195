// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state that a thread needs for its EBBs, and how code finds it.
//!
//! The block is thread-local by the initial-exec model of the ELFv2 TLS ABI: its offset from r13 is
//! fixed when the program or shared object is loaded. The handler may run between any two
//! instructions of the program, so it cannot call `__tls_get_addr`, as code in a shared object does
//! by default: that may allocate. Rust cannot select a TLS model for each variable; therefore the
//! block is defined in assembly.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::mem::offset_of;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::context::Rearm;
use crate::rseq;
use crate::word::Word;

/// The block of one thread. It is all zeroes in a thread that has never installed a handler.
///
/// The entries access it by offset. The handler changes it between any two instructions of the
/// program. Other threads only read some words, see `Shared::with_thread`.
#[repr(C)]
pub(crate) struct Thread {
    /// How the EBB in progress, or the next one, ends: a value of `Rearm`; or, once `disable` was
    /// called in the handler, that value shifted left by 32 plus `Rearm::Stop`. It is `Restart`
    /// whenever EBBs are on and none is in progress. Must be first, because the entries use the
    /// block's address for it.
    pub(crate) rearm: Word,
    /// Address of the `extern "C"` function that the entry calls; 0 before the first `install`.
    pub(crate) call: Word,
    /// The function's second argument: the bytes of the handler, possibly with padding.
    pub(crate) data: UnsafeCell<MaybeUninit<u64>>,
    /// Number of EBBs since `install`.
    pub(crate) ebbs: Word,
    /// Number of branches to the entry since `install` without BESCR\[PMEO\].
    pub(crate) spurious: Word,
    /// Address of the routine that reloads the counters: `reload::ebb_reload_any`, or one at
    /// `reload::ebb_reload_one`.
    pub(crate) reload: Word,
    /// Not 0 while an EBB is in progress. It is the address of the entry's frame, from before the
    /// handler runs until the counters are reloaded; or 1 if the EBB has still to end and the frame
    /// is not known. Outside of a handler (`progress.rs`) it means that the program has left the
    /// handler by `longjmp`.
    pub(crate) active: Word,
    /// Not 0 if a PMU register was found inaccessible in a handler, see `fixup.rs`.
    pub(crate) evicted: Word,
    /// The value that each counter is loaded with after it has overflowed, PMC1 first.
    pub(crate) start: [Word; 6],
    /// Address of the function for the program's handler, or 0 if none is installed. `call` has the
    /// same address unless `period.rs` has placed a function in between.
    pub(crate) handler: Word,
    /// Not 0 while `install` or `uninstall` changes what an EBB uses; EBBs stay off during that.
    pub(crate) changing: Word,
    /// Address of `period::call_due`, for the assembly code beside it.
    pub(crate) call_due: Word,
    /// For each counter: its period, or 0; the maximum deviation of a period from it; and how many
    /// times 2^31 counts follow after the next overflow.
    pub(crate) period: [Word; 6],
    pub(crate) jitter: [Word; 6],
    pub(crate) rounds: [Word; 6],
    /// A bit for each counter, PMC1's the lowest. If it is set, `rounds` and `start` are those of
    /// the period that begins with the next overflow, or whose period has begun but whose counter
    /// has not been reloaded since.
    pub(crate) drawn: Word,
    /// Incremented with each selection of `call`, and when `call_due` changes the drawn values.
    pub(crate) choices: Word,
    /// The last random number.
    pub(crate) random: Word,
    /// The text for the last error of the C library, with its length in the lowest [`LENGTH_BITS`].
    /// A single word, because a handler may write it between any two instructions of a reader or
    /// writer.
    reason: Word,
    /// Address of the `session::Shared` that this thread takes EBBs for, or 0.
    pub(crate) session: Word,
    /// Address of the session reference that `attached::attach` holds, or 0.
    pub(crate) held: Word,
    /// Not 0 if SIAR and SDAR are of marked instructions.
    pub(crate) marked: Word,
    /// Not 0 if EBBs are turned off when the thread's variables are destroyed, see `attached.rs`.
    pub(crate) has_end: Word,
    /// The number that [`number`] returns, or 0.
    number: Word,
    /// Always 0. The entries read it in place of `rseq_cs` if there is none, see `rseq.rs`.
    no_rseq_cs: Word,
}

impl Thread {
    /// Sets how the EBB in progress ends. While EBBs are disabled, it takes effect with `enable`.
    pub(crate) fn set_rearm(&self, rearm: u64) {
        self.rearm.update(|now| match is_disabled(now) {
            true => disabled(rearm),
            false => rearm,
        });
    }

    /// Sets [`active`](Self::active) to 1 if it is 0.
    pub(crate) fn note_active(&self) {
        if self.active.load() == 0 {
            self.active.store(1);
        }
    }

    /// Sets that the next EBB ends with the default, `Rearm::Restart`.
    pub(crate) fn reset_rearm(&self) {
        self.rearm.store(Rearm::Restart as u64);
    }

    /// Makes the EBB in progress end with the counters frozen and PME off.
    pub(crate) fn disable_rearm(&self) {
        self.rearm.update(|now| match is_disabled(now) {
            true => now,
            false => disabled(now),
        });
    }

    /// Undoes [`disable_rearm`](Self::disable_rearm).
    pub(crate) fn enable_rearm(&self) {
        self.rearm.update(|now| match is_disabled(now) {
            true => now >> 32,
            false => now,
        });
    }
}

/// Returns the value of [`Thread::rearm`] after `disable` in a handler that has requested `rearm`.
fn disabled(rearm: u64) -> u64 {
    rearm << 32 | Rearm::Stop as u64
}

fn is_disabled(rearm: u64) -> bool {
    rearm >> 32 != 0
}

/// Offset of [`Thread::call`].
pub(crate) const CALL: usize = offset_of!(Thread, call);
/// Offset of [`Thread::data`].
pub(crate) const DATA: usize = offset_of!(Thread, data);
/// Offset of [`Thread::ebbs`].
pub(crate) const EBBS: usize = offset_of!(Thread, ebbs);
/// Offset of [`Thread::spurious`].
pub(crate) const SPURIOUS: usize = offset_of!(Thread, spurious);
/// Offset of [`Thread::reload`].
pub(crate) const RELOAD: usize = offset_of!(Thread, reload);
/// Offset of [`Thread::active`].
pub(crate) const ACTIVE: usize = offset_of!(Thread, active);
/// Offset of [`Thread::handler`].
pub(crate) const HANDLER: usize = offset_of!(Thread, handler);
/// Offset of [`Thread::call_due`].
pub(crate) const CALL_DUE: usize = offset_of!(Thread, call_due);
/// Offset of [`Thread::rearm`].
pub(crate) const REARM: usize = offset_of!(Thread, rearm);
const _: () = assert!(REARM == 0);
/// Offset of [`Thread::start`].
pub(crate) const START: usize = offset_of!(Thread, start);
/// Offset of [`Thread::drawn`].
pub(crate) const DRAWN: usize = offset_of!(Thread, drawn);

core::arch::global_asm!(
    ".pushsection .tbss.ebb_thread, \"awT\", @nobits",
    ".balign 16",
    ".globl ebb_thread",
    ".hidden ebb_thread",
    ".type ebb_thread, @object",
    "ebb_thread: .zero {size}",
    ".size ebb_thread, {size}",
    ".popsection",
    // Distance of the block from r13, for the entries; 0 before `publish_offset`. It is not a
    // relocation (R_PPC64_TPREL64), because the linker leaves such a word 0 in a static program.
    ".pushsection .bss.ebb_thread_offset, \"aw\", @nobits",
    ".balign 8",
    ".globl ebb_thread_offset",
    ".hidden ebb_thread_offset",
    ".type ebb_thread_offset, @object",
    "ebb_thread_offset: .zero 8",
    ".size ebb_thread_offset, 8",
    ".popsection",
    ".pushsection .text.ebb_thread_block, \"ax\", @progbits",
    ".globl ebb_thread_block",
    ".hidden ebb_thread_block",
    ".type ebb_thread_block, @function",
    "ebb_thread_block:",
    ".cfi_startproc",
    "0: addis 2, 12, .TOC.-0b@ha",
    "addi 2, 2, .TOC.-0b@l",
    ".localentry ebb_thread_block, . - ebb_thread_block",
    "addis 3, 2, ebb_thread@got@tprel@ha",
    "ld 3, ebb_thread@got@tprel@l(3)",
    "add 3, 3, ebb_thread@tls",
    "blr",
    ".cfi_endproc",
    ".size ebb_thread_block, . - ebb_thread_block",
    ".popsection",
    size = const size_of::<Thread>(),
);

unsafe extern "C" {
    /// Returns the calling thread's block.
    safe fn ebb_thread_block() -> *const Thread;
    /// Distance of a thread's block from its r13, the same for all threads.
    #[link_name = "ebb_thread_offset"]
    static OFFSET: AtomicU64;
}

/// Returns the address of [`OFFSET`]. Each copy of this library has its own.
pub(crate) fn offset_address() -> u64 {
    (&raw const OFFSET).addr() as u64
}

/// Stores for the entries where a thread's block and its `rseq_cs` are.
pub(crate) fn publish_offset() {
    let thread_pointer: u64;
    // SAFETY: Only reads r13, which never changes in a thread.
    unsafe {
        core::arch::asm!("mr {}, 13", out(reg) thread_pointer,
            options(nomem, nostack, preserves_flags));
    }
    let block = ebb_thread_block().expose_provenance() as u64;
    let offset = block.wrapping_sub(thread_pointer);
    // SAFETY: All code accesses the variable as an `AtomicU64`; the entries only read it.
    unsafe { OFFSET.store(offset, Relaxed) };
    rseq::publish_offset(offset + offset_of!(Thread, no_rseq_cs) as u64);
}

/// Calls `action` with the calling thread's block. The reference is not `'static`, because the
/// block lives only as long as the thread.
pub(crate) fn with<R>(action: impl FnOnce(&Thread) -> R) -> R {
    // SAFETY: The block is zero-initialised thread-local storage of this size and alignment, and
    // lives as long as the thread that runs `action`.
    action(unsafe { &*ebb_thread_block() })
}

/// Number of the last thread that [`number`] was called on.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Returns a number that no other thread of this process ever has. The kernel may reuse a thread's
/// id after the thread has ended.
pub(crate) fn number() -> u64 {
    with(|t| match t.number.load() {
        0 => {
            let number = NUMBERS.fetch_add(1, Relaxed) + 1;
            // A signal handler may have set the number in the meantime.
            (t.number.compare_exchange(0, number)).map_or_else(|other| other, |_| number)
        }
        number => number,
    })
}

/// Number of bits for a length. The others hold an address, which has 52 bits at most in programs
/// of this architecture.
const LENGTH_BITS: u32 = 12;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;

/// Stores `reason` for [`last_reason`], for the C library. Truncates it to the length that fits.
#[doc(hidden)]
pub fn set_last_reason(reason: &'static str) {
    let length = reason.floor_char_boundary(LENGTH_MASK as usize) as u64;
    let address = reason.as_ptr().expose_provenance() as u64;
    with(|t| t.reason.store(address << LENGTH_BITS | length));
}

/// Returns the text that [`set_last_reason`] stored on this thread.
#[doc(hidden)]
#[must_use]
pub fn last_reason() -> &'static str {
    let reason = with(|t| t.reason.load());
    if reason == 0 {
        return "";
    }
    let address = core::ptr::with_exposed_provenance((reason >> LENGTH_BITS) as usize);
    let length = (reason & LENGTH_MASK) as usize;
    // SAFETY: `set_last_reason` stored the address and length of a `&'static str`, or of its
    // beginning.
    unsafe { str::from_utf8_unchecked(core::slice::from_raw_parts(address, length)) }
}
