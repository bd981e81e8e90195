// SPDX-License-Identifier: GPL-2.0
//! Counts beyond the 32 bits of a PMC.
//!
//! A PMC overflows when its bit 31 becomes set. The kernel has to add it to the 64-bit count at
//! 2^31 events, and must not lose events after 2^32.

use pmu_selftests::fields::sample::IP;
use pmu_selftests::prelude::*;

const PAST_31: u64 = 3 << 30;
const PAST_32: u64 = 5 << 30;

/// Checks a count. The system's own work, above all ticks, may add 1 %.
fn expect(count: u64, done: u64) -> Outcome {
    expect_within(done, count, done..done + machine::kernel_share(done / 100))
}

fn counts(attr: Attr, instructions: u64) -> Outcome {
    let (count, done) = count_work(&attr.open()?, instructions)?;
    expect(count, done)
}

/// Tests several short stretches: an overflow may come between a stop and a start.
fn in_pieces() -> Outcome {
    let event = Attr::instructions().open()?;
    let (mut done, mut last) = (0, 0);
    while done < PAST_32 {
        event.enable()?;
        done += work::run(1 << 27);
        event.disable()?;
        let count = event.read()?.value;
        check!(count > last, "{last}, then {count}");
        last = count;
    }
    expect(last, done)
}

ktap::main! {
    past_2_31 = counts(Attr::instructions(), PAST_31),
    past_2_32 = counts(Attr::raw(on_pmc(1, INSTRUCTIONS)), PAST_32),
    past_2_32_on_pmc5 = counts(Attr::raw(RUN_INSTRUCTIONS), PAST_32),
    in_pieces,
    // With a period that does not end, the PMC starts at another value and must count the same.
    with_a_long_period = counts(Attr::instructions().sampling(1 << 40, IP), PAST_32),
}
