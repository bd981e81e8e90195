// SPDX-License-Identifier: GPL-2.0
//! Samples with branch stacks: consecutive branches of the program, with exact addresses at both
//! ends, in the requested layout, for each of several events at once.
//!
//! `pmu_branch_filters` tests which branches each filter selects.

use std::os::unix::process::CommandExt;
use std::process::Command;

use pmu_selftests::branch::needs_branches;
use pmu_selftests::branch::samples;
use pmu_selftests::branch::sampling;
use pmu_selftests::branch::sampling_with;
use pmu_selftests::branching::Program;
use pmu_selftests::fields::branch::*;
use pmu_selftests::fields::sample::*;
use pmu_selftests::prelude::*;
use pmu_selftests::sample::Branch;

fn rounds() -> u64 {
    machine::sampled_work(200_000)
}

/// Number of records that the hardware holds.
const BHRB: usize = 32;

/// Checks that more than `fewest` samples are of `program`, and that their stacks hold the last
/// branches that the filter selects. The first sample may hold branches from before the program.
fn shows(samples: &[Sample], program: &Program, filter: u64, fewest: usize) -> Outcome {
    let inside = samples.iter().filter(|s| program.code().contains(&s.ip));
    let inside: Vec<&Sample> = inside.collect();
    check!(
        inside.len() > fewest,
        "{} of {} samples are of the program",
        inside.len(),
        samples.len()
    );
    // The history starts empty after each switch to the task.
    let empty = inside.iter().filter(|s| s.branches.is_empty()).count();
    check!(
        empty * 10 <= inside.len(),
        "{empty} of {} stacks are empty",
        inside.len()
    );
    for sample in &inside[1..] {
        let stack = &sample.branches;
        if let Err(why) = program.explains(stack, filter) {
            return ktap::fail(format!("{why}, of {}", stack.len()));
        }
    }
    Ok(())
}

/// Tests that stacks hold as many branches as the hardware does. An indirect branch takes two
/// records.
fn whole_stacks() -> Outcome {
    let program = Program::plain();
    let round = program.sites().len();
    let indirect = program.sites().iter().filter(|site| site.indirect).count();
    let whole = BHRB * round / (round + indirect);
    let samples = samples(sampling(ANY), || program.run(rounds()))?;
    let inside = samples.iter().filter(|s| program.code().contains(&s.ip));
    let found: Vec<usize> = inside.map(|sample| sample.branches.len()).collect();
    let good = found
        .iter()
        .filter(|found| found.abs_diff(whole) <= indirect);
    // Some stacks are shorter because the history starts empty after a switch to the task.
    check!(
        good.count() * 10 >= found.len() * 9 && found.iter().max() <= Some(&BHRB),
        "{found:?} branches, about {whole} fit"
    );
    // The oldest record may be the target of an indirect branch whose own record is overwritten.
    // But some stacks must use all records.
    let records = |from: u64| {
        let site = program.sites().iter().find(|site| site.from == from);
        site.map(|site| 1 + usize::from(site.indirect))
    };
    let taken = samples.iter().filter_map(|sample| {
        let of_each = sample.branches.iter().map(|branch| records(branch.from));
        of_each.sum::<Option<usize>>()
    });
    let most = taken.max();
    check!(most == Some(BHRB), "{most:?} records at most");
    Ok(())
}

/// Tests each optional field of a branch, and all combinations of them. The parser requires that
/// the record ends after the last field, so a missing or an additional word is an error.
fn layout() -> Outcome {
    let program = Program::plain();
    let extras = [HW_INDEX, NO_FLAGS, NO_CYCLES, TYPE_SAVE, PRIV_SAVE];
    for choice in 0..1 << extras.len() {
        let chosen = (0..extras.len()).filter(|index| choice >> index & 1 != 0);
        let extra: u64 = chosen.map(|index| extras[index]).sum();
        // Adds a field after the branch stack.
        let attr = sampling(ANY | extra).sample_regs_intr(0b11);
        let attr = attr.with(|raw| raw.sample_type |= REGS_INTR);
        let samples = samples(attr, || program.run(rounds() / 4))?;
        shows(&samples, &program, ANY, 10)?;
        for sample in &samples {
            let unknown_or_first = [u64::MAX, 0].contains(&sample.hw_index);
            check!(unknown_or_first, "hw_index {:#x}", sample.hw_index);
            for branch in &sample.branches {
                fields_are(branch, extra)?;
            }
        }
    }
    Ok(())
}

