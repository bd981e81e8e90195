// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the cost of a sample, for the summary of `ebbprof`.
//!
//! The counters are frozen in the handler, so no event counts its cost. The first program that is
//! sampled runs a loop with and without samples before its own samples begin, and takes the
//! difference in the time base.

use core::sync::atomic::Ordering::Relaxed;

use ebb::spr;
use ebbprof_ring::COST_UNIT;
use ebbprof_ring::Control;
use ebbprof_ring::MOST_FRAMES;
use ebbprof_ring::SAMPLE;

use crate::handler::Ring;
use crate::thread;

/// Counts from one sample to the next, and the minimum number of samples.
const PERIOD: u64 = 1000;
const SAMPLES: u64 = 256;
/// Ends the loop if no samples occur, after about a millisecond.
const MOST_CHUNKS: u64 = 2000;
/// Number of runs, of which at least one is likely to be without interrupts.
const TIMES: usize = 3;
/// Number of frames of the loop; that many cost far more than the cost of a sample varies.
const FRAMES: u64 = 64;
const _: () = assert!(FRAMES < MOST_FRAMES);

/// Measures the cost of a sample unless another thread did so. `ring` is the calling thread's and
/// has no samples yet.
pub(crate) fn measure(control: &Control, ring: &Ring) {
    if control.costs_measured.swap(1, Relaxed) != 0 {
        return;
    }
    let frames = ring.frames.swap(0, Relaxed);
    let without = cost(control, ring, SAMPLE);
    ring.frames.store(frames, Relaxed);
    let Some(without) = without else { return };
    control.cost_of_sample.store(without.ticks, Relaxed);
    let with = (frames != 0).then(|| cost(control, ring, SAMPLE + FRAMES));
    if let Some(with) = with.flatten() {
        let words = with.words.saturating_sub(without.words).max(1);
        let more = with.ticks.saturating_sub(without.ticks) / words;
        control.cost_of_caller.store(more, Relaxed);
    }
}

/// Cost of a sample in [`COST_UNIT`]s, and its number of words.
struct Cost {
    ticks: u64,
    words: u64,
}

/// Measures samples with at least `least` words.
fn cost(control: &Control, ring: &Ring, least: u64) -> Option<Cost> {
    // An interrupt makes either run longer. So the minimum of each is taken, not that of the
    // difference.
    let (mut with, mut without, mut words) = (u64::MAX, u64::MAX, 0);
    for _ in 0..TIMES {
        let session = thread::open(control, "cycles", PERIOD).ok()?;
        ring.head.store(0, Relaxed);
        // No process reads the samples, and none is lost for lack of room.
        ring.limit.store(u64::MAX, Relaxed);
        thread::take_samples(&session, control, ring).ok()?;
        let (sampled, chunks) = run(ring, SAMPLES * least, MOST_CHUNKS);
        let came = session.count();
        drop(session);
        let all = ring.head.load(Relaxed);
        if all < SAMPLES * least || came == 0 {
            return None;
        }
        let (alone, _) = run(ring, u64::MAX, chunks);
        with = with.min(sampled * COST_UNIT / came);
        without = without.min(alone * COST_UNIT / came);
        words = all / came;
    }
    let ticks = with.saturating_sub(without);
    Some(Cost { ticks, words })
}

/// Runs until the samples have this many words, or for `most` chunks of some thousand instructions.
/// Returns the time in ticks, and the number of chunks.
fn run(ring: &Ring, words: u64, most: u64) -> (u64, u64) {
    // SAFETY: Problem state can always read the time base.
    let now = || unsafe { spr::read::<{ spr::TB }>() };
    let (begin, mut chunks) = (now(), 0);
    while chunks < most && ring.head.load(Relaxed) < words {
        // SAFETY: The code creates frames, runs a loop, and removes the frames again.
        unsafe {
            core::arch::asm!(
                "mtctr {frames}", "0: stdu 1, -32(1)", "bdnz 0b",
                "mtctr {rounds}", "0: .rept 9; nop; .endr; bdnz 0b",
                "addi 1, 1, {size}",
                frames = in(reg) FRAMES, rounds = in(reg) 500, size = const FRAMES * 32, out("ctr") _,
            );
        }
        chunks += 1;
    }
    (now() - begin, chunks)
}
