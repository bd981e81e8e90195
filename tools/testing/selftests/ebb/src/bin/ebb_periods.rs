// SPDX-License-Identifier: GPL-2.0
//! Periods of a session: longer than a counter can hold, with jitter, and changed at any time. Also
//! EBBs that go on after `Rearm::Stop` or after a jump out of the handler: in the period that had
//! begun, and on a stack whose back chain has no end.

use ebb::EbbContext;
use ebb::Error;
use ebb::Pmc;
use ebb::Rearm;
use ebb::Save;
use ebb::Session;
use ebb::State;
use ebb_selftests::current;
use ebb_selftests::current::with;
use ebb_selftests::escape;
use ebb_selftests::session;
use ktap::Outcome;
use ktap::check;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const PERIOD: u32 = 10_000;
/// Longest period that one counter can hold.
const ONE: u64 = 1 << 31;
/// Period that no test reaches.
const FOR_EVER: u64 = 1 << 40;

/// Ways in which a handler ends: with a return, with `Rearm::Stop`, or with a jump.
const RETURN: u64 = 0;
const STOP: u64 = 1;
const JUMP: u64 = 2;

/// Way in which the next handler ends, and the period that it sets, or 0.
static NEXT_END: AtomicU64 = AtomicU64::new(RETURN);
static NEXT_PERIOD: AtomicU64 = AtomicU64::new(0);

fn handler(context: &mut EbbContext<'_>) {
    let period = NEXT_PERIOD.swap(0, Relaxed);
    if period != 0 {
        let _ = set_period(period);
    }
    match NEXT_END.swap(RETURN, Relaxed) {
        STOP => context.rearm(Rearm::Stop),
        // SAFETY: `overflow` runs in `call_escapable` when a test stores JUMP.
        JUMP => unsafe { escape::escape() },
        _ => {}
    }
}

fn set_period(period: u64) -> Result<(), Error> {
    with(|session| session.set_period(0, period, 0))
}

/// Starts a session with an EBB every `period` cycles.
fn start(period: u64) -> Outcome {
    NEXT_END.store(RETURN, Relaxed);
    current::open(period)?;
    // SAFETY: The handler does only what a signal's handler may do.
    with(|session| unsafe { session.start(Save::Full, handler) })?;
    Ok(())
}

/// Makes the counter overflow soon, and works until it has.
extern "C" fn overflow() {
    Pmc::Pmc1.write(Pmc::start_value(1000));
    session::work_for(40_000);
}

/// Makes the counter overflow; fails unless there were `count` EBBs then.
#[track_caller]
fn count_after_overflow(count: u64) -> Outcome {
    overflow();
    let came = ebb::count();
    check!(came == count, "{came} EBBs, {count} expected");
    Ok(())
}

fn goes_on() -> Outcome {
    session::wait_for(ebb::count() + 20, PERIOD)
}

fn resume() -> Outcome {
    Ok(with(Session::resume)?)
}

/// Works until an EBB has stopped the session.
fn stop() {
    NEXT_END.store(STOP, Relaxed);
    session::work_for(20 * u64::from(PERIOD));
}

unsafe extern "C" {
    /// Calls `function` with r1 at `stack`.
    fn call_on(function: extern "C" fn(), stack: *mut u64);
}

std::arch::global_asm!(
    ".pushsection .text.call_on, \"ax\", @progbits",
    ".globl call_on",
    ".type call_on, @function",
    "call_on:",
    "mflr 0",
    "std 0, 16(1)",
    "std 31, -8(1)",
    "stdu 1, -48(1)",
    "mr 31, 1",
    "std 2, 24(1)",
    "mr 1, 4",
    "mr 12, 3",
    "mtctr 12",
    "bctrl",
    "mr 1, 31",
    "ld 2, 24(1)",
    "addi 1, 1, 48",
    "ld 31, -8(1)",
    "ld 0, 16(1)",
    "mtlr 0",
    "blr",
    ".size call_on, . - call_on",
    ".popsection",
);

/// Outcome of a function that ran on another stack.
static DONE: Mutex<Outcome> = Mutex::new(Ok(()));

