// SPDX-License-Identifier: GPL-2.0
//! A new period leaves the count of a sampling event alone, whether a program sets it by
//! `PERF_EVENT_IOC_PERIOD` or perf core does to reach a frequency.
//!
//! Each test has a second event beside the sampling one, which counts the same on another counter.
//! The two are a group: they start, stop and are read together, so their counts agree however many
//! samples there are.

use pmu_selftests::prelude::*;

/// Pages of a ring that nothing reads: when it is full, samples are dropped.
const PAGES: usize = 1;
const LONG: u64 = 1 << 33;
/// The most periods that a test sets.
const PERIODS: u64 = 5;

/// Instructions of the kernel that one event of the group may count and the other not, whenever the
/// period changes. On hardware these are none, as the PMU is frozen then. QEMU writes one counter
/// after the other, and ignores the freeze bits of the kernel.
const APART: u64 = 1000;

/// A group that counts instructions twice. Its leader samples, as `sampling` has it.
struct Twice {
    leader: Recorder,
    _plain: Event,
}

impl Twice {
    fn open(sampling: impl FnOnce(Attr) -> Attr) -> Result<Self, Failure> {
        let grouped = |pmc| Attr::raw(on_pmc(pmc, INSTRUCTIONS)).grouped();
        let leader = Recorder::open(sampling(grouped(2)), PAGES)?;
        let plain = grouped(3).open_with(&leader.event)?;
        leader.event.enable()?;
        Ok(Self {
            leader,
            _plain: plain,
        })
    }

    /// Expects that both counts are of `done` instructions at least, and at most `apart` apart.
    fn expect_equal(&self, what: &str, done: u64, apart: u64) -> Outcome {
        let group = self.leader.event.read_group()?;
        let [(sampling, _), (plain, _)] = group.values[..] else {
            return ktap::fail(format!("{group:?}"));
        };
        println!("{what}: {sampling} counted while sampling, {plain} without");
        check!(plain >= done, "{what}: {plain} counted of {done}");
        check!(
            sampling.abs_diff(plain) <= apart,
            "{what}: the sampling event counted {sampling}, the other one {plain}"
        );
        Ok(())
    }
}

/// `PERF_EVENT_IOC_PERIOD` while the event runs, at the beginning of a long period, near the end of
/// one, and in the middle.
fn by_ioctl() -> Outcome {
    let twice = Twice::open(|attr| attr.sampling(LONG, 0))?;
    let mut done = 0;
    for (period, work) in [
        (LONG, 1_000_000),
        (1_500_000, 1_000_000),
        (LONG, 1_000_000),
        (700_001, 2_000_000),
        (LONG + 1, 3_000_000),
    ] {
        twice.leader.event.set_period(period)?;
        done += work::run(work);
        twice.expect_equal(&format!("period {period}"), done, PERIODS * APART)?;
    }
    Ok(())
}

/// Perf core looks for the period of an event with a frequency at each sample and each tick.
fn by_frequency() -> Outcome {
    machine::needs_pace()?;
    for frequency in [1, 10, 100, 1000] {
        let twice = Twice::open(|attr| attr.sampling(frequency, 0).freq(true))?;
        let done = work::run_for(100_000_000);
        // One event may count more of the kernel's work for each sample.
        twice.expect_equal(&format!("{frequency} Hz"), done, done / 100)?;
    }
    Ok(())
}

ktap::main! {
    first: machine::keep_sample_rate;
    by_ioctl, by_frequency,
}
