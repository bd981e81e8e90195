// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions for handlers. A handler may run with only the GPRs saved, so nothing here calls the C
//! library, whose `memcpy` uses vector registers.

use core::ffi::c_int;
use core::ffi::c_uint;
use core::mem::MaybeUninit;

use ebb::EbbContext;
use ebb::Pmc;
use ebb::Rearm;
use ebb::bhrb;
use ebb::reg::Mmcr2;

/// The layout of `struct ebb_branch`.
#[repr(C)]
struct Branch {
    from: u64,
    to: u64,
    flags: u64,
}

// Values from ebb.h; check-abi.py compares them.
const EBB_BRANCH_TARGET: u64 = 1;
const EBB_BRANCH_MISPREDICTED: u64 = 2;
const EBB_RESTART: c_uint = 0;
const EBB_KEEP: c_uint = 1;
const EBB_STOP: c_uint = 2;

/// Stores `value` at `place` and returns 1, or returns 0 if there is none.
///
/// # Safety
///
/// `place` is valid for writing.
unsafe fn give(value: Option<u64>, place: *mut u64) -> c_int {
    match value {
        Some(value) => {
            // SAFETY: The caller guarantees that `place` is valid for writing.
            unsafe { place.write(value) };
            1
        }
        None => 0,
    }
}

#[unsafe(no_mangle)]
extern "C" fn ebb_context_address(context: &EbbContext<'_>) -> u64 {
    context.interrupted()
}

/// # Safety
///
/// The program must be able to continue at `address` with its registers as they were interrupted.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_set_resume_address(context: &mut EbbContext<'_>, address: u64) {
    // SAFETY: The caller guarantees that the program can continue there.
    unsafe { context.set_interrupted(address) };
}

/// # Safety
///
/// `value` is valid for writing.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_context_gpr(
    context: &EbbContext<'_>,
    n: c_uint,
    value: *mut u64,
) -> c_int {
    // SAFETY: The caller guarantees that `value` is valid for writing.
    unsafe { give(context.gpr(n as usize), value) }
}

#[unsafe(no_mangle)]
extern "C" fn ebb_context_lr(context: &EbbContext<'_>) -> u64 {
    context.link_register()
}

#[unsafe(no_mangle)]
extern "C" fn ebb_context_ctr(context: &EbbContext<'_>) -> u64 {
    context.count_register()
}

#[unsafe(no_mangle)]
extern "C" fn ebb_context_cr(context: &EbbContext<'_>) -> u64 {
    context.condition_register()
}

#[unsafe(no_mangle)]
extern "C" fn ebb_context_xer(context: &EbbContext<'_>) -> u64 {
    context.xer()
}

#[unsafe(no_mangle)]
extern "C" fn ebb_context_tar(context: &EbbContext<'_>) -> u64 {
    context.tar()
}

/// # Safety
///
/// `address` is valid for writing.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_context_siar(context: &EbbContext<'_>, address: *mut u64) -> c_int {
    // SAFETY: The caller guarantees that `address` is valid for writing.
    unsafe { give(context.sampled(), address) }
}

/// # Safety
///
/// `address` is valid for writing.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_context_sdar(context: &EbbContext<'_>, address: *mut u64) -> c_int {
    // SAFETY: The caller guarantees that `address` is valid for writing.
    unsafe { give(context.sampled_data(), address) }
}

/// # Safety
///
/// `value` is valid for writing.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_context_sier(
    context: &EbbContext<'_>,
    n: c_uint,
    value: *mut u64,
) -> c_int {
    // SAFETY: The caller guarantees that `value` is valid for writing.
    unsafe { give(context.sier(n as usize), value) }
}

#[unsafe(no_mangle)]
extern "C" fn ebb_context_mmcr2(_: &EbbContext<'_>) -> u64 {
    Mmcr2::read().0
}

#[unsafe(no_mangle)]
extern "C" fn ebb_context_set_mmcr2(_: &mut EbbContext<'_>, value: u64) {
    Mmcr2(value).write();
}

#[unsafe(no_mangle)]
extern "C" fn ebb_context_time_base(context: &EbbContext<'_>) -> u64 {
    context.time_base()
}

#[unsafe(no_mangle)]
extern "C" fn ebb_context_number(context: &EbbContext<'_>) -> u64 {
    context.number()
}

#[unsafe(no_mangle)]
extern "C" fn ebb_context_counter(context: &EbbContext<'_>, pmc: c_uint) -> u32 {
    // CAST: Numbers above 255 are replaced by 255, which is no counter either.
    match Pmc::new(pmc.min(255) as u8) {
        Some(pmc) => context.value(pmc),
        None => 0,
    }
}

#[unsafe(no_mangle)]
extern "C" fn ebb_context_set_counter(_: &mut EbbContext<'_>, pmc: c_uint, value: u32) {
    // CAST: Numbers above 255 are replaced by 255, which is no counter either.
    if let Some(pmc) = Pmc::new(pmc.min(255) as u8) {
        pmc.write(value);
    }
}

#[unsafe(no_mangle)]
extern "C" fn ebb_context_overflowed(context: &EbbContext<'_>, pmc: c_uint) -> c_int {
    (ebb_context_counter(context, pmc) >= ebb::pmc::OVERFLOW).into()
}

/// # Safety
///
/// `branches` is valid for writing `count` elements.
#[unsafe(no_mangle)]
unsafe extern "C" fn ebb_context_branches(
    context: &EbbContext<'_>,
    branches: *mut Branch,
    count: usize,
) -> usize {
    let mut entries = MaybeUninit::<[u64; bhrb::ENTRIES]>::uninit();
    // SAFETY: `branches` writes each element before it reads it, and any bits are a `u64`.
    let entries = unsafe { &mut *entries.as_mut_ptr() };
    let mut n = 0;
    for branch in context.branches(entries) {
        if n == count {
            break;
        }
        let mut flags = 0;
        if branch.to.is_some() {
            flags |= EBB_BRANCH_TARGET;
        }
        if branch.mispredicted {
            flags |= EBB_BRANCH_MISPREDICTED;
        }
        let branch = Branch {
            from: branch.from,
            to: branch.to.unwrap_or(0),
            flags,
        };
        // SAFETY: The caller guarantees `count` elements, and `n` is below that.
        unsafe { branches.add(n).write(branch) };
        n += 1;
    }
    n
}

#[unsafe(no_mangle)]
extern "C" fn ebb_rearm(context: &mut EbbContext<'_>, rearm: c_uint) {
    context.rearm(match rearm {
        EBB_KEEP => Rearm::Keep,
        EBB_STOP => Rearm::Stop,
        EBB_RESTART.. => Rearm::Restart,
    });
}
