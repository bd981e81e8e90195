// SPDX-License-Identifier: MIT OR Apache-2.0
//! Periods of more counts than a counter can hold, periods with jitter, and counters of a session
//! that have no period.
//!
//! For these, [`call_due`] runs between entry and handler; a thread without them calls the handler
//! directly. The code here runs in handlers that save GPRs only: it must not copy arrays or do
//! anything else that the compiler may turn into vector instructions.

use core::mem::MaybeUninit;

use crate::context::Call;
use crate::context::EbbContext;
use crate::error::Error;
use crate::fixup::fixed_up;
use crate::pmc::OVERFLOW;
use crate::pmc::Pmc;
use crate::reload;
use crate::spr;
use crate::thread;
use crate::thread::Thread;

/// Sets the period of `pmc` on this thread: [`Rearm::Restart`](crate::Rearm) loads the
/// counter so that it overflows after `period` counts.
///
/// A counter overflows after at most 2^31 counts. The library handles the earlier overflows of a
/// longer period without calling the handler.
///
/// # Errors
///
/// [`Error::Period`] unless `period` is 1 to 2^63.
pub fn set_period(pmc: Pmc, period: u64) -> Result<(), Error> {
    set_period_jitter(pmc, period, 0)
}

/// Sets the period of `pmc` like [`set_period`], but makes each period longer or shorter by up to
/// `jitter` counts at random. That keeps the period from falling in step with a loop of the
/// program.
///
/// # Errors
///
/// [`Error::Period`] unless `period` is 1 to 2^63 and `jitter` is less than `period`.
pub fn set_period_jitter(pmc: Pmc, period: u64, jitter: u64) -> Result<(), Error> {
    if !(1..=1 << 63).contains(&period) || jitter >= period {
        return Err(Error::Period);
    }
    thread::with(|t| set(t, pmc, period, jitter));
    Ok(())
}

/// Sets the period of `pmc` like [`set_period`] and loads the counter for the first time. Raises
/// SIGILL while no EBB event is scheduled.
///
/// # Errors
///
/// The errors of [`set_period`].
pub fn start(pmc: Pmc, period: u64) -> Result<(), Error> {
    set_period(pmc, period)?;
    thread::with(|t| {
        pmc.write(start_value(t, pmc));
        have_begun(t, 1 << pmc.index());
    });
    Ok(())
}

/// Sets the value that `pmc` is loaded with after each overflow, from the next one on.
pub(crate) fn set(t: &Thread, pmc: Pmc, period: u64, jitter: u64) {
    let n = pmc.index();
    t.period[n].store(period);
    t.jitter[n].store(jitter);
    choose(t, || {
        draw(t, pmc);
        t.drawn.update(|drawn| drawn | 1 << n);
    });
}

/// Values of `Thread::rounds` for a counter without a period, and for one without an event.
const COUNTS: u64 = u64::MAX;
const UNUSED: u64 = u64::MAX - 1;

/// Lets `pmc` count modulo 2^31; its overflows do not call the handler.
pub(crate) fn count_only(t: &Thread, pmc: Pmc) {
    choose(t, || t.rounds[pmc.index()].store(COUNTS));
}

/// Ignores the overflows of `pmc`, a counter without an event that counts because another does.
pub(crate) fn ignore(t: &Thread, pmc: Pmc) {
    choose(t, || t.rounds[pmc.index()].store(UNUSED));
}

/// Maximum number of repetitions in [`choose`].
const CHOICES: u32 = 16;

/// Calls `draw` and selects the function that the entry calls. An EBB's or a signal's handler may
/// change a period before the selection is stored, which makes it obsolete; the selection is then
/// repeated, at most [`CHOICES`] times. EBBs that interrupt each attempt mean periods so short that
/// an obsolete choice is harmless.
fn choose(t: &Thread, draw: impl Fn()) {
    for _ in 0..CHOICES {
        let choice = t.choices.load().wrapping_add(1);
        t.choices.store(choice);
        // An EBB that occurs before this ends, or whose handler calls this, begins the drawn
        // period.
        t.reload.store(reload::ebb_reload_any as *const () as u64);
        draw();
        choose_call(t);
        if t.choices.load() == choice {
            return;
        }
    }
    if t.handler.load() != 0 {
        // Correct for all periods, in case the last selection is obsolete.
        t.reload.store(reload::ebb_reload_any as *const () as u64);
        t.call.store(call_due as *const () as u64);
    }
}

/// Selects the function that the entry calls: the handler itself if every overflow is for it. The
/// drawn rounds do not matter then, and the counters are reloaded with a faster routine.
fn choose_call(t: &Thread) {
    let handler = t.handler.load();
    if handler == 0 {
        // No handler is installed.
        return;
    }
    let mut with_period = (Pmc::ALL.into_iter()).filter(|pmc| t.period[pmc.index()].load() != 0);
    let (first, second) = (with_period.next(), with_period.next());
    let is_long =
        (t.period.iter().zip(&t.jitter)).any(|(p, j)| p.load() > OVERFLOW.into() || j.load() != 0);
    let any = |what| t.rounds.iter().any(|rounds| rounds.load() == what);
    let call = match (first, second) {
        (Some(pmc), None) if !is_long && !any(COUNTS) && any(UNUSED) => {
            ebb_call_one as *const () as u64 + (CALL_DISTANCE * pmc.index()) as u64
        }
        _ if is_long || any(COUNTS) || any(UNUSED) => call_due as *const () as u64,
        _ => handler,
    };
    t.call_due.store(call_due as *const () as u64);
    t.call.store(call);
    if let Some(pmc) = first
        && call != call_due as *const () as u64
    {
        let one = reload::ebb_reload_one as *const () as u64;
        let one = one + (reload::RELOAD_DISTANCE * pmc.index()) as u64;
        t.reload.store(one);
    }
}

