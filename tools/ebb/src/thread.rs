// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a thread needs for its EBBs, and the way to it.
//!
//! The block is thread-local by the initial-exec model of the ELFv2 TLS ABI: its offset
//! from r13 is fixed when the program or shared object is loaded. The handler may run
//! between any two instructions of the program, so it cannot call `__tls_get_addr`, as
//! a shared object would by default: that may allocate. Rust has no way to ask for a
//! model by variable; therefore the block is defined in assembly.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::mem::offset_of;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::context::Rearm;
use crate::rseq;
use crate::word::Word;

/// The block of one thread. All zeroes is a thread that has never installed a handler.
///
/// The entries read and write it by offset. The handler changes it between any two instructions of
/// the program. Other threads only look at some words, see `Shared::with_thread`.
#[repr(C)]
pub(crate) struct Thread {
    /// How the EBB in progress, or the next, ends: a value of `Rearm`; or that shifted left by 32,
    /// and `Rearm::Stop`, once `disable` was called in the handler. `Restart` whenever EBBs are on
    /// and none is in progress. First, for the entries.
    pub(crate) rearm: Word,
    /// Address of the `extern "C"` function that the entry calls; 0 before the first `install`.
    pub(crate) call: Word,
    /// Its second argument: the bytes of the handler, padding perhaps.
    pub(crate) data: UnsafeCell<MaybeUninit<u64>>,
    /// EBBs since `install`.
    pub(crate) ebbs: Word,
    /// Branches to the entry since `install` without BESCR\[PMEO\].
    pub(crate) spurious: Word,
    /// Address of the routine that reloads the counters: `reload::ebb_reload_any`, or one at
    /// `reload::ebb_reload_one`.
    pub(crate) reload: Word,
    /// Not 0 while an EBB is in progress: the address of the entry's frame, from before the handler
    /// runs until the counters are reloaded; 1 where the EBB has still to end and the frame is not
    /// known. Outside of a handler (`progress.rs`) it means that the program has left the handler by
    /// `longjmp`.
    pub(crate) active: Word,
    /// Not 0: a PMU register was found inaccessible in a handler, see `fixup.rs`.
    pub(crate) evicted: Word,
    /// What each counter is loaded with after it has overflowed, PMC1 first.
    pub(crate) start: [Word; 6],
    /// Address of the function for the program's handler, or 0: nothing is installed. `call` has it
    /// too, unless `period.rs` has put itself between.
    pub(crate) handler: Word,
    /// Not 0 while `install` or `uninstall` changes what an EBB uses: EBBs stay off so long.
    pub(crate) changing: Word,
    /// Address of `period::call_due`, for its neighbours in assembly.
    pub(crate) call_due: Word,
    /// For each counter: its period, or 0; by how much a period may differ from it; how many
    /// times 2^31 counts are still to come after the next overflow.
    pub(crate) period: [Word; 6],
    pub(crate) jitter: [Word; 6],
    pub(crate) rounds: [Word; 6],
    /// A bit for each counter, PMC1's the lowest: `rounds` and `start` are those of the period that
    /// begins with its next overflow, or has begun with one since which it was not loaded.
    pub(crate) drawn: Word,
    /// Goes up with each choice of `call`, and with what `call_due` changes.
    pub(crate) choices: Word,
    /// The last random number.
    pub(crate) random: Word,
    /// The text for the last error of the C library, its length in the lowest [`LENGTH_BITS`]. One
    /// word, as a handler may write it between any two instructions of who reads it, or writes it too.
    reason: Word,
    /// Address of the `session::Shared` that this thread takes EBBs for, or 0.
    pub(crate) session: Word,
    /// What `attached::attach` holds of it, as an address, or 0.
    pub(crate) held: Word,
    /// Not 0: SIAR and SDAR are of marked instructions.
    pub(crate) marked: Word,
    /// Not 0: the end of the thread's variables turns its EBBs off, see `attached.rs`.
    pub(crate) has_end: Word,
    /// What [`number`] gives, or 0.
    number: Word,
    /// 0: what an entry takes for `rseq_cs` where there is none, see `rseq.rs`.
    no_rseq_cs: Word,
}

