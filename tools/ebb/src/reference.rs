// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counted references to what threads share of a session, and the memory that it is in.
//!
//! A signal's handler may close a session that the code below it, in the middle of another call,
//! still uses; and that code may have come no further than to the address. So memory that had a
//! session once stays that for ever: who has an address finds a count there, and a count of 0 says
//! that the session is closed. It is neither allocated nor freed in a signal's handler, which may have
//! interrupted the C library's `malloc`. The next session takes that memory, perhaps another thread's,
//! before the interrupted code goes on: a session's address has its number in it.

extern crate alloc;

use alloc::alloc::Layout;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::mem::MaybeUninit;
use core::ops::Deref;
use core::ptr;
use core::ptr::NonNull;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::AcqRel;
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::Ordering::Release;

use crate::error::Error;
use crate::shared::Shared;

/// Memory for a session, and the next in the list of all.
pub(crate) struct Block {
    shared: UnsafeCell<MaybeUninit<Shared>>,
    /// How many [`Ref`]s there are, or [`TAKEN`] while `shared` is written; in the upper half the
    /// session's number, from 1.
    references: AtomicU64,
    next: *mut Block,
}

const TAKEN: u64 = u32::MAX as u64;
const ONE_SESSION: u64 = 1 << 32;

/// A session's address is that of its block, shifted left by this, and the lowest bits of its number:
/// programs of this architecture have 52 bits of addresses at most.
const NUMBER_BITS: u32 = 12;
const NUMBERS: u64 = 1 << NUMBER_BITS;

/// The block, and the number's bits.
fn split(raw: *const c_void) -> (*mut Block, u64) {
    let block = ptr::with_exposed_provenance_mut(raw.addr() >> NUMBER_BITS);
    (block, raw.addr() as u64 % NUMBERS)
}

/// These bits of [`Block::references`].
fn number(references: u64) -> u64 {
    references / ONE_SESSION % NUMBERS
}

/// The first of the list, to which blocks are added only.
static BLOCKS: AtomicPtr<Block> = AtomicPtr::new(ptr::null_mut());

/// A counted reference to a session's block.
#[repr(transparent)]
pub(crate) struct Ref(NonNull<Block>);

// SAFETY: `Shared` is for all threads, and so is the count.
unsafe impl Send for Ref {}
// SAFETY: as before.
unsafe impl Sync for Ref {}

impl Ref {
    /// The first reference to `shared`.
    pub(crate) fn new(shared: Shared) -> Result<Self, Error> {
        let block = match Self::take_free() {
            Some(block) => block,
            None => Self::allocate()?,
        };
        // SAFETY: blocks stay. As long as it is taken nobody else looks at it.
        unsafe {
            (*block.as_ref().shared.get()).write(shared);
            let references = &block.as_ref().references;
            let taken = references.load(Relaxed);
            references.store(taken - TAKEN + ONE_SESSION + 1, Release);
        }
        Ok(Self(block))
    }

    /// A block without references, which is taken now.
    fn take_free() -> Option<NonNull<Block>> {
        let mut next = BLOCKS.load(Acquire);
        while let Some(block) = NonNull::new(next) {
            // SAFETY: blocks stay.
            let found = unsafe { block.as_ref() };
            let take = |count: u64| count.is_multiple_of(ONE_SESSION).then(|| count + TAKEN);
            if (found.references.fetch_update(Acquire, Relaxed, take)).is_ok() {
                return Some(block);
            }
            next = found.next;
        }
        None
    }

    /// One more block, which is taken.
    fn allocate() -> Result<NonNull<Block>, Error> {
        // SAFETY: the size is not 0.
        let memory = unsafe { alloc::alloc::alloc(Layout::new::<Block>()) }.cast::<Block>();
        let block = NonNull::new(memory).ok_or(Error::System {
            what: "malloc",
            errno: libc::ENOMEM,
            rule: Some("there is no memory"),
        })?;
        let mut first = BLOCKS.load(Relaxed);
        loop {
            // SAFETY: of this size, and nobody else's until it is in the list.
            unsafe {
                block.write(Block {
                    shared: UnsafeCell::new(MaybeUninit::uninit()),
                    references: AtomicU64::new(TAKEN),
                    next: first,
                });
            }
            match BLOCKS.compare_exchange(first, block.as_ptr(), Release, Relaxed) {
                Ok(_) => return Ok(block),
                Err(other) => first = other,
            }
        }
    }

    /// One more reference to the session that `raw` is the address of, unless it has none.
    ///
    /// # Safety
    ///
    /// `raw` is null or was of [`as_ptr`](Self::as_ptr), some time.
    pub(crate) unsafe fn find(raw: *const c_void) -> Option<Self> {
        let (block, session) = split(raw);
        let block = NonNull::new(block)?;
        // SAFETY: blocks stay.
        let references = &unsafe { block.as_ref() }.references;
        let more = |count| {
            let there = !matches!(count % ONE_SESSION, 0 | TAKEN) && number(count) == session;
            there.then(|| count + 1)
        };
        references.fetch_update(Acquire, Relaxed, more).ok()?;
        Some(Self(block))
    }

    /// The session's address, where nothing can be read.
    pub(crate) fn as_ptr(&self) -> *const c_void {
        // SAFETY: blocks stay.
        let session = number(unsafe { self.0.as_ref() }.references.load(Relaxed));
        let block = self.0.as_ptr().expose_provenance();
        // CAST: some bits.
        ptr::without_provenance(block << NUMBER_BITS | session as usize)
    }

    /// The address, which keeps the reference.
    pub(crate) fn into_raw(self) -> *const c_void {
        ManuallyDrop::new(self).as_ptr()
    }

    /// # Safety
    ///
    /// `raw` is of [`into_raw`](Self::into_raw), once.
    pub(crate) unsafe fn from_raw(raw: *const c_void) -> Self {
        // SAFETY: the caller's contract.
        Self(unsafe { NonNull::new_unchecked(split(raw).0) })
    }
}

impl Deref for Ref {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        // SAFETY: it was written, and stays as long as there is a reference.
        unsafe { (*self.0.as_ref().shared.get()).assume_init_ref() }
    }
}

impl Clone for Ref {
    fn clone(&self) -> Self {
        // SAFETY: blocks stay.
        unsafe { self.0.as_ref() }.references.fetch_add(1, Relaxed);
        Self(self.0)
    }
}

impl Drop for Ref {
    fn drop(&mut self) {
        // SAFETY: blocks stay. Of `Shared` nothing is left to be dropped: `close` came before.
        unsafe { self.0.as_ref() }.references.fetch_sub(1, AcqRel);
    }
}