unsafe extern "C" {
    /// Six routines for threads with one period, PMC1 first, [`CALL_DISTANCE`] bytes apart. They
    /// continue in the handler if the counter has overflowed, else in [`call_due`]. The entry
    /// passes the thread's block in r11.
    fn ebb_call_one();
}

const CALL_DISTANCE: usize = 64;

core::arch::global_asm!(
    ".pushsection .text.ebb_entry, \"ax\", @progbits",
    ".balign {distance}",
    ".globl ebb_call_one",
    ".hidden ebb_call_one",
    ".type ebb_call_one, @function",
    "ebb_call_one:",
    ".cfi_startproc",
    ".irp n, 1, 2, 3, 4, 5, 6",
    ".balign {distance}",
    fixed_up!("mfspr 5, 770 + \\n"),
    "ld 12, {handler}(11)",
    "cmpwi 5, 0",
    "cmpdi 1, 12, 0",
    "bge- 2f",
    // A signal handler may have uninstalled the handler in the meantime.
    "bne+ 1, 3f",
    "2: ld 12, {call_due}(11)",
    "3: mtctr 12",
    "bctr",
    ".endr",
    ".cfi_endproc",
    ".size ebb_call_one, . - ebb_call_one",
    ".popsection",
    distance = const CALL_DISTANCE,
    handler = const thread::HANDLER,
    call_due = const thread::CALL_DUE,
);

/// Returns the value that `pmc` is loaded with next.
pub(crate) fn start_value(t: &Thread, pmc: Pmc) -> u32 {
    // CAST: `draw` only stores 32-bit values; until then the field is 0.
    t.start[pmc.index()].load() as u32
}

/// Draws the length of the next period of `pmc`.
fn draw(t: &Thread, pmc: Pmc) {
    let n = pmc.index();
    let (mut period, jitter) = (t.period[n].load(), t.jitter[n].load());
    if period == 0 {
        return;
    }
    if jitter != 0 {
        // The two may not fit: an EBB may run this between the stores of both in `set`, and
        // `Session::set_period` may store them on another thread.
        let jitter = jitter.min(period - 1);
        period = period - jitter + random(t) % (2 * jitter + 1);
    }
    let rounds = (period - 1) / u64::from(OVERFLOW);
    // CAST: The result is 1 to 2^31.
    let first = (period - rounds * u64::from(OVERFLOW)) as u32;
    t.rounds[n].store(rounds);
    t.start[n].store(Pmc::start_value(first).into());
}

/// Returns whether the next overflow of `pmc` ends its period and the period after it is drawn.
fn is_drawn(t: &Thread, pmc: Pmc) -> bool {
    t.drawn.load() >> pmc.index() & 1 != 0
}

/// Loads `pmc` with the start of the period that was drawn last.
pub(crate) fn begin(t: &Thread, pmc: Pmc) {
    pmc.write_always(start_value(t, pmc));
    have_begun(t, 1 << pmc.index());
}

/// Records that these counters, one bit each, were loaded with the periods drawn last.
fn have_begun(t: &Thread, counters: u64) {
    t.drawn.update(|drawn| drawn & !counters);
}

/// Returns a pseudo-random number (xorshift, seeded with the time base).
fn random(t: &Thread) -> u64 {
    let mut x = t.random.load();
    if x == 0 {
        // SAFETY: Problem state can always read the time base.
        x = unsafe { spr::read::<{ spr::TB }>() } | 1;
    }
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    t.random.store(x);
    // Drops the lowest bit, which is the least random.
    x >> 1
}

/// Lets `pmc`, which has overflowed, continue if its period is longer than one overflow. Returns
/// whether it does.
pub(crate) fn next_round(t: &Thread, pmc: Pmc) -> bool {
    let rounds = &t.rounds[pmc.index()];
    let left = rounds.load();
    if left == 0 || is_drawn(t, pmc) {
        return false;
    }
    if left < UNUSED {
        rounds.store(left - 1);
    }
    // Keeps the counts since the overflow.
    pmc.write_always(pmc.read_always() & (OVERFLOW - 1));
    true
}

/// Calls the handler unless every counter that has overflowed has more rounds to count.
extern "C" fn call_due(context: &mut EbbContext<'_>, data: MaybeUninit<u64>) {
    let t = context.thread();
    // Invalidates a selection of `choose` that this EBB may have interrupted.
    t.choices.store(t.choices.load().wrapping_add(1));
    let (mut due, mut again) = (0, false);
    for pmc in Pmc::ALL {
        if pmc.read() < OVERFLOW {
            continue;
        }
        if next_round(t, pmc) {
            again = true;
            continue;
        }
        due |= 1 << pmc.index();
        if !is_drawn(t, pmc) {
            draw(t, pmc);
            t.drawn.update(|drawn| drawn | 1 << pmc.index());
        }
    }
    if again && due == 0 {
        t.ebbs.store(t.ebbs.load() - 1);
        return;
    }
    let handler = t.handler.load() as usize;
    if handler == 0 {
        // A signal handler has uninstalled the handler in the meantime.
        return;
    }
    // SAFETY: `install_call` stored the address of a `Call` there.
    let handler = unsafe { core::mem::transmute::<usize, Call>(handler) };
    handler(context, data);
    // Skipped if the handler is left by longjmp() or requests Rearm::Stop: the counters then keep
    // their values until `resume` begins the drawn periods.
    let t = context.thread();
    if t.rearm.load() & 1 != 0 {
        have_begun(t, due);
    }
}
