// SPDX-License-Identifier: GPL-2.0
//! The mmap'ed page of an event: which PMC it is on, if any, and count and times
//! as of the kernel's last update.

use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use pmu_selftests::codes::CYCLES;
use pmu_selftests::codes::RUN_CYCLES;
use pmu_selftests::codes::RUN_INSTRUCTIONS;
use pmu_selftests::codes::on_pmc;
use pmu_selftests::errno_of;
use pmu_selftests::machine;
use pmu_selftests::ring::Ring;
use pmu_selftests::work;

const WORK: u64 = 1_000_000;
/// Nanoseconds.
const MOMENT: u64 = 100_000;

/// `index` is 0 (not on a PMC, or not told) or the number of the PMC.
fn index_names_the_counter() -> Outcome {
    machine::pin_to(0)?;
    for pmc in 1..=6 {
        let code = match pmc {
            5 => RUN_INSTRUCTIONS,
            6 => RUN_CYCLES,
            _ => on_pmc(pmc, CYCLES),
        };
        // Of a whole CPU: nothing else may stand for the code.
        let event = Attr::raw(code).on_cpu(0).open()?;
        let ring = Ring::map(&event, 0)?;
        check!(
            ring.index_and_offset().0 == 0,
            "disabled: {:?}",
            ring.index_and_offset()
        );
        event.enable()?;
        let index = u64::from(ring.index_and_offset().0);
        check!(index == 0 || index == pmc, "{code:#x} has index {index}");
        event.disable()?;
        check!(
            ring.index_and_offset().0 == 0,
            "disabled: {:?}",
            ring.index_and_offset()
        );
    }
    Ok(())
}

fn offset_is_the_count() -> Outcome {
    let event = Attr::instructions().enabled().open()?;
    let ring = Ring::map(&event, 0)?;
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
            enabled.abs_diff(count.enabled) < MOMENT,
            "{count:?}, {:?}",
            ring.times()
        );
        check!(
            running.abs_diff(count.running) < MOMENT,
            "{count:?}, {:?}",
            ring.times()
        );
    }
    Ok(())
}

fn reset_shows() -> Outcome {
    let event = Attr::instructions().enabled().open()?;
    let ring = Ring::map(&event, 0)?;
    work::run(WORK);
    event.disable()?;
    check!(
        ring.index_and_offset().1 >= WORK as i64 / 2,
        "{:?}",
        ring.index_and_offset()
    );
    event.reset()?;
    check!(
        ring.index_and_offset().1 == 0,
        "{:?}",
        ring.index_and_offset()
    );
    Ok(())
}

fn buffer_size_has_to_be_a_power_of_two() -> Outcome {
    let event = Attr::instructions().open()?;
    check!(errno_of(Ring::map(&event, 3)) == libc::EINVAL);
    check!(errno_of(Ring::map(&event, 4)) == 0);
    Ok(())
}

/// An event that is mapped lives until it is unmapped.
fn page_outlives_the_descriptor() -> Outcome {
    let event = Attr::instructions().enabled().open()?;
    let ring = Ring::map(&event, 0)?;
    work::run(WORK);
    event.disable()?;
    let before = ring.index_and_offset();
    drop(event);
    check!(ring.index_and_offset() == before);
    Ok(())
}

fn main() {
    ktap::run(&[
        ("index_names_the_counter", index_names_the_counter),
        ("offset_is_the_count", offset_is_the_count),
        ("reset_shows", reset_shows),
        (
            "buffer_size_has_to_be_a_power_of_two",
            buffer_size_has_to_be_a_power_of_two,
        ),
        ("page_outlives_the_descriptor", page_outlives_the_descriptor),
    ])
}