/// Checks that a branch has the requested fields, and no others.
fn fields_are(branch: &Branch, extra: u64) -> Outcome {
    let has = |bit: u64| extra & bit != 0;
    let predictions = u32::from(branch.predicted()) + u32::from(branch.mispredicted());
    let expected = u32::from(!has(NO_FLAGS));
    check!(
        predictions == expected,
        "{extra:#x}: prediction: {branch:x?}"
    );
    check!(branch.cycles() == 0, "{extra:#x}: cycles: {branch:x?}");
    check!(
        has(TYPE_SAVE) == (branch.kind() != 0),
        "{extra:#x}: type: {branch:x?}"
    );
    let user = u64::from(has(PRIV_SAVE)) * u64::from(sys::PERF_BR_PRIV_USER);
    check!(
        branch.privilege() == user,
        "{extra:#x}: privilege: {branch:x?}"
    );
    Ok(())
}

/// Tests several events that are open at once, each with its own filter.
fn filters_at_once() -> Outcome {
    let program = Program::plain();
    let mut recorders = Vec::new();
    let filters = [ANY_CALL, COND, ANY, IND_CALL];
    for (index, filter) in (0..).zip(filters) {
        let attr = sampling_with(Attr::raw(on_pmc(index + 1, INSTRUCTIONS)), filter)
            .with(|raw| raw.sample_period += 5000 * index);
        recorders.push(Recorder::open(attr, 256)?);
    }
    for recorder in &recorders {
        recorder.event.enable()?;
    }
    program.run(rounds());
    for recorder in &recorders {
        recorder.event.disable()?;
    }
    for (recorder, filter) in recorders.iter_mut().zip(filters) {
        shows(&recorder.take()?, &program, filter, 20)?;
    }
    Ok(())
}

/// Tests that the event continues in a program that the task executes, with the branches of that
/// program.
fn over_exec() -> Outcome {
    let attr = sampling(ANY);
    let mut child = Peer::spawn(|parent| {
        parent.listen()?;
        Program::plain().run(rounds());
        Err(Command::new("/proc/self/exe").arg(MIXED).exec().into())
    })?;
    let mut recorder = Recorder::open(attr.pid(child.pid()).enabled(), 256)?;
    child.tell()?;
    child.join()?;
    let samples = recorder.take()?;
    shows(&samples, &Program::plain(), ANY, 40)?;
    shows(&samples, &Program::mixed(), ANY, 40)
}

/// Tests the samples of a child that inherited the event: they hold the child's branches.
fn inherited() -> Outcome {
    cpu::pin_to(0)?;
    let program = Program::plain();
    let mut recorder = Recorder::open(sampling(ANY).inherit(true).enabled().cpu(0), 256)?;
    let child = Peer::spawn(|_| {
        Program::plain().run(rounds());
        Ok(())
    })?;
    let pid = child.pid() as u32;
    child.join()?;
    recorder.event.disable()?;
    let mut samples = recorder.take()?;
    samples.retain(|sample| sample.tid == pid);
    shows(&samples, &program, ANY, 40)
}

fn prepare() -> Outcome {
    machine::keep_sample_rate()?;
    needs_branches()
}

/// Argument of the program that [`over_exec`] executes.
const MIXED: &str = "mixed";

fn main() {
    if std::env::args().nth(1).as_deref() == Some(MIXED) {
        return Program::mixed().run(rounds());
    }
    ktap::run(ktap::tests! {
        first: prepare;
        whole_stacks, layout, filters_at_once, inherited, over_exec,
    })
}
