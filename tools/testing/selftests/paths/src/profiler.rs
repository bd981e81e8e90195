// SPDX-License-Identifier: GPL-2.0
//! A sample of `ebbprof`, taken by its own handler, and the samples that a program gets without
//! EBBs: in perf's ring buffer, and with a signal.

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
/// Words of the ring. All runs together fill fewer.
const WORDS: u64 = 1 << 16;
/// Functions on the stack during the work. No sample has more callers.
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

/// Calls `work` through `depth` functions.
#[inline(never)]
fn deep(depth: u64, work: &mut dyn FnMut()) {
    if depth == 0 {
        work();
    } else {
        deep(black_box(depth - 1), work);
    }
    // The following use of `depth` keeps the compiler from turning the call into a jump.
    black_box(depth);
}

/// Works for about that long below [`DEPTH`] functions.
fn work(nanoseconds: u64) -> Outcome {
    deep(DEPTH, &mut || {
        work::run(section::instructions(nanoseconds));
    });
    Ok(())
}

fn perf(callers: u16) -> Result<Walk, Failure> {
    let attr = Attr::cycles().user_only();
    let attr = attr.sampling(PERIOD, IP | TID | TIME | CALLCHAIN);
    // The first entry of the stack is the sampled address.
    let attr = attr.with(|attr| attr.sample_max_stack = callers + 1);
    record(attr, work, |_| Ok(()))
}

/// The number of signals, and the sampled address of the last one.
static SIGNALS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

extern "C" fn on_signal(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    /// Index of `PT_NIP`.
    const NIP: usize = 32;
    // SAFETY: The kernel passes a pointer to the context of the interrupted code, valid during the
    // handler.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    SIGNALS[1].store(context.uc_mcontext.gp_regs[NIP], Relaxed);
    SIGNALS[0].fetch_add(1, Relaxed);
}

fn signals() -> Result<Walk, Failure> {
    /// Longer than the handling of a signal, because the emulator counts the kernel's cycles, too.
    const PERIOD: u64 = 100_003;
    let event = Attr::cycles().user_only().sampling(PERIOD, IP).open()?;
    let number = libc::SIGRTMIN();
    let handler: extern "C" fn(_, _, _) = on_signal;
    // SAFETY: A `sigaction` of zeroes is valid, and the handler only stores to atomics.
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

/// Makes a ring for samples of this thread with `callers` callers.
fn ring(callers: u64) -> Result<&'static Ring, Failure> {
    let layout = Layout::from_size_align(ebbprof_ring::slot_size(WORDS), ALIGN)
        .map_err(|error| Failure::Fail(error.to_string()))?;
    // SAFETY: The layout is not empty, and a `Slot` of zeroes is valid. The memory is never freed.
    let slot = unsafe { alloc_zeroed(layout).cast::<Slot>() };
    if slot.is_null() {
        return Err(io::Error::from(io::ErrorKind::OutOfMemory).into());
    }
    let ring = Box::leak(Box::new(Ring::new(slot, WORDS)));
    // Two words identify the first caller.
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
    // Under the built-in driver, an access of the handler to the PMU's registers raises SIGILL.
    if !std::path::Path::new("/sys/module/ebb_pmu").exists() {
        ktap::skip("ends in SIGILL under the built-in driver")?;
    }
    let refused = |error: ebb::Error| Failure::Fail(error.to_string());
    let ring = ring(callers)?;
    let session = Session::open("cycles", PERIOD).map_err(refused)?;
    let user = std::ptr::from_ref(ring).cast_mut().cast();
    // SAFETY: The handler uses no vector registers, and the ring is never freed.
    unsafe { session.start_raw(Save::Gprs, handler::ebbprof_sample, user) }.map_err(refused)?;
    ebb::pmc::freeze();
    ebb::disable();
    Ok(Box::new(move |rounds| {
        let less = section::measure_rest(|| work(rounds * PERIOD))?;
        let (before, head) = (session.count(), ring.head.load(Relaxed));
        ebb::enable().map_err(refused)?;
        let ticks = section::measure(|| {
            // The counter runs only below all functions. Elsewhere a sample would have fewer
            // callers.
            deep(DEPTH, &mut || {
                ebb::pmc::unfreeze();
                work::run(section::instructions(rounds * PERIOD));
                ebb::pmc::freeze();
            });
            Ok(())
        })?;
        ebb::disable();
        let came = session.count() - before;
        if came < rounds / 2 {
            ktap::skip(format!("EBBs are lost: {came} of {rounds} arrived"))?;
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