fn start_and_stop() -> Outcome {
    start(PERIOD.into())?;
    stop();
    let state = with(|session| Ok(session.state()))?;
    check!(state == State::Paused, "{state:?}");
    session::expect_none(5 * u64::from(PERIOD))?;
    resume()?;
    goes_on()?;
    // A close and the next start find the session stopped by its handler.
    stop();
    current::close();
    start(PERIOD.into())?;
    goes_on()
}

fn stop_and_pause() -> Outcome {
    stop();
    with(Session::pause)?;
    resume()?;
    goes_on()
}

extern "C" fn first_turn() {
    *DONE.lock().expect("no panic") = start_and_stop();
}

extern "C" fn second_turn() {
    *DONE.lock().expect("no panic") = stop_and_pause();
}

/// EBBs work on a stack without an end, as Boost.Context from 1.88 on and just-in-time compilers
/// have.
fn endless_stack() -> Outcome {
    const WORDS: usize = 16_384;
    let mut stack = vec![0x5858_5858_5858_5858_u64; WORDS];
    let stack = stack.as_mut_ptr();
    // SAFETY: The stack is aligned to 16 bytes, with room below the address, and above it for the
    // head of a frame. At first it holds no address.
    unsafe {
        let base = stack.add(WORDS - 64);
        let base = base.byte_sub(base.addr() % 16);
        call_on(first_turn, base);
        DONE.lock().expect("no panic").clone()?;
        // The back chain of the second turn leads to itself.
        base.write(base.expose_provenance() as u64);
        call_on(second_turn, base);
    }
    DONE.lock().expect("no panic").clone()?;
    current::close();
    Ok(())
}

/// The first round counts what exceeds whole counters, the next rounds a whole counter each.
fn first_round() -> Outcome {
    const REST: u32 = 1 << 30;
    start(3 * ONE + u64::from(REST))?;
    for _ in 0..3 {
        count_after_overflow(0)?;
        let pmc1 = Pmc::Pmc1.read();
        check!(pmc1 < 1_000_000, "{pmc1:#x} after a round");
    }
    count_after_overflow(1)?;
    let (pmc1, start) = (Pmc::Pmc1.read(), Pmc::start_value(REST));
    check!(
        (start..start + 1_000_000).contains(&pmc1),
        "{pmc1:#x} in the next period"
    );
    set_period(PERIOD.into())?;
    Pmc::Pmc1.write(Pmc::start_value(PERIOD));
    goes_on()
}

/// A long period has as many rounds after an EBB whose handler stopped or jumped.
fn rounds_after(end: u64) -> Outcome {
    start(2 * ONE)?;
    count_after_overflow(0)?;
    NEXT_END.store(end, Relaxed);
    // SAFETY: `overflow` has nothing that must be dropped.
    unsafe { escape::call_escapable(overflow) };
    let (came, state) = (ebb::count(), with(|session| Ok(session.state()))?);
    check!(came == 1 && state == State::Paused, "{came}, {state:?}");
    resume()?;
    count_after_overflow(1)?;
    count_after_overflow(2)?;
    current::close();
    Ok(())
}

/// A new period does not change the end of the current one.
fn longer_period() -> Outcome {
    start(ONE)?;
    set_period(FOR_EVER)?;
    count_after_overflow(1)?;
    count_after_overflow(1)?;
    // A round of a longer period also ends the current one.
    set_period(ONE)?;
    count_after_overflow(2)
}

/// If a handler sets a longer period, that period begins at the end of the current one.
fn longer_in_handler(end: u64) -> Outcome {
    start(ONE)?;
    NEXT_PERIOD.store(2 * ONE, Relaxed);
    NEXT_END.store(end, Relaxed);
    count_after_overflow(1)?;
    if end == STOP {
        resume()?;
    }
    count_after_overflow(1)?;
    count_after_overflow(2)
}

/// Cycles from the write of the counter to its overflow, which must come in the middle of a call.
const AHEAD: std::ops::Range<u32> = 20..1500;

