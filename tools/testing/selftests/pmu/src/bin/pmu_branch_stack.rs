// SPDX-License-Identifier: GPL-2.0
//! Samples with branch stacks: consecutive branches of the program, exact at both
//! ends, in the layout that was asked for, for each of several events at once.
//!
//! Which branches a filter lets in is up to `pmu_branch_filters`.

use std::io;

use perf_event::sys;

use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use pmu_selftests::branch::needs_branches;
use pmu_selftests::branching::Program;
use pmu_selftests::codes::INSTRUCTIONS;
use pmu_selftests::codes::on_pmc;
use pmu_selftests::fields::branch::ANY;
use pmu_selftests::fields::branch::ANY_CALL;
use pmu_selftests::fields::branch::COND;
use pmu_selftests::fields::branch::HW_INDEX;
use pmu_selftests::fields::branch::IND_CALL;
use pmu_selftests::fields::branch::NO_CYCLES;
use pmu_selftests::fields::branch::NO_FLAGS;
use pmu_selftests::fields::branch::PRIV_SAVE;
use pmu_selftests::fields::branch::TYPE_SAVE;
use pmu_selftests::fields::sample::IP;
use pmu_selftests::fields::sample::TID;
use pmu_selftests::machine;
use pmu_selftests::process::Child;
use pmu_selftests::ring::Ring;
use pmu_selftests::sample::Branch;
use pmu_selftests::sample::Sample;

fn period() -> u64 {
    machine::period(20_011)
}

fn rounds() -> u64 {
    machine::sampled_work(200_000)
}

/// Records that the hardware holds.
const BHRB: usize = 32;

/// User space only, so that every sample is of a program's own.
fn event(filter: u64) -> Attr {
    Attr::instructions()
        .sampling(period(), IP | TID)
        .branches(filter)
        .exclude_kernel(true)
}

/// Samples of `body`.
fn sample(attr: &Attr, body: impl FnOnce()) -> io::Result<Vec<Sample>> {
    let event = attr.open()?;
    let mut ring = Ring::map(&event, 256)?;
    event.count(body)?;
    Sample::all(attr, &ring.take())
}

