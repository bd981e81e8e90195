// SPDX-License-Identifier: GPL-2.0
//! The mapped page of an event: the number of its PMC, if it has one, and its count and times as of
//! the kernel's last update.

use pmu_selftests::of_cpu_0;
use pmu_selftests::prelude::*;

const WORK: u64 = 1_000_000;
/// Tolerance of times, in nanoseconds.
const MOMENT: u64 = 100_000;

/// Opens an enabled event with its page.
fn open(attr: Attr) -> Result<(Event, Ring), Failure> {
    let event = attr.enabled().open()?;
    let ring = Ring::map(&event, 0)?;
    Ok((event, ring))
}

/// Returns the PMC according to the page. It is 0 if the event is on no PMC or the page does not
/// name it.
fn index(ring: &Ring) -> u64 {
    ring.index_and_offset().0.into()
}

fn index_names_the_counter() -> Outcome {
    cpu::pin_to(0)?;
    for (pmc, code) in (1..).zip(ALL_COUNTERS) {
        // An event of a CPU names its counter, so the code must not be replaced by an alternative.
        let event = of_cpu_0(code).open()?;
        let ring = Ring::map(&event, 0)?;
        check!(index(&ring) == 0, "not enabled: {}", index(&ring));
        event.enable()?;
        let index_enabled = index(&ring);
        check!(index_enabled == pmc, "{code:#x} has index {index_enabled}");
        event.disable()?;
        check!(index(&ring) == 0, "disabled: {}", index(&ring));
    }
    Ok(())
}

fn offset_is_the_count() -> Outcome {
    let (event, ring) = open(Attr::instructions())?;
    for _ in 0..3 {
        event.enable()?;
        work::run(WORK);
        event.disable()?;
        let count = event.read()?;
        let (_, offset) = ring.index_and_offset();
        check!(count.value as i64 == offset, "{count:?}, offset {offset}");
        // The kernel writes the page a moment after it takes the count.
        let (enabled, running) = ring.times();
        check!(
            enabled.abs_diff(count.enabled) < MOMENT && running.abs_diff(count.running) < MOMENT,
            "{count:?}, {enabled}, {running}"
        );
    }
    Ok(())
}

ktap::main! {
    index_names_the_counter, offset_is_the_count,
}
