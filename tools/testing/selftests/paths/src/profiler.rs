// SPDX-License-Identifier: GPL-2.0
//! A sample as `ebbprof` takes it, by its own handler, and as a program gets one without EBBs: in
//! perf's ring, and by a signal.

#[path = "../../../../libebbprof/src/handler.rs"]
mod handler;

use std::alloc::Layout;
use std::alloc::alloc_zeroed;
use std::hint::black_box;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use ebb::Save;
use ebb::Session;
use ebbprof_ring::ALIGN;
use ebbprof_ring::Slot;
use ktap::Failure;
use pmu_selftests::fields::sample::*;
use pmu_selftests::prelude::*;

use crate::Path;
use crate::Run;
use crate::Walk;
use crate::profiler::handler::Ring;
use crate::samples::PERIOD;
use crate::samples::record;
use crate::section;

/// `F_SETSIG` of the kernel's `fcntl.h`, which the libc crate lacks here.
const F_SETSIG: libc::c_int = 10;
/// Words of the ring: more than the samples of all runs have.
const WORDS: u64 = 1 << 16;
/// Functions that the work is called through: more than any sample has callers.
const DEPTH: u64 = 40;

pub fn paths() -> Vec<Path> {
    vec![
        Path::new("sample, 17 callers", 30, || perf(17)),
        Path::new("sample by a signal", 6, signals),
        Path::new("ebbprof, no callers", 30, || ebbprof(0)),
        Path::new("ebbprof, 1 caller", 30, || ebbprof(1)),
        Path::new("ebbprof, 17 callers", 30, || ebbprof(17)),
    ]
}

/// Works in a function that has been called through so many others.
#[inline(never)]
fn deep(depth: u64, work: &mut dyn FnMut()) {
    if depth == 0 {
        work();
    } else {
        deep(black_box(depth - 1), work);
    }
    // The call before is no jump.
    black_box(depth);
}

/// Works for so many instructions.
fn work(instructions: u64) -> Outcome {
    deep(DEPTH, &mut || {
        work::run(instructions);
    });
    Ok(())
}

fn perf(callers: u16) -> Result<Walk, Failure> {
    let attr = Attr::cycles().user_only();
    let attr = attr.sampling(PERIOD, IP | TID | TIME | CALLCHAIN);
    // The first is where it was.
    let attr = attr.with(|attr| attr.sample_max_stack = callers + 1);
    record(attr, work, |_| Ok(()))
}

/// Samples that signals brought, and the address of the last.
static SIGNALS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

extern "C" fn on_signal(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    /// Of `PT_NIP`.
    const NIP: usize = 32;
    // SAFETY: the kernel gives the context of the interrupted code.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    SIGNALS[1].store(context.uc_mcontext.gp_regs[NIP], Relaxed);
    SIGNALS[0].fetch_add(1, Relaxed);
}

fn signals() -> Result<Walk, Failure> {
    /// Longer than a signal takes: the emulator counts the kernel's cycles too.
    const PERIOD: u64 = 100_003;
    let event = Attr::cycles().user_only().sampling(PERIOD, IP).open()?;
    let number = libc::SIGRTMIN();
    let handler: extern "C" fn(_, _, _) = on_signal;
    // SAFETY: all zeroes is one, and the handler stores to atomics only.
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        let fd = event.as_raw_fd();
        libc::sigaction(number, &action, std::ptr::null_mut()) == 0
            && libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK) == 0
            && libc::fcntl(fd, F_SETSIG, number) == 0
            && libc::fcntl(fd, libc::F_SETOWN, libc::getpid()) == 0
    };
    check!(done, "signal {number}: {}", io::Error::last_os_error());
    Ok(Box::new(move |rounds| {
        let less = section::measure_rest(|| work(rounds * PERIOD))?;
        let before = SIGNALS[0].load(Relaxed);
        event.enable()?;
        let ticks = section::measure(|| work(rounds * PERIOD))?;
        event.disable()?;
        Ok(Run {
            rounds: SIGNALS[0].load(Relaxed) - before,
            ticks,
            less,
        })
    }))
}

/// A ring, for samples of this thread with so many callers.
fn ring(callers: u64) -> Result<&'static Ring, Failure> {
    let layout = Layout::from_size_align(ebbprof_ring::slot_size(WORDS), ALIGN)
        .map_err(|error| Failure::Fail(error.to_string()))?;
    // SAFETY: it has bytes, and is never given back; all zeroes is a slot.
    let slot = unsafe { alloc_zeroed(layout).cast::<Slot>() };
    if slot.is_null() {
        return Err(io::Error::from(io::ErrorKind::OutOfMemory).into());
    }
    let ring = Box::leak(Box::new(Ring::new(slot, WORDS)));
    // Two words say who the first caller is.
    let frames = if callers == 0 { 0 } else { callers + 1 };
    ring.frames.store(frames, Relaxed);
    const AROUND: u64 = 1 << 16;
    let here = (&raw const frames).addr() as u64;
    ring.stack.store(here - AROUND, Relaxed);
    ring.stack_size.store(2 * AROUND, Relaxed);
    Ok(ring)
}

fn ebbprof(callers: u64) -> Result<Walk, Failure> {
    if !ebb::supported() {
        ktap::skip("the kernel offers no EBB on this machine")?;
    }
    // Under the built-in driver an access of the handler's finds the PMU gone.
    if !std::path::Path::new("/sys/module/ebb_pmu").exists() {
        ktap::skip("ends in SIGILL under the built-in driver")?;
    }
    let refused = |error: ebb::Error| Failure::Fail(error.to_string());
    let ring = ring(callers)?;
    let session = Session::open("cycles", PERIOD).map_err(refused)?;
    let user = std::ptr::from_ref(ring).cast_mut().cast();
    // SAFETY: the handler does without vector registers, and the ring is never given back.
    unsafe { session.start_raw(Save::Gprs, handler::ebbprof_sample, user) }.map_err(refused)?;
    ebb::pmc::freeze();
    ebb::disable();
    Ok(Box::new(move |rounds| {
        let less = section::measure_rest(|| work(rounds * PERIOD))?;
        let (before, head) = (session.count(), ring.head.load(Relaxed));
        ebb::enable().map_err(refused)?;
        let ticks = section::measure(|| {
            // On the way there and back a sample would have fewer callers.
            deep(DEPTH, &mut || {
                ebb::pmc::unfreeze();
                work::run(rounds * PERIOD);
                ebb::pmc::freeze();
            });
            Ok(())
        })?;
        ebb::disable();
        let came = session.count() - before;
        if came < rounds / 2 {
            ktap::skip(format!("EBBs get lost: {came} of {rounds} came"))?;
        }
        let words = ring.head.load(Relaxed) - head;
        let each = if callers == 0 { 2 } else { 3 + callers };
        check!(
            words == came * each && ring.slot().written.lost.load(Relaxed) == 0,
            "{words} words of {came} samples, with {each} each"
        );
        Ok(Run {
            rounds: came,
            ticks,
            less,
        })
    }))
}
