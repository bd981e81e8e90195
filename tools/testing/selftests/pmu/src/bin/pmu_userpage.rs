// SPDX-License-Identifier: GPL-2.0
//! The mmap'ed page of an event: which PMC it is on, if any, and count and times
//! as of the kernel's last update.

use pmu_selftests::of_cpu_0;
use pmu_selftests::prelude::*;

const WORK: u64 = 1_000_000;
/// Nanoseconds.
const MOMENT: u64 = 100_000;

/// An enabled event with its page.
fn open(attr: Attr) -> Result<(Event, Ring), Failure> {
    let event = attr.enabled().open()?;
    let ring = Ring::map(&event, 0)?;
    Ok((event, ring))
}

/// The PMC by the page, 0 if the event is on none or the page does not tell.
fn index(ring: &Ring) -> u64 {
    ring.index_and_offset().0.into()
}

fn index_names_the_counter() -> Outcome {
    cpu::pin_to(0)?;
    for (pmc, code) in (1..).zip(ALL_COUNTERS) {
        // Of a whole CPU: nothing else may stand for the code.
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
        // The page is written on the way out, a moment after the count is taken.
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
