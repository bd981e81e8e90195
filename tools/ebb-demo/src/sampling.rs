// SPDX-License-Identifier: GPL-2.0
//! Takes EBBs in the workload: the handler, and the run that it interrupts.

use crate::workload;
use crate::workload::Data;
use ebb::EbbContext;
use ebb::Error;
use ebb::Pmc;
use ebb::pmc;
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::time::Instant;

/// Array in which the handler stores the interrupted addresses, and its length. `run` allocates it
/// before the first EBB, so that the handler neither allocates nor waits.
static SAMPLES: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
static ROOM: AtomicU64 = AtomicU64::new(0);

/// Stores the interrupted address.
pub fn handler(context: &mut EbbContext<'_>) {
    let place = context.number() - 1;
    if place < ROOM.load(Relaxed) {
        // SAFETY: `run` has allocated `ROOM` places and never frees them.
        // CAST: A usize has 64 bits, as a u64 does.
        let sample = unsafe { &*SAMPLES.load(Relaxed).add(place as usize) };
        sample.store(context.interrupted(), Relaxed);
    }
}

/// Result of a run.
pub struct Run {
    /// Interrupted addresses.
    pub addresses: Vec<u64>,
    /// EBBs for which there was no room.
    pub not_noted: usize,
    /// Branches to the handler without a cause.
    pub spurious: u64,
    /// Passes of the workload that the run took.
    pub passes: u64,
    /// Counts of the event in one pass, function by function, without EBBs.
    pub expected: Vec<u64>,
    /// Time of a pass without and with EBBs.
    pub pass_time: (Duration, Duration),
    /// Whether the workload computed the same result in every pass.
    pub same_result: bool,
}

/// Runs whole passes of the workload until `count` EBBs of event `code` arrived, one every `period`
/// counts. Gives up after twice as many passes as that should take.
pub fn run(code: u64, period: u32, count: usize) -> Result<Run, Error> {
    let counter = Pmc::of_event(code).ok_or(Error::Period)?;
    let event = ebb::event(code).open()?;
    // SAFETY: The handler only stores to atomics that exist already.
    unsafe { ebb::install(handler)? };
    event.enable()?;
    event.check_scheduled()?;

    let mut data = Data::new();
    let result = workload::pass(&mut data);
    let expected: Vec<u64> = workload::FUNCTIONS
        .iter()
        .map(|function| {
            counter.write(0);
            function.run(&mut data);
            u64::from(counter.read())
        })
        .collect();
    let start = Instant::now();
    let mut same_result = workload::pass(&mut data) == result;
    let without = start.elapsed();

    // If EBBs are lost the loop must end nevertheless: allow twice the passes.
    let per_pass = expected.iter().sum::<u64>().max(1);
    let needed = (count as u64 * u64::from(period)).div_ceil(per_pass);
    let limit = 2 * needed + 2;
    // The last pass is not cut short, which would distort the histogram. It may have more EBBs than
    // it has periods: the event may also count what the kernel does between them.
    let room = count as u64 + 4 * (per_pass / u64::from(period) + 1);
    let samples: Vec<AtomicU64> = (0..room).map(|_| AtomicU64::new(0)).collect();
    let samples: &'static [AtomicU64] = samples.leak();
    SAMPLES.store(samples.as_ptr().cast_mut(), Relaxed);
    ROOM.store(room, Relaxed);

    pmc::freeze();
    ebb::start(counter, period.into())?;
    ebb::enable()?;
    let start = Instant::now();
    pmc::unfreeze();
    let mut passes = 0;
    while ebb::count() < count as u64 && passes < limit {
        same_result &= workload::pass(&mut data) == result;
        passes += 1;
    }
    let with = start.elapsed();
    ebb::disable();
    event.close();

    let came = usize::try_from(ebb::count()).unwrap_or(usize::MAX);
    let noted = &samples[..came.min(samples.len())];
    Ok(Run {
        addresses: noted.iter().map(|s| s.load(Relaxed)).collect(),
        not_noted: came - noted.len(),
        spurious: ebb::spurious(),
        passes,
        expected,
        // CAST: A run has far fewer than 2^32 passes.
        pass_time: (without, with / (passes.max(1) as u32)),
        same_result,
    })
}
