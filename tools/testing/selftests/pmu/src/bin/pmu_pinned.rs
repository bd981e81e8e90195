// SPDX-License-Identifier: GPL-2.0
//! Pinned groups stay on the PMU or go into error state.

use pmu_selftests::prelude::*;

/// Duration of work in nanoseconds: many rotation intervals (4 ms).
const LONG: u64 = 100_000_000;
/// Number of instructions.
const WORK: u64 = 1_000_000;

fn pinned(code: u64) -> Attr {
    Attr::raw(code).pinned(true)
}

fn pinned_never_yields() -> Outcome {
    let stays = pinned(on_pmc(1, INSTRUCTIONS)).open()?;
    let rival = Attr::raw(on_pmc(1, CYCLES)).open()?;
    rival.enable()?;
    stays.enable()?;
    let done = work::run_for(LONG);
    let (stays, rival) = (stays.read()?, rival.read()?);
    check!(
        stays.enabled == stays.running && stays.value >= done,
        "{stays:?}"
    );
    check!(
        rival.enabled > 0 && rival.running < rival.enabled / 10,
        "{rival:?}"
    );
    Ok(())
}

fn second_pinned_fails() -> Outcome {
    let first = pinned(on_pmc(1, INSTRUCTIONS)).open()?;
    let second = pinned(on_pmc(1, CYCLES)).open()?;
    first.enable()?;
    second.enable()?;
    let done = work::run_for(LONG);
    check!(
        !second.is_scheduled()?,
        "two pinned events on PMC1: {:?}",
        second.read()?
    );
    check!(first.is_scheduled()? && first.read()?.value >= done);
    // Enabling the event again ends the error state, once there is room on the PMU.
    drop(first);
    second.enable()?;
    work::run_for(LONG);
    check!(second.is_scheduled()?, "in error although PMC1 is free");
    check!(second.read()?.value > 0);
    Ok(())
}

/// Tests that a pinned event stays on the PMU while other events are opened and closed. It moves to
/// another counter if an event needs its counter, and loses no counts.
fn pinned_moves_without_loss() -> Outcome {
    let stays = pinned(INSTRUCTIONS).enabled().open()?;
    let mut done = 0;
    for round in 0..40 {
        done += work::run(WORK);
        let rival = Attr::raw(on_pmc(1 + round % 4, CYCLES)).enabled().open()?;
        done += work::run(WORK);
        let rival = rival.read()?;
        check!(rival.running > 0 && rival.value > 0, "{rival:?}");
    }
    let stays = stays.read()?;
    check!(stays.enabled == stays.running, "{stays:?}");
    expect_within(
        "pinned",
        stays.value,
        done..done + machine::kernel_share(done / 10),
    )
}

ktap::main! {
    pinned_never_yields, second_pinned_fails, pinned_moves_without_loss,
}
