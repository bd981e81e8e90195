// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arbitrary contents of the shared memory: reading them terminates, never panics, and returns no
//! more than what was read.
//!
//! `RING_ROUNDS` and `RING_SEED` in the environment select other or longer series.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use crate::memory::Memory;
use crate::memory::Random;
use crate::memory::number;
use ebbprof_ring::ALIGN;
use ebbprof_ring::Broken;
use ebbprof_ring::MAPS;
use ebbprof_ring::OVERHANG;
use ebbprof_ring::Position;
use ebbprof_ring::SAMPLE;
use ebbprof_ring::SLOTS;
use ebbprof_ring::SlotView;
use ebbprof_ring::TEXT;
use ebbprof_ring::first_word;
use ebbprof_ring::samples;
use ebbprof_ring::time_base;

/// Number of words of a ring.
const WORDS: u64 = 512;
/// Number of slots that are filled and read.
const TRIED: usize = 4;

/// Takes the available samples and checks them.
fn take(slot: &SlotView, position: &mut Position, copy: &mut Vec<u64>) -> Result<(), Broken> {
    copy.clear();
    let taken = slot.take(position, copy);
    assert!(copy.len() as u64 <= WORDS, "{} words taken", copy.len());
    let mut words = 0;
    for sample in samples(copy) {
        assert!(sample.more.len() <= 255);
        words += SAMPLE as usize + sample.more.len();
        let _ = time_base(sample.first, slot.begin());
    }
    assert_eq!(words, copy.len(), "words that are no sample's");
    assert!((0.0..=1.0).contains(&slot.filled(position)));
    assert_eq!(taken.is_err(), position.is_broken());
    taken
}

/// Reads all other data of a slot.
fn look(memory: &Memory, n: usize) {
    let view = memory.view();
    assert!(view.used() <= SLOTS);
    assert!(view.event().chars().count() <= TEXT);
    let (_, _, _) = (view.state(n), view.period(), view.has_callers());
    let _ = (view.start(), view.costs(), view.others(), view.foreign());
    let _ = (view.without(), view.unpopulated());
    let slot = view.slot(n);
    let _ = (slot.pid(), slot.tid(), slot.parent(), slot.origin());
    let _ = (slot.end(), slot.lost(), slot.has_ceased());
    assert!(slot.name().chars().count() <= 16);
    assert!(
        slot.refusal()
            .is_none_or(|text| text.chars().count() <= TEXT)
    );
    assert!(slot.event().is_none_or(|(descriptor, _)| descriptor >= 0));
    assert!(
        slot.maps(0)
            .is_none_or(|(version, _, text)| version % 2 == 0 && text.len() <= MAPS)
    );
}

/// Returns numbers at which sums and differences wrap around.
fn extreme(random: &mut Random) -> u64 {
    let near = random.below(2 * WORDS).wrapping_sub(WORDS);
    match random.below(4) {
        0 => near,
        1 => (1_u64 << 63).wrapping_add(near),
        2 => random.next() & (WORDS - 1),
        _ => random.next(),
    }
}

#[test]
fn arbitrary_bytes_are_read_to_an_end() {
    let memory = Memory::new(WORDS);
    let mut random = Random::new(number("RING_SEED", 1));
    let mut copy = Vec::new();
    let (mut good, mut broken) = (0, 0);
    for _ in 0..number("RING_ROUNDS", 1000) {
        let n = random.below(TRIED as u64) as usize;
        memory.scribble(&mut random, n);
        look(&memory, n);
        let slot = memory.view().slot(n);
        let mut position = Position::default();
        for _ in 0..4 {
            // Half of the time the head advances from where it is.
            let head = match random.below(2) {
                0 => extreme(&mut random),
                _ => memory.head(n).wrapping_add(random.below(WORDS + 2)),
            };
            memory.set_head(n, head);
            match take(&slot, &mut position, &mut copy) {
                Ok(()) => good += 1,
                Err(Broken) => broken += 1,
            }
        }
    }
    assert!(
        good > 0 && broken > 0,
        "{good} good ones, {broken} broken ones"
    );
}

