// SPDX-License-Identifier: GPL-2.0
//! A stretch that is measured: marked for who traces the kernel, timed, and free of ticks.

use std::io;
use std::sync::LazyLock;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use ktap::Outcome;
use pmu_selftests::check_status;
use pmu_selftests::machine;
use pmu_selftests::shared;

/// The guest's kernel has 250 ticks a second.
const TICK_NS: i64 = 4_000_000;
/// How long after a tick a section begins: then the tick's softirqs are done.
const AFTER_TICK_NS: i64 = 200_000;

/// Whether sections are marked.
static MARKED: AtomicBool = AtomicBool::new(true);

/// What all processes have done together, as an EBB may end one within a section.
#[derive(Default)]
struct Done {
    /// Marks: of an odd number the last began a section.
    marks: AtomicU64,
    /// Sections whose figures were printed, or that were dropped.
    claimed: AtomicU64,
}

static DONE: OnceLock<&Done> = OnceLock::new();

/// Has the processes that are forked from now on count together with this one.
pub fn share() -> io::Result<()> {
    // Only the first call counts.
    let _ = DONE.set(shared::value()?);
    Ok(())
}

/// A section's figures are printed.
pub fn claim() {
    if let Some(done) = DONE.get() {
        done.claimed.fetch_add(1, Relaxed);
    }
}

/// Ends a section that a process has left open, and returns how many have ended without a
/// [`claim`] since this was asked last.
pub fn drop_unclaimed() -> u64 {
    let Some(done) = DONE.get() else { return 0 };
    if done.marks.load(Relaxed) % 2 == 1 {
        mark();
    }
    let sections = done.marks.load(Relaxed) / 2;
    sections.saturating_sub(done.claimed.swap(sections, Relaxed))
}

/// Begins or ends a section in a trace of the kernel: a system call that nobody else makes.
/// It asks for the personality and changes nothing.
pub fn mark() {
    if MARKED.load(Relaxed) {
        if let Some(done) = DONE.get() {
            done.marks.fetch_add(1, Relaxed);
        }
        // SAFETY: takes no pointer.
        unsafe { libc::personality(0xffff_ffff) };
    }
}

/// Does something whose sections are not to be seen.
pub fn unmarked<T>(body: impl FnOnce() -> T) -> T {
    MARKED.store(false, Relaxed);
    let result = body();
    MARKED.store(true, Relaxed);
    result
}

/// Ticks of the time base that a section takes, which begins soon after a tick of the clock.
pub fn measure(body: impl FnOnce() -> Outcome) -> Result<u64, ktap::Failure> {
    sleep_past_tick()?;
    mark();
    let start = machine::time_base();
    let outcome = body();
    let ticks = machine::time_base() - start;
    mark();
    outcome.map(|()| ticks)
}

/// [`measure`], unmarked, of what is none of the path.
pub fn measure_rest(body: impl FnOnce() -> Outcome) -> Result<u64, ktap::Failure> {
    // Not inside of `unmarked` already: a warm-up is.
    let marked = MARKED.swap(false, Relaxed);
    let ticks = measure(body);
    MARKED.store(marked, Relaxed);
    ticks
}

/// A clock's time.
fn now(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` outlives the call, and every kernel has these clocks.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time
}

/// Nanoseconds into a second at which there is a tick, less than [`TICK_NS`]: the coarse clock
/// stands still between ticks.
static PHASE: LazyLock<i64> = LazyLock::new(|| {
    let start = now(libc::CLOCK_MONOTONIC_COARSE).tv_nsec;
    loop {
        let time = now(libc::CLOCK_MONOTONIC_COARSE).tv_nsec;
        if time != start {
            return time % TICK_NS;
        }
    }
});

/// Sleeps until a tick is just over.
fn sleep_past_tick() -> io::Result<()> {
    let phase = *PHASE;
    let mut time = now(libc::CLOCK_MONOTONIC);
    let since = (time.tv_nsec - phase).rem_euclid(TICK_NS);
    time.tv_nsec += 2 * TICK_NS - since + AFTER_TICK_NS;
    if time.tv_nsec >= 1_000_000_000 {
        time.tv_nsec -= 1_000_000_000;
        time.tv_sec += 1;
    }
    // SAFETY: `time` outlives the call, and the rest of the time is not asked for.
    check_status(unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &time,
            std::ptr::null_mut(),
        )
    })
}