/// An EBB whose handler sets a period may come at any instruction of `set_period`. One of the two
/// periods takes effect, both for its length and for whether each overflow calls the handler.
fn periods_at_once() -> Outcome {
    start(ONE)?;
    for ahead in AHEAD {
        set_period(ONE)?;
        NEXT_PERIOD.store(FOR_EVER, Relaxed);
        Pmc::Pmc1.write(Pmc::start_value(ahead));
        set_period(ONE / 2)?;
        session::work_for(40_000);
        let left = NEXT_PERIOD.load(Relaxed);
        check!(left == 0, "{ahead} cycles ahead: no EBB");
        // If it is the longer one, the first overflow may end the current period.
        overflow();
        let before = ebb::count();
        overflow();
        overflow();
        let more = ebb::count() - before;
        check!([0, 2].contains(&more), "{ahead} cycles ahead: {more} EBBs");
    }
    Ok(())
}

/// If both periods are longer than a counter, each period is as long as one of the two.
fn long_periods_at_once() -> Outcome {
    start(2 * ONE)?;
    for ahead in AHEAD {
        set_period(2 * ONE)?;
        overflow();
        Pmc::Pmc1.write(Pmc::start_value(ahead));
        set_period(3 * ONE)?;
        session::work_for(40_000);
        let before = ebb::count();
        for _ in 0..3 {
            if ebb::count() == before {
                overflow();
            }
        }
        // A period begins here.
        check!(ebb::count() == before + 1, "{ahead} cycles ahead");
        for more in [1, 1, 2] {
            count_after_overflow(before + more)?;
        }
    }
    Ok(())
}

/// `set_period` ends even if EBBs come more often than it takes. QEMU may deliver none in that time
/// with one of the periods.
fn short_periods() -> Outcome {
    const LAST: u64 = 100_000;
    let mut all = 0;
    for period in [20, 40, 80, 160, 320] {
        let session = Session::open("cycles", period)?;
        session.add("instructions", 0)?;
        let handler = |context: &mut EbbContext<'_>| {
            if context.number() >= LAST {
                context.rearm(Rearm::Stop);
            }
        };
        // SAFETY: The handler only uses its context.
        unsafe { session.start(Save::Full, handler)? };
        session.set_period(0, period, 0)?;
        let came = session.count();
        check!(came < LAST, "{came} EBBs");
        all += came;
    }
    check!(all > 0, "no EBB");
    Ok(())
}

/// Periods with jitter differ, within their bounds: the counter's value after an EBB shows the
/// period.
fn jitter() -> Outcome {
    const MEAN: u64 = 1 << 30;
    const JITTER: u64 = 1 << 29;
    start(1)?;
    for (period, jitter) in [(1000, 1000), (0, 0), ((1 << 63) + 1, 0)] {
        let refused = with(|session| session.set_period(0, period, jitter));
        check!(refused == Err(Error::Period), "{refused:?}");
    }
    current::close();
    start(MEAN)?;
    with(|session| session.set_period(0, MEAN, JITTER))?;
    let mut periods = Vec::new();
    for n in 1..=200 {
        count_after_overflow(n)?;
        periods.push(ONE - u64::from(Pmc::Pmc1.read()));
    }
    periods.sort_unstable();
    let (least, most) = (periods[0], periods[199]);
    // The counter may have counted that many since the EBB.
    let bounds = MEAN - JITTER - 1_000_000..MEAN + JITTER;
    check!(
        bounds.contains(&least) && bounds.contains(&most),
        "{least} to {most}"
    );
    check!(
        least < MEAN - JITTER / 2 && most > MEAN + JITTER / 2,
        "{least} to {most}"
    );
    Ok(())
}

ktap::main! {
    first: session::require_ebb;
    endless_stack, first_round, rounds_after_stop = rounds_after(STOP),
    rounds_after_jump = rounds_after(JUMP), longer_period,
    longer_in_handler = longer_in_handler(RETURN),
    longer_in_handler_that_stops = longer_in_handler(STOP),
    periods_at_once, long_periods_at_once, short_periods, jitter,
}
