// SPDX-License-Identifier: GPL-2.0
//! A new period does not change the count of a sampling event, whether a program sets it with
//! `PERF_EVENT_IOC_PERIOD` or perf core sets it to reach a frequency.
//!
//! Each test has a second event, which counts the same on another counter. The two are a group:
//! they are started, stopped and read together, so their counts agree, whatever the number of
//! samples.

use pmu_selftests::prelude::*;

/// Pages of a ring buffer that is never read. When it is full, samples are dropped.
const PAGES: usize = 1;
const LONG: u64 = 1 << 33;
/// The largest number of periods that a test sets.
const PERIODS: u64 = 5;

/// Instructions of the kernel that only one event of the group may count at each change of the
/// period. On hardware there are none, because the PMU is frozen during the change. QEMU writes one
/// counter after the other, and ignores the freeze bits for the kernel.
const APART: u64 = 1000;

/// A group of two events that count instructions. The leader samples.
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

    /// Checks that both counts are at least `done`, and differ by at most `apart`.
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

/// Tests `PERF_EVENT_IOC_PERIOD` while the event runs: at the beginning, near the end and in the
/// middle of a period.
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

/// Tests an event with a frequency. perf core adjusts its period at each sample and each tick.
fn by_frequency() -> Outcome {
    machine::needs_pace()?;
    for frequency in [1, 10, 100, 1000] {
        let twice = Twice::open(|attr| attr.sampling(frequency, 0).freq(true))?;
        let done = work::run_for(100_000_000);
        // At each sample, one event may count more of the kernel's work than the other.
        twice.expect_equal(&format!("{frequency} Hz"), done, done / 100)?;
    }
    Ok(())
}

ktap::main! {
    first: machine::keep_sample_rate;
    by_ioctl, by_frequency,
}
