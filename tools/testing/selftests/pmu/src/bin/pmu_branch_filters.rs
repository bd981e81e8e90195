// SPDX-License-Identifier: GPL-2.0
//! Branches in a branch stack under each filter by type, under two of them together, and under
//! privilege levels; and filters that are refused. The tests of the driver on the model cover every
//! combination.
//!
//! The built-in driver refuses all but four of the filters.

use pmu_selftests::branch::needs_branches;
use pmu_selftests::branch::samples;
use pmu_selftests::branch::sampling;
use pmu_selftests::branching::FILTERS;
use pmu_selftests::branching::Program;
use pmu_selftests::branching::filter_names;
use pmu_selftests::fields::branch::*;
use pmu_selftests::prelude::*;

fn rounds() -> u64 {
    machine::sampled_work(50_000)
}

/// Checks that each stack under `filter` holds those of the program's last branches that the filter
/// selects, with their types.
fn holds(program: &Program, filter: u64) -> Outcome {
    needs_branches()?;
    let samples = samples(sampling(filter | TYPE_SAVE), || program.run(rounds()))?;
    // The first stacks may hold branches from before the program. If the second sample comes soon,
    // its stack does so, too.
    let code = program.code();
    let inside = samples.iter().filter(|s| code.contains(&s.ip)).skip(1);
    let before = |s: &&Sample| s.branches.iter().any(|b| !code.contains(&b.from));
    let steady: Vec<&Sample> = inside.skip_while(before).collect();
    let name = filter_names(filter);
    check!(
        steady.len() > 8,
        "{name}: {} of {} samples are of the program",
        steady.len(),
        samples.len()
    );
    let wanted = program.wanted(filter);
    let mut short = 0;
    for sample in &steady {
        let stack = &sample.branches;
        if let Err(why) = program.explains(stack, filter) {
            return ktap::fail(format!("{name}: {why}, of {}", stack.len()));
        }
        for branch in stack {
            let site = wanted.iter().find(|site| site.from == branch.from);
            check!(
                site.is_some_and(|site| site.kind == branch.kind()),
                "{name}: {:#x} has kind {}, not that of {site:?}",
                branch.from,
                branch.kind()
            );
        }
        short += usize::from(stack.len() < wanted.len());
    }
    // 32 records are more than two rounds, so no branch can be missing. But the history starts
    // empty after each switch to the task.
    check!(
        short * 8 <= steady.len(),
        "{name}: {short} of {} stacks have less than a round",
        steady.len()
    );
    Ok(())
}

/// Returns every combination of filters by type, without `any`, which selects all branches.
fn all_choices() -> impl Iterator<Item = u64> {
    let bits: Vec<u64> = FILTERS[1..].iter().map(|(_, bit)| *bit).collect();
    (1..1_u32 << bits.len()).map(move |choice| {
        let chosen = bits.iter().enumerate();
        let chosen = chosen.filter(|(index, _)| choice >> index & 1 != 0);
        chosen.map(|(_, bit)| bit).sum()
    })
}

fn each_alone() -> Outcome {
    for (_, filter) in FILTERS.into_iter().chain([("two", IND_CALL | COND)]) {
        holds(&Program::plain(), filter)?;
        holds(&Program::mixed(), filter)?;
    }
    Ok(())
}

/// Checks that stacks hold branches of user space under each privilege filter that includes it.
fn user_space_is_wanted() -> Outcome {
    for privilege in [0, USER, USER | KERNEL, USER | HV, USER | KERNEL | HV] {
        holds(&Program::plain(), ANY | privilege)?;
    }
    Ok(())
}

/// Checks that no sample taken during the program has a branch of it. Returns the number of
/// samples.
fn none_of_the_program(attr: Attr, rounds: u64) -> Result<usize, Failure> {
    needs_branches()?;
    let program = Program::plain();
    let samples = samples(attr, || program.run(rounds))?;
    for branch in samples.iter().flat_map(|sample| &sample.branches) {
        let of_user = program.code().contains(&branch.from);
        check!(!of_user, "a branch of user space: {branch:x?}");
    }
    Ok(samples.len())
}

/// Tests an event with branches of the kernel only: it gets no others.
fn kernel_only() -> Outcome {
    let attr = sampling(ANY | KERNEL);
    let taken = none_of_the_program(attr.clone(), rounds())?;
    check!(taken > 8, "{taken} samples");
    none_of_the_program(attr.exclude_kernel(false), rounds())?;
    Ok(())
}

/// Tests a filter without a privilege level, which takes the level of the event: an event that
/// excludes user space gets no branches of user space.
fn privilege_of_the_event() -> Outcome {
    let attr = sampling(ANY).exclude_kernel(false).exclude_user(true);
    none_of_the_program(attr, 10 * rounds())?;
    Ok(())
}

/// Tests that every combination of filters can be opened on every CPU. HV is ignored and gives no
/// error.
fn all_are_taken() -> Outcome {
    for filter in all_choices() {
        for more in [0, USER, USER | KERNEL, HV, ANY, ANY | HV] {
            let errno = errno_of(sampling(filter | more).open());
            check!(errno == 0, "{}: errno {errno}", filter_names(filter | more));
        }
    }
    Ok(())
}

/// Tests that filters without support in this hardware are refused.
fn refused() -> Outcome {
    for (name, bit) in [
        ("call_stack", sys::PERF_SAMPLE_BRANCH_CALL_STACK),
        ("counter", sys::PERF_SAMPLE_BRANCH_COUNTERS),
        ("abort_tx", sys::PERF_SAMPLE_BRANCH_ABORT_TX),
        ("in_tx", sys::PERF_SAMPLE_BRANCH_IN_TX),
        ("no_tx", sys::PERF_SAMPLE_BRANCH_NO_TX),
    ] {
        for beside in [USER, USER | ANY] {
            let errno = errno_of(sampling(beside | u64::from(bit)).open());
            check!(errno == libc::EOPNOTSUPP, "{name}: errno {errno}");
        }
    }
    Ok(())
}

ktap::main! {
    first: machine::keep_sample_rate;
    each_alone,
    user_space_is_wanted, kernel_only, privilege_of_the_event,
    all_are_taken, refused,
}