/// At least `fewest` samples are of `program`, and their stacks are what the filter
/// wants of its last branches. The first may have what was there before.
fn shows(samples: &[Sample], program: &Program, filter: u64, fewest: usize) -> Outcome {
    let inside: Vec<&Sample> = samples
        .iter()
        .filter(|sample| program.code().contains(&sample.ip))
        .collect();
    check!(
        inside.len() > fewest,
        "{} of {} samples are of the program",
        inside.len(),
        samples.len()
    );
    // The history begins anew where the task was switched away from.
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

/// From and to are the program's, in its order, and none is missing in between.
fn consecutive() -> Outcome {
    needs_branches()?;
    for program in [Program::plain(), Program::mixed()] {
        let samples = sample(&event(ANY), || program.run(rounds()))?;
        shows(&samples, &program, ANY, 40)?;
    }
    Ok(())
}

/// As many branches as the hardware holds; an indirect one takes two records.
fn whole_stacks() -> Outcome {
    needs_branches()?;
    let program = Program::plain();
    let round = program.sites().len();
    let indirect = program.sites().iter().filter(|site| site.indirect).count();
    let whole = BHRB * round / (round + indirect);
    let samples = sample(&event(ANY), || program.run(rounds()))?;
    let inside = samples.iter().filter(|s| program.code().contains(&s.ip));
    let found: Vec<usize> = inside.map(|sample| sample.branches.len()).collect();
    let good = found
        .iter()
        .filter(|found| found.abs_diff(whole) <= indirect);
    // Some begin where the task was switched away from.
    check!(
        good.count() * 10 >= found.len() * 9 && found.iter().max() <= Some(&BHRB),
        "{found:?} branches, about {whole} fit"
    );
    Ok(())
}

/// The program goes on where the newest branch of the stack led it to.
fn leads_to_where_it_was() -> Outcome {
    needs_branches()?;
    let program = Program::plain();
    let samples = sample(&event(ANY), || program.run(rounds()))?;
    let sites = program.sites();
    let mut led = 0;
    for sample in samples
        .iter()
        .skip(1)
        .filter(|s| program.code().contains(&s.ip))
    {
        let Some(newest) = sample.branches.first() else {
            continue;
        };
        let Some(index) = sites.iter().position(|site| site.from == newest.from) else {
            return ktap::fail(format!("no branch of the program: {newest:x?}"));
        };
        let next = sites[(index + 1) % sites.len()];
        led += usize::from((newest.to..=next.from).contains(&sample.ip));
    }
    // Hardware may go on a little between overflow and interrupt.
    let all = samples.len();
    check!(led * 2 > all, "{led} of {all} samples");
    Ok(())
}

/// Each way to ask for less or more beside the addresses, and all together. The
/// parser takes each record to its end, so a word too many or too few fails.
fn layout() -> Outcome {
    needs_branches()?;
    let program = Program::plain();
    let extras = [HW_INDEX, NO_FLAGS, NO_CYCLES, TYPE_SAVE, PRIV_SAVE];
    for choice in 0..1 << extras.len() {
        let chosen = (0..extras.len()).filter(|index| choice >> index & 1 != 0);
        let extra: u64 = chosen.map(|index| extras[index]).sum();
        // Something behind the stack, too.
        let attr = event(ANY | extra).with(|raw| {
            raw.sample_type |= u64::from(sys::PERF_SAMPLE_REGS_INTR);
            raw.sample_regs_intr = 0b11;
        });
        let samples = sample(&attr, || program.run(rounds() / 4))?;
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

/// A branch tells what was asked for, and nothing else.
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

/// Events open at once, one behind the other, each with its own filter.
fn filters_at_once() -> Outcome {
    needs_branches()?;
    let program = Program::plain();
    let mut open = Vec::new();
    for (index, filter) in [ANY_CALL, COND, ANY, IND_CALL].into_iter().enumerate() {
        let (index, code) = (index as u64, on_pmc(index as u64 + 1, INSTRUCTIONS));
        let attr = Attr::raw(code)
            .sampling(period() + 5000 * index, IP | TID)
            .branches(filter)
            .exclude_kernel(true);
        let event = attr.open()?;
        let ring = Ring::map(&event, 256)?;
        open.push((attr, event, ring, filter));
    }
    for (_, event, ..) in &open {
        event.enable()?;
    }
    program.run(rounds());
    for (_, event, ..) in &open {
        event.disable()?;
    }
    for (attr, _, ring, filter) in &mut open {
        let samples = Sample::all(attr, &ring.take())?;
        shows(&samples, &program, *filter, 20)?;
    }
    Ok(())
}

/// Leader and member of one group with different filters.
fn filters_in_a_group() -> Outcome {
    needs_branches()?;
    let program = Program::mixed();
    let (calls, conditions) = (event(ANY_CALL), event(COND));
    let leader = calls.open()?;
    let mut calls_ring = Ring::map(&leader, 256)?;
    let member = conditions.open_with(&leader)?;
    let mut conditions_ring = Ring::map(&member, 256)?;
    leader.count(|| program.run(rounds()))?;
    let samples = Sample::all(&calls, &calls_ring.take())?;
    shows(&samples, &program, ANY_CALL, 20)?;
    let samples = Sample::all(&conditions, &conditions_ring.take())?;
    shows(&samples, &program, COND, 20)
}

/// An event whose samples have no stack samples as ever beside one whose have.
fn beside_plain_samples() -> Outcome {
    needs_branches()?;
    machine::needs_pace()?;
    let program = Program::plain();
    let plain = Attr::instructions()
        .sampling(period(), IP)
        .exclude_kernel(true);
    let other = plain.open()?;
    let mut ring = Ring::map(&other, 64)?;
    let samples = sample(&event(ANY), || {
        let enabled = other.enable();
        program.run(rounds());
        enabled.and_then(|()| other.disable()).expect("ioctl");
    })?;
    shows(&samples, &program, ANY, 40)?;
    let alone = Sample::all(&plain, &ring.take())?.len();
    check!(
        alone.abs_diff(samples.len()) <= 2 + samples.len() / 10,
        "{alone} samples beside {} with stacks",
        samples.len()
    );
    Ok(())
}

/// Samples of a child that inherited the event, with the child's branches.
fn inherited() -> Outcome {
    needs_branches()?;
    machine::pin_to(0)?;
    let program = Program::plain();
    let attr = event(ANY).inherit(true).enabled().cpu(0);
    let event = attr.open()?;
    let mut ring = Ring::map(&event, 256)?;
    let child = Child::spawn(|| {
        Program::plain().run(rounds());
        Ok(())
    })?;
    let pid = child.pid() as u32;
    child.wait()?;
    event.disable()?;
    let mut samples = Sample::all(&attr, &ring.take())?;
    samples.retain(|sample| sample.tid == pid);
    shows(&samples, &program, ANY, 40)
}

/// Of all that runs on a CPU.
fn of_a_cpu() -> Outcome {
    needs_branches()?;
    machine::pin_to(0)?;
    let program = Program::plain();
    let attr = event(ANY).exclude_kernel(false).on_cpu(0);
    let event = attr.open()?;
    let mut ring = Ring::map(&event, 256)?;
    event.count(|| program.run(rounds()))?;
    let samples = Sample::all(&attr, &ring.take())?;
    shows(&samples, &program, ANY, 40)
}

/// By frequency: the kernel finds the period.
fn by_frequency() -> Outcome {
    needs_branches()?;
    let program = Program::plain();
    let attr = event(ANY).with(|raw| {
        raw.sample_period = 10_000;
        raw.set_freq(1);
    });
    let samples = sample(&attr, || program.run(10 * rounds()))?;
    shows(&samples, &program, ANY, 40)
}

/// `sample_max_stack` cuts the oldest branches off.
fn no_more_than_asked_for() -> Outcome {
    needs_branches()?;
    let program = Program::plain();
    for most in [1, 5, 127] {
        let attr = event(ANY).sample_max_stack(most);
        let samples = sample(&attr, || program.run(rounds()))?;
        shows(&samples, &program, ANY, 40)?;
        let longest = samples.iter().map(|sample| sample.branches.len()).max();
        let longest = longest.unwrap_or(0);
        let expected = longest == usize::from(most) || (most == 127 && longest > 10);
        check!(expected, "{longest} branches, {most} at most");
    }
    Ok(())
}

fn main() {
    if let Err(error) = machine::keep_sample_rate() {
        eprintln!("perf_cpu_time_max_percent cannot be set: {error}");
    }
    ktap::run(&[
        ("consecutive", consecutive),
        ("whole_stacks", whole_stacks),
        ("leads_to_where_it_was", leads_to_where_it_was),
        ("layout", layout),
        ("filters_at_once", filters_at_once),
        ("filters_in_a_group", filters_in_a_group),
        ("beside_plain_samples", beside_plain_samples),
        ("inherited", inherited),
        ("of_a_cpu", of_a_cpu),
        ("by_frequency", by_frequency),
        ("no_more_than_asked_for", no_more_than_asked_for),
    ])
}