/// Advances a reader to `place`, with samples of a program that writes correctly.
fn advance(memory: &Memory, n: usize, place: u64) -> Position {
    let (slot, mut position) = (memory.view().slot(n), Position::default());
    let mut copy = Vec::new();
    let mut head = 0;
    while head < place {
        let more = (place - head - SAMPLE).min(200);
        // Avoids leaving a single word, which is too few for a sample.
        let more = if place - head - SAMPLE - more == 1 {
            more - 1
        } else {
            more
        };
        memory.set_word(n, head, 0, first_word(7, more));
        head += SAMPLE + more;
        memory.set_head(n, head);
        take(&slot, &mut position, &mut copy).unwrap();
    }
    position
}

#[test]
fn sample_that_ends_behind_the_head_is_broken() {
    let memory = Memory::new(WORDS);
    let slot = memory.view().slot(0);
    // The largest sample, while the head indicates that only one word is written.
    memory.set_word(0, 0, 0, u64::MAX);
    memory.set_head(0, 1);
    let mut position = Position::default();
    let mut copy = Vec::new();
    assert_eq!(take(&slot, &mut position, &mut copy), Err(Broken));
    assert!(copy.is_empty());
    // The ring stays broken, whatever is written later.
    memory.set_head(0, 257);
    assert_eq!(take(&slot, &mut position, &mut copy), Err(Broken));
}

#[test]
fn head_behind_the_tail_is_broken() {
    let memory = Memory::new(WORDS);
    let slot = memory.view().slot(0);
    for head in [99, 0, u64::MAX, 101 + WORDS] {
        let mut position = advance(&memory, 0, 100);
        memory.set_head(0, head);
        assert_eq!(slot.filled(&position), 0.0, "head {head}");
        assert_eq!(
            take(&slot, &mut position, &mut Vec::new()),
            Err(Broken),
            "head {head}"
        );
    }
}

#[test]
fn tail_of_the_program_moves_nothing() {
    let memory = Memory::new(WORDS);
    let slot = memory.view().slot(0);
    let mut position = advance(&memory, 0, 100);
    memory.set_word(0, 100, 0, first_word(7, 1));
    memory.set_head(0, 103);
    memory.set_tail(0, u64::MAX - 1);
    let mut copy = Vec::new();
    assert_eq!(take(&slot, &mut position, &mut copy), Ok(()));
    assert_eq!(copy.len(), 3);
    assert_eq!(memory.tail(0), 103);
}

/// The samples that are read equal those that were written, wherever in the ring they begin.
#[test]
fn samples_come_as_they_were_written() {
    let memory = Memory::new(WORDS);
    let slot = memory.view().slot(1);
    let mut random = Random::new(number("RING_SEED", 1));
    let (mut position, mut copy, mut head) = (Position::default(), Vec::new(), 0);
    for _ in 0..500 {
        let mut written = Vec::new();
        let start = head;
        loop {
            let more = random.below(256);
            if head + SAMPLE + more - start > WORDS {
                break;
            }
            let words: Vec<_> = (0..=more).map(|_| random.next()).collect();
            let first = first_word(random.next(), more);
            memory.set_word(1, head, 0, first);
            for (n, &word) in (1..).zip(&words) {
                memory.set_word(1, head, n, word);
            }
            head += SAMPLE + more;
            written.push((first, words));
        }
        memory.set_head(1, head);
        take(&slot, &mut position, &mut copy).unwrap();
        let read: Vec<_> = samples(&copy)
            .map(|sample| (sample.first, [&[sample.address], sample.more].concat()))
            .collect();
        assert_eq!(read, written);
    }
}

/// A program that keeps writing while it is read.
#[test]
fn reader_is_not_disturbed_by_writers() {
    let memory = Memory::new(WORDS);
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(2);
            while !end.load(Relaxed) {
                let n = random.below(TRIED as u64) as usize;
                let word = random.below((ALIGN as u64 / 8) + WORDS + OVERHANG);
                memory.set_any(n, word, extreme(&mut random));
                memory.set_head(n, extreme(&mut random));
            }
        });
        let mut copy = Vec::new();
        for n in (0..TRIED)
            .cycle()
            .take(number("RING_ROUNDS", 1000) as usize)
        {
            look(&memory, n);
            let _ = take(&memory.view().slot(n), &mut Position::default(), &mut copy);
        }
        end.store(true, Relaxed);
    });
}
