// SPDX-License-Identifier: GPL-2.0
//! Sections of code to measure: marked for a trace of the kernel, timed, and free of ticks.

use std::io;
use std::sync::LazyLock;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use ktap::Failure;
use ktap::Outcome;
use ktap::cpu;
use perf_event::Attr;
use perf_event::Event;
use pmu_selftests::check_status;
use pmu_selftests::machine;
use pmu_selftests::shared;
use pmu_selftests::work;

/// Nanoseconds between ticks: the guest's kernel has 250 a second.
const TICK_NS: i64 = 4_000_000;
/// Nanoseconds from a tick to the start of a section, in which the tick's softirqs end.
const AFTER_TICK_NS: i64 = 200_000;

/// Whether sections are marked.
static MARKED: AtomicBool = AtomicBool::new(true);

/// Counts of all processes. They are shared, because an EBB may end a process within a section.
#[derive(Default)]
struct Done {
    /// Number of marks. If it is odd, the last mark began a section.
    marks: AtomicU64,
    /// Number of sections whose figures are printed or that were dropped.
    claimed: AtomicU64,
}

static DONE: OnceLock<&Done> = OnceLock::new();

/// The counter that [`measure`] reads instead of the time base.
static COUNTER: OnceLock<Event> = OnceLock::new();

/// Instructions of work that take a nanosecond. With an instruction clock it is one.
static PACE: AtomicU64 = AtomicU64::new(1);

/// Makes the processes that are forked later use the counts of this one.
pub fn share() -> io::Result<()> {
    // A second call has no effect.
    let _ = DONE.set(shared::value()?);
    Ok(())
}

/// Counts a section whose figures are printed.
pub fn claim() {
    if let Some(done) = DONE.get() {
        done.claimed.fetch_add(1, Relaxed);
    }
}

/// Ends a section that a process has left open. Returns the number of sections that ended without a
/// [`claim`] since the last call.
pub fn drop_unclaimed() -> u64 {
    let Some(done) = DONE.get() else { return 0 };
    if done.marks.load(Relaxed) % 2 == 1 {
        mark();
    }
    let sections = done.marks.load(Relaxed) / 2;
    sections.saturating_sub(done.claimed.swap(sections, Relaxed))
}

/// Begins or ends a section in a trace of the kernel, with a system call that other code does not
/// make. It reads the personality and changes nothing.
pub fn mark() {
    if MARKED.load(Relaxed) {
        if let Some(done) = DONE.get() {
            done.marks.fetch_add(1, Relaxed);
        }
        // SAFETY: The system call takes no pointer.
        unsafe { libc::personality(0xffff_ffff) };
    }
}

/// Calls `body` without marks for its sections.
pub fn unmarked<T>(body: impl FnOnce() -> T) -> T {
    MARKED.store(false, Relaxed);
    let result = body();
    MARKED.store(true, Relaxed);
    result
}

/// Makes [`measure`] count the event `code` on this CPU, in the kernel too, in place of ticks.
pub fn count_with(code: u64) -> Outcome {
    let event = Attr::raw(code).on_cpu(cpu::current()?).pinned(true);
    let event = event.enabled().open()?;
    event.check_scheduled()?;
    // A second call has no effect.
    let _ = COUNTER.set(event);
    Ok(())
}

/// Returns the time base, or the count of [`count_with`].
fn clock() -> Result<u64, Failure> {
    match COUNTER.get() {
        Some(event) => Ok(event.read()?.value),
        None => Ok(machine::time_base()),
    }
}

/// Measures how many instructions [`instructions`] returns for a nanosecond.
pub fn find_pace() {
    const WORK: u64 = 1 << 24;
    let start = machine::time_base();
    let done = work::run(WORK) as f64;
    let ticks = (machine::time_base() - start) as f64;
    let nanoseconds = ticks * 1e9 / machine::TIME_BASE_HZ as f64;
    PACE.store(((done / nanoseconds) as u64).max(1), Relaxed);
}

/// Returns how many instructions of work take about that long.
pub fn instructions(nanoseconds: u64) -> u64 {
    nanoseconds * PACE.load(Relaxed)
}

/// Measures a section that begins soon after a tick. Returns its ticks of the time base, or the
/// counts of [`count_with`].
pub fn measure(body: impl FnOnce() -> Outcome) -> Result<u64, Failure> {
    sleep_past_tick()?;
    mark();
    let start = clock()?;
    let outcome = body();
    let end = clock()?;
    mark();
    outcome.map(|()| end - start)
}

/// Measures work that is not part of the path: without marks.
pub fn measure_rest(body: impl FnOnce() -> Outcome) -> Result<u64, Failure> {
    // The previous value is restored, because this may already run inside of `unmarked`.
    let marked = MARKED.swap(false, Relaxed);
    let ticks = measure(body);
    MARKED.store(marked, Relaxed);
    ticks
}

/// Returns the time of a clock.
fn now(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` outlives the call, and every kernel has these clocks.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time
}

/// Time of a tick within a second, in nanoseconds modulo [`TICK_NS`]. It is found with the coarse
/// clock, which only changes at ticks.
static PHASE: LazyLock<i64> = LazyLock::new(|| {
    let start = now(libc::CLOCK_MONOTONIC_COARSE).tv_nsec;
    loop {
        let time = now(libc::CLOCK_MONOTONIC_COARSE).tv_nsec;
        if time != start {
            return time % TICK_NS;
        }
    }
});

/// Sleeps until shortly after a tick.
fn sleep_past_tick() -> io::Result<()> {
    let phase = *PHASE;
    let mut time = now(libc::CLOCK_MONOTONIC);
    let since = (time.tv_nsec - phase).rem_euclid(TICK_NS);
    time.tv_nsec += 2 * TICK_NS - since + AFTER_TICK_NS;
    if time.tv_nsec >= 1_000_000_000 {
        time.tv_nsec -= 1_000_000_000;
        time.tv_sec += 1;
    }
    // SAFETY: `time` outlives the call, and the null pointer means that the remaining time is not
    // returned.
    check_status(unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &time,
            std::ptr::null_mut(),
        )
    })
}