impl Thread {
    /// Sets how the EBB in progress goes on, unless EBBs stay disabled.
    pub(crate) fn set_rearm(&self, rearm: u64) {
        self.rearm.update(|now| match is_disabled(now) {
            true => disabled(rearm),
            false => rearm,
        });
    }

    /// Has [`active`](Self::active) not be 0; it keeps the address that it may have.
    pub(crate) fn note_active(&self) {
        if self.active.load() == 0 {
            self.active.store(1);
        }
    }

    /// Has the next EBB end as if nothing was asked for.
    pub(crate) fn reset_rearm(&self) {
        self.rearm.store(Rearm::Restart as u64);
    }

    /// Has the EBB in progress leave the counters frozen and PME off.
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

/// Value of [`Thread::rearm`] once `disable` was called in a handler that has asked for `rearm`.
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
    // Where it is from r13, for the entries: 0 before `publish_offset`. It is not left to the
    // linker, which in a static program leaves such a word (R_PPC64_TPREL64) 0.
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
    /// The calling thread's block.
    safe fn ebb_thread_block() -> *const Thread;
    /// Distance of a thread's block from its r13, the same for all threads.
    #[link_name = "ebb_thread_offset"]
    static OFFSET: AtomicU64;
}

/// Address of [`OFFSET`], of which each copy of this library has one.
pub(crate) fn offset_address() -> u64 {
    (&raw const OFFSET).addr() as u64
}

/// Tells the entries where a thread's block is, and its `rseq_cs`.
pub(crate) fn publish_offset() {
    let thread_pointer: u64;
    // SAFETY: reads a register that nobody changes.
    unsafe {
        core::arch::asm!("mr {}, 13", out(reg) thread_pointer,
            options(nomem, nostack, preserves_flags));
    }
    let block = ebb_thread_block().expose_provenance() as u64;
    let offset = block.wrapping_sub(thread_pointer);
    // SAFETY: the variable is never anything else.
    unsafe { OFFSET.store(offset, Relaxed) };
    rseq::publish_offset(offset + offset_of!(Thread, no_rseq_cs) as u64);
}

/// The calling thread's block. Not `'static`: it goes with the thread, so nobody keeps it.
pub(crate) fn with<R>(action: impl FnOnce(&Thread) -> R) -> R {
    // SAFETY: the block is zero-initialised thread-local storage of this size and
    // alignment, and lives as long as the thread that runs `action`.
    action(unsafe { &*ebb_thread_block() })
}

/// Numbers that [`number`] has given.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// A number that no other thread of this process has, also after the calling one has ended: the
/// kernel's is another thread's then.
pub(crate) fn number() -> u64 {
    with(|t| match t.number.load() {
        0 => {
            let number = NUMBERS.fetch_add(1, Relaxed) + 1;
            // A signal's handler may have asked meanwhile.
            (t.number.compare_exchange(0, number)).map_or_else(|other| other, |_| number)
        }
        number => number,
    })
}

/// Above them there is room for an address: programs of this architecture have 52 bits at most.
const LENGTH_BITS: u32 = 12;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;

/// Keeps `reason`, as far as its length has room, for [`last_reason`], for the C library.
#[doc(hidden)]
pub fn set_last_reason(reason: &'static str) {
    let length = reason.floor_char_boundary(LENGTH_MASK as usize) as u64;
    let address = reason.as_ptr().expose_provenance() as u64;
    with(|t| t.reason.store(address << LENGTH_BITS | length));
}

/// What [`set_last_reason`] was given on this thread.
#[doc(hidden)]
#[must_use]
pub fn last_reason() -> &'static str {
    let reason = with(|t| t.reason.load());
    if reason == 0 {
        return "";
    }
    let address = core::ptr::with_exposed_provenance((reason >> LENGTH_BITS) as usize);
    let length = (reason & LENGTH_MASK) as usize;
    // SAFETY: the two parts of a `&'static str`.
    unsafe { str::from_utf8_unchecked(core::slice::from_raw_parts(address, length)) }
}
