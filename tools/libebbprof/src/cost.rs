// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a sample costs, for `ebbprof` to tell at the end.
//!
//! The counters stand still in the handler, so no count says it. The first program that is sampled
//! runs a loop, with samples and without, and takes the difference by the time base, before its own
//! samples begin.

use core::sync::atomic::Ordering::Relaxed;

use ebb::spr;
use ebbprof_ring::COST_UNIT;
use ebbprof_ring::Control;
use ebbprof_ring::SAMPLE;
use ebbprof_ring::Slot;

use crate::thread;

/// Counts from one sample to the next, and how many words samples must have written.
const PERIOD: u64 = 1000;
const WORDS: u64 = 512;
/// What ends the loop where no samples come, in a thousandth of a second or so.
const MOST_CHUNKS: u64 = 2000;
/// The best of so many is not interrupted.
const TIMES: usize = 3;

/// Measures it, if nobody has. The slot is the calling thread's, and has no samples yet.
pub(crate) fn measure(control: &Control, slot: &Slot) {
    if control.costs_measured.swap(1, Relaxed) != 0 {
        return;
    }
    let frames = slot.written.frames.swap(0, Relaxed);
    let sample = cost(control, slot).map(|(ticks, _)| ticks);
    slot.written.frames.store(frames, Relaxed);
    let Some(sample) = sample else { return };
    control.cost_of_sample.store(sample, Relaxed);
    let with_callers = (frames != 0).then(|| cost(control, slot)).flatten();
    if let Some((ticks, words)) = with_callers {
        let more = ticks.saturating_sub(sample) / words.saturating_sub(SAMPLE).max(1);
        control.cost_of_caller.store(more, Relaxed);
    }
}

/// Ticks of a sample, in [`COST_UNIT`]s, and how many words it has.
fn cost(control: &Control, slot: &Slot) -> Option<(u64, u64)> {
    let mut best = None;
    for _ in 0..TIMES {
        let session = thread::open(control, "cycles", PERIOD).ok()?;
        let written = &slot.written;
        written.head.store(0, Relaxed);
        // Nobody reads what is written, nor is any of it lost.
        written.limit.store(u64::MAX, Relaxed);
        thread::take_samples(&session, control, slot).ok()?;
        let (with, chunks) = run(slot, WORDS, MOST_CHUNKS);
        let came = session.count();
        drop(session);
        let words = written.head.load(Relaxed);
        let (without, _) = run(slot, u64::MAX, chunks);
        if words < WORDS || came == 0 {
            return None;
        }
        let ticks = with.saturating_sub(without) * COST_UNIT / came;
        if best.is_none_or(|(least, _)| ticks < least) {
            best = Some((ticks, words / came));
        }
    }
    best
}

/// Runs until samples have written so many words, or for so many chunks of some thousand instructions;
/// the ticks that it took, and chunks.
fn run(slot: &Slot, words: u64, most: u64) -> (u64, u64) {
    // SAFETY: the time base is always readable.
    let now = || unsafe { spr::read::<{ spr::TB }>() };
    let (begin, mut chunks) = (now(), 0);
    while chunks < most && slot.written.head.load(Relaxed) < words {
        // SAFETY: counts down.
        unsafe {
            core::arch::asm!("mtctr {0}", "0: .rept 9; nop; .endr; bdnz 0b",
                in(reg) 500, out("ctr") _, options(nostack));
        }
        chunks += 1;
    }
    (now() - begin, chunks)
}
