// SPDX-License-Identifier: MIT OR Apache-2.0
//! Periods of more counts than a counter overflows after, and periods with jitter.
//!
//! Both take [`call_due`] between entry and handler; a thread that has neither does without.
//! The code here runs in handlers that keep GPRs only: no copies of arrays, nothing that the
//! compiler makes vector instructions of.

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::Relaxed;

use crate::context::Call;
use crate::context::EbbContext;
use crate::pmc::OVERFLOW;
use crate::pmc::Pmc;
use crate::reload;
use crate::spr;
use crate::thread::Thread;

/// Sets what `pmc` is loaded with after its next overflow, and from then on.
pub(crate) fn set(t: &Thread, pmc: Pmc, period: u64, jitter: u64) {
    let n = pmc.index();
    t.period[n].store(period, Relaxed);
    t.jitter[n].store(jitter, Relaxed);
    draw(t, pmc);
    let one = reload::ebb_reload_one as *const () as u64;
    let one = one + (reload::RELOAD_DISTANCE * n) as u64;
    t.reload.store(one, Relaxed);

    let plain = (t.period.iter().zip(&t.jitter))
        .all(|(p, j)| p.load(Relaxed) <= OVERFLOW.into() && j.load(Relaxed) == 0);
    // 0: no handler is installed.
    match t.handler.load(Relaxed) {
        0 => {}
        handler if plain => t.call.store(handler, Relaxed),
        _ => t.call.store(call_due as *const () as u64, Relaxed),
    }
}

/// What `pmc` is loaded with next.
pub(crate) fn start_value(t: &Thread, pmc: Pmc) -> u32 {
    // CAST: `draw` has put a counter's value there, or nobody anything but 0.
    t.start[pmc.index()].load(Relaxed) as u32
}

/// Decides how long the next period of `pmc` is.
fn draw(t: &Thread, pmc: Pmc) {
    let n = pmc.index();
    let (mut period, jitter) = (t.period[n].load(Relaxed), t.jitter[n].load(Relaxed));
    if period == 0 {
        return;
    }
    if jitter != 0 {
        period = period - jitter + random(t) % (2 * jitter + 1);
    }
    let rounds = (period - 1) / u64::from(OVERFLOW);
    // CAST: 1 to 2^31.
    let first = (period - rounds * u64::from(OVERFLOW)) as u32;
    t.rounds[n].store(rounds, Relaxed);
    t.start[n].store(Pmc::start_value(first).into(), Relaxed);
}

/// Xorshift, seeded by the time.
fn random(t: &Thread) -> u64 {
    let mut x = t.random.load(Relaxed);
    if x == 0 {
        // SAFETY: the time base is always readable.
        x = unsafe { spr::read::<{ spr::TB }>() } | 1;
    }
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    t.random.store(x, Relaxed);
    // The lowest bits are the least random.
    x >> 1
}

/// Has `pmc`, which has overflowed, count on if its period is longer than that; tells whether it
/// is.
pub(crate) fn next_round(t: &Thread, pmc: Pmc) -> bool {
    let rounds = &t.rounds[pmc.index()];
    match rounds.load(Relaxed) {
        0 => false,
        left => {
            rounds.store(left - 1, Relaxed);
            pmc.write(0);
            true
        }
    }
}

/// Calls the handler unless all counters that have overflowed have rounds to go.
extern "C" fn call_due(context: &mut EbbContext<'_>, data: MaybeUninit<u64>) {
    let t = context.thread();
    let (mut due, mut again) = (false, false);
    for pmc in Pmc::ALL {
        if pmc.read() < OVERFLOW {
            continue;
        }
        if next_round(t, pmc) {
            again = true;
        } else {
            due = true;
            draw(t, pmc);
        }
    }
    if again && !due {
        t.ebbs.store(t.ebbs.load(Relaxed) - 1, Relaxed);
        return;
    }
    let handler = t.handler.load(Relaxed) as usize;
    if handler == 0 {
        // A signal's handler has uninstalled it meanwhile.
        return;
    }
    // SAFETY: `install_call` has put the address of such a function there.
    let handler = unsafe { core::mem::transmute::<usize, Call>(handler) };
    handler(context, data);
}
