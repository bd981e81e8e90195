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
use ebbprof_ring::MOST_FRAMES;
use ebbprof_ring::SAMPLE;

use crate::handler::Ring;
use crate::thread;

/// Counts from one sample to the next, and how many samples there must be.
const PERIOD: u64 = 1000;
const SAMPLES: u64 = 256;
/// What ends the loop where no samples come, in a thousandth of a second or so.
const MOST_CHUNKS: u64 = 2000;
/// The least of so many is not interrupted.
const TIMES: usize = 3;
/// Frames that the loop has: by so many, what a caller costs is far more than what samples differ by.
const FRAMES: u64 = 64;
const _: () = assert!(FRAMES < MOST_FRAMES);

/// Measures what a sample costs, unless a thread did so before. The ring is the calling thread's, and has no samples yet.
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

/// What a sample costs, in [`COST_UNIT`]s, and how many words it has.
struct Cost {
    ticks: u64,
    words: u64,
}

/// That of samples with so many words or more.
fn cost(control: &Control, ring: &Ring, least: u64) -> Option<Cost> {
    // An interrupt makes either longer. So the least of each is taken, not of their difference.
    let (mut with, mut without, mut words) = (u64::MAX, u64::MAX, 0);
    for _ in 0..TIMES {
        let session = thread::open(control, "cycles", PERIOD).ok()?;
        ring.head.store(0, Relaxed);
        // Nobody reads what is written, nor is any of it lost.
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

/// Runs until samples have written so many words, or for so many chunks of some thousand instructions;
/// the ticks that it took, and chunks.
fn run(ring: &Ring, words: u64, most: u64) -> (u64, u64) {
    // SAFETY: the time base is always readable.
    let now = || unsafe { spr::read::<{ spr::TB }>() };
    let (begin, mut chunks) = (now(), 0);
    while chunks < most && ring.head.load(Relaxed) < words {
        // SAFETY: makes frames, counts down, and takes the frames away.
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
