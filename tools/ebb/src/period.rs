// SPDX-License-Identifier: MIT OR Apache-2.0
//! Periods of more counts than a counter overflows after, periods with jitter, and counters of
//! a session that only count.
//!
//! They take [`call_due`] between entry and handler; a thread that has none does without.
//! The code here runs in handlers that keep GPRs only: no copies of arrays, nothing that the
//! compiler makes vector instructions of.

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
/// A counter overflows after 2^31 counts at most. Of a longer period the library takes the
/// overflows before the last, without calling the handler.
///
/// # Errors
///
/// [`Error::Period`] unless `period` is 1 to 2^63.
pub fn set_period(pmc: Pmc, period: u64) -> Result<(), Error> {
    set_period_jitter(pmc, period, 0)
}

/// [`set_period`], each period as long as that or longer or shorter by up to `jitter` counts, by
/// chance: so that the period does not fall in step with a loop of the program.
///
/// # Errors
///
/// [`Error::Period`] also unless `jitter` is less than `period`.
pub fn set_period_jitter(pmc: Pmc, period: u64, jitter: u64) -> Result<(), Error> {
    if !(1..=1 << 63).contains(&period) || jitter >= period {
        return Err(Error::Period);
    }
    thread::with(|t| set(t, pmc, period, jitter));
    Ok(())
}

/// [`set_period`], and loads the counter for the first time. SIGILL while no
/// EBB event is scheduled.
///
/// # Errors
///
/// As [`set_period`].
pub fn start(pmc: Pmc, period: u64) -> Result<(), Error> {
    set_period(pmc, period)?;
    thread::with(|t| {
        pmc.write(start_value(t, pmc));
        have_begun(t, 1 << pmc.index());
    });
    Ok(())
}

/// Sets what `pmc` is loaded with after its next overflow, and from then on.
pub(crate) fn set(t: &Thread, pmc: Pmc, period: u64, jitter: u64) {
    let n = pmc.index();
    t.period[n].store(period);
    t.jitter[n].store(jitter);
    choose(t, || {
        draw(t, pmc);
        t.drawn.update(|drawn| drawn | 1 << n);
    });
}

/// What `Thread::rounds` has of a counter that counts for ever, and of one that nobody asked for.
const COUNTS: u64 = u64::MAX;
const UNUSED: u64 = u64::MAX - 1;

/// Has `pmc` count, by 31 bits, and its overflows call nobody.
pub(crate) fn count_only(t: &Thread, pmc: Pmc) {
    choose(t, || t.rounds[pmc.index()].store(COUNTS));
}

/// The same for a counter that counts because another does.
pub(crate) fn ignore(t: &Thread, pmc: Pmc) {
    choose(t, || t.rounds[pmc.index()].store(UNUSED));
}

/// How often [`choose`] does it again.
const CHOICES: u32 = 16;

/// Does `draw`, and decides who is called. An EBB's handler, or a signal's, may set a period before
/// that is stored, which would be of what was before: then it is done again. But it has an end: where
/// each time brings an EBB the periods are short, and one is like the other.
fn choose(t: &Thread, draw: impl Fn()) {
    for _ in 0..CHOICES {
        let choice = t.choices.load().wrapping_add(1);
        t.choices.store(choice);
        // An EBB that comes before the end of this, or whose handler this is, begins what is drawn.
        t.reload.store(reload::ebb_reload_any as *const () as u64);
        draw();
        choose_call(t);
        if t.choices.load() == choice {
            return;
        }
    }
    if t.handler.load() != 0 {
        // Right for all periods, in case that the last choice was of what was before.
        t.reload.store(reload::ebb_reload_any as *const () as u64);
        t.call.store(call_due as *const () as u64);
    }
}

/// Decides who is called: the handler itself if each overflow is for it. What was drawn makes no
/// difference then, and the counters are reloaded the faster way.
fn choose_call(t: &Thread) {
    let handler = t.handler.load();
    if handler == 0 {
        // None is installed.
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
    /// For threads with one period: six routines, PMC1 first, [`CALL_DISTANCE`] bytes apart. They
    /// go on to the handler if the counter has overflowed, else to [`call_due`]. The entry has the
    /// thread's block in r11.
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
    // A signal's handler may have taken it away meanwhile.
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

/// What `pmc` is loaded with next.
pub(crate) fn start_value(t: &Thread, pmc: Pmc) -> u32 {
    // CAST: `draw` has put a counter's value there, or nobody anything but 0.
    t.start[pmc.index()].load() as u32
}

/// Decides how long the next period of `pmc` is.
fn draw(t: &Thread, pmc: Pmc) {
    let n = pmc.index();
    let (mut period, jitter) = (t.period[n].load(), t.jitter[n].load());
    if period == 0 {
        return;
    }
    if jitter != 0 {
        // An EBB, or `Session::set_period` on another thread, may come between the stores of the
        // two: one of them is the former then.
        let jitter = jitter.min(period - 1);
        period = period - jitter + random(t) % (2 * jitter + 1);
    }
    let rounds = (period - 1) / u64::from(OVERFLOW);
    // CAST: 1 to 2^31.
    let first = (period - rounds * u64::from(OVERFLOW)) as u32;
    t.rounds[n].store(rounds);
    t.start[n].store(Pmc::start_value(first).into());
}

/// Whether the next overflow of `pmc` ends its period, and the one behind that is drawn.
fn is_drawn(t: &Thread, pmc: Pmc) -> bool {
    t.drawn.load() >> pmc.index() & 1 != 0
}

/// Has `pmc` begin the period that was drawn last.
pub(crate) fn begin(t: &Thread, pmc: Pmc) {
    pmc.write_always(start_value(t, pmc));
    have_begun(t, 1 << pmc.index());
}

/// Counters, a bit for each, have their first values of the periods that were drawn last.
fn have_begun(t: &Thread, counters: u64) {
    t.drawn.update(|drawn| drawn & !counters);
}

/// Xorshift, seeded by the time.
fn random(t: &Thread) -> u64 {
    let mut x = t.random.load();
    if x == 0 {
        // SAFETY: the time base is always readable.
        x = unsafe { spr::read::<{ spr::TB }>() } | 1;
    }
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    t.random.store(x);
    // The lowest bits are the least random.
    x >> 1
}

/// Has `pmc`, which has overflowed, count on if its period is longer than that; tells whether it
/// is.
pub(crate) fn next_round(t: &Thread, pmc: Pmc) -> bool {
    let rounds = &t.rounds[pmc.index()];
    let left = rounds.load();
    if left == 0 || is_drawn(t, pmc) {
        return false;
    }
    if left < UNUSED {
        rounds.store(left - 1);
    }
    // What it has counted since it overflowed.
    pmc.write_always(pmc.read_always() & (OVERFLOW - 1));
    true
}

/// Calls the handler unless all counters that have overflowed have rounds to go.
extern "C" fn call_due(context: &mut EbbContext<'_>, data: MaybeUninit<u64>) {
    let t = context.thread();
    // What `choose` has drawn changes here, in the middle of it perhaps.
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
        // A signal's handler has uninstalled it meanwhile.
        return;
    }
    // SAFETY: `install_call` has put the address of such a function there.
    let handler = unsafe { core::mem::transmute::<usize, Call>(handler) };
    handler(context, data);
    // Not if it is left by a jump, or asks for Rearm::Stop: the counters stand as they are until
    // `resume` has them begin.
    let t = context.thread();
    if t.rearm.load() & 1 != 0 {
        have_begun(t, due);
    }
}
