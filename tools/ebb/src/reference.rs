// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counted references to the shared part of a session, and the memory that holds it.
//!
//! A signal handler may close a session that the interrupted code still uses, in the middle of
//! another call; and that code may hold no more than the address so far. So memory that ever held a
//! session is never freed: code with an address always finds a count there, and a count of 0 means
//! that the session is closed. Memory is neither allocated nor freed in a signal handler, which may
//! have interrupted the C library's `malloc`. The next session, perhaps of another thread, may take
//! the memory before the interrupted code continues; therefore a session's address includes its
//! number.

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

/// Memory for a session, and a link to the next block in the list of all.
pub(crate) struct Block {
    shared: UnsafeCell<MaybeUninit<Shared>>,
    /// Number of [`Ref`]s, or [`TAKEN`] while `shared` is written. The upper half holds the
    /// session's number, from 1.
    references: AtomicU64,
    next: *mut Block,
}

const TAKEN: u64 = u32::MAX as u64;
const ONE_SESSION: u64 = 1 << 32;

/// A session's address is that of its block, shifted left by this many bits, plus the lowest bits
/// of its number. Programs of this architecture have addresses of at most 52 bits.
const NUMBER_BITS: u32 = 12;
const NUMBERS: u64 = 1 << NUMBER_BITS;

/// Returns the block and the number's bits of a session's address.
fn split(raw: *const c_void) -> (*mut Block, u64) {
    let block = ptr::with_exposed_provenance_mut(raw.addr() >> NUMBER_BITS);
    (block, raw.addr() as u64 % NUMBERS)
}

/// Returns the number's bits from [`Block::references`].
fn number(references: u64) -> u64 {
    references / ONE_SESSION % NUMBERS
}

/// The first block of the list. Blocks are added but never removed.
static BLOCKS: AtomicPtr<Block> = AtomicPtr::new(ptr::null_mut());

/// A counted reference to a session's block.
#[repr(transparent)]
pub(crate) struct Ref(NonNull<Block>);

// SAFETY: `Shared` is `Sync`, and the count is atomic.
unsafe impl Send for Ref {}
// SAFETY: `Shared` is `Sync`, and the count is atomic.
unsafe impl Sync for Ref {}

impl Ref {
    /// Returns the first reference to `shared`.
    pub(crate) fn new(shared: Shared) -> Result<Self, Error> {
        let block = match Self::take_free() {
            Some(block) => block,
            None => Self::allocate()?,
        };
        // SAFETY: Blocks are never freed. No other code accesses this one while it is `TAKEN`.
        unsafe {
            (*block.as_ref().shared.get()).write(shared);
            let references = &block.as_ref().references;
            let taken = references.load(Relaxed);
            references.store(taken - TAKEN + ONE_SESSION + 1, Release);
        }
        Ok(Self(block))
    }

    /// Marks a block without references as taken and returns it.
    fn take_free() -> Option<NonNull<Block>> {
        let mut next = BLOCKS.load(Acquire);
        while let Some(block) = NonNull::new(next) {
            // SAFETY: Blocks are never freed.
            let found = unsafe { block.as_ref() };
            let take = |count: u64| count.is_multiple_of(ONE_SESSION).then(|| count + TAKEN);
            if (found.references.fetch_update(Acquire, Relaxed, take)).is_ok() {
                return Some(block);
            }
            next = found.next;
        }
        None
    }

    /// Allocates a block, which is marked as taken.
    fn allocate() -> Result<NonNull<Block>, Error> {
        // SAFETY: The size of a `Block` is not 0.
        let memory = unsafe { alloc::alloc::alloc(Layout::new::<Block>()) }.cast::<Block>();
        let block = NonNull::new(memory).ok_or(Error::System {
            what: "malloc",
            errno: libc::ENOMEM,
            rule: Some("out of memory"),
        })?;
        let mut first = BLOCKS.load(Relaxed);
        loop {
            // SAFETY: The memory has the size of a block, and no other code has its address until
            // it is in the list.
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

    /// Returns a new reference to the session with the address `raw`, unless it is closed.
    ///
    /// # Safety
    ///
    /// `raw` is null or was returned by [`as_ptr`](Self::as_ptr) at some time.
    pub(crate) unsafe fn find(raw: *const c_void) -> Option<Self> {
        let (block, session) = split(raw);
        let block = NonNull::new(block)?;
        // SAFETY: The caller guarantees that it is a block's address, and blocks are never freed.
        let references = &unsafe { block.as_ref() }.references;
        let more = |count| {
            let there = !matches!(count % ONE_SESSION, 0 | TAKEN) && number(count) == session;
            there.then(|| count + 1)
        };
        references.fetch_update(Acquire, Relaxed, more).ok()?;
        Some(Self(block))
    }

    /// Returns the session's address. It must not be dereferenced.
    pub(crate) fn as_ptr(&self) -> *const c_void {
        // SAFETY: Blocks are never freed.
        let session = number(unsafe { self.0.as_ref() }.references.load(Relaxed));
        let block = self.0.as_ptr().expose_provenance();
        // CAST: The number has at most `NUMBER_BITS` bits.
        ptr::without_provenance(block << NUMBER_BITS | session as usize)
    }

    /// Returns the session's address and keeps the reference counted.
    pub(crate) fn into_raw(self) -> *const c_void {
        ManuallyDrop::new(self).as_ptr()
    }

    /// Takes back the reference that [`into_raw`](Self::into_raw) kept.
    ///
    /// # Safety
    ///
    /// `raw` was returned by `into_raw`, and each such address is passed here only once.
    pub(crate) unsafe fn from_raw(raw: *const c_void) -> Self {
        // SAFETY: The caller guarantees that `raw` is from `into_raw`, so the block is not null.
        Self(unsafe { NonNull::new_unchecked(split(raw).0) })
    }
}

impl Deref for Ref {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        // SAFETY: `new` has written it, and it stays valid as long as there is a reference.
        unsafe { (*self.0.as_ref().shared.get()).assume_init_ref() }
    }
}

impl Clone for Ref {
    fn clone(&self) -> Self {
        // SAFETY: Blocks are never freed.
        unsafe { self.0.as_ref() }.references.fetch_add(1, Relaxed);
        Self(self.0)
    }
}

impl Drop for Ref {
    fn drop(&mut self) {
        // SAFETY: Blocks are never freed. Nothing in `Shared` remains to be dropped after `close`.
        unsafe { self.0.as_ref() }.references.fetch_sub(1, AcqRel);
    }
}
