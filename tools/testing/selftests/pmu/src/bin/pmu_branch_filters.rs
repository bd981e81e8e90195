// SPDX-License-Identifier: GPL-2.0
//! Which branches get into a branch stack: each filter by type, two together,
//! privilege levels, and what is refused. The model has every combination.
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

/// Each stack under `filter` holds what the filter wants of the program's last
/// branches, with its kind, and at least once each.
fn holds(program: &Program, filter: u64) -> Outcome {
    needs_branches()?;
    let samples = samples(sampling(filter | TYPE_SAVE), || program.run(rounds()))?;
    // The first stacks begin before the program: of two samples, if the second comes soon.
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
                "{name}: {:#x} is told to be of kind {}, not as in {site:?}",
                branch.from,
                branch.kind()
            );
        }
        short += usize::from(stack.len() < wanted.len());
    }
    // 32 records are two rounds and more, so none can be missing; but the history
    // begins anew where the task was switched away from.
    check!(
        short * 8 <= steady.len(),
        "{name}: {short} of {} stacks have less than a round",
        steady.len()
    );
    Ok(())
}

/// Every choice of filters by type, `any` apart, which wants all.
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

/// Stacks of user space say so under each privilege filter that has it in.
fn user_space_is_wanted() -> Outcome {
    for privilege in [0, USER, USER | KERNEL, USER | HV, USER | KERNEL | HV] {
        holds(&Program::plain(), ANY | privilege)?;
    }
    Ok(())
}

/// No branch of the program is in the samples taken meanwhile; returns their number.
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

/// An event that asks for the kernel's branches, but no others, gets no other.
fn kernel_only() -> Outcome {
    let attr = sampling(ANY | KERNEL);
    let taken = none_of_the_program(attr.clone(), rounds())?;
    check!(taken > 8, "{taken} samples");
    none_of_the_program(attr.exclude_kernel(false), rounds())?;
    Ok(())
}

/// Without a privilege level it is the event's own: user space's branches do not
/// belong into an event that excludes user space.
fn privilege_of_the_event() -> Outcome {
    let attr = sampling(ANY).exclude_kernel(false).exclude_user(true);
    none_of_the_program(attr, 10 * rounds())?;
    Ok(())
}

/// Every choice of filters can be opened on every CPU. HV is ignored, not an error.
fn all_are_taken() -> Outcome {
    for filter in all_choices() {
        for more in [0, USER, USER | KERNEL, HV, ANY, ANY | HV] {
            let errno = errno_of(sampling(filter | more).open());
            check!(errno == 0, "{}: errno {errno}", filter_names(filter | more));
        }
    }
    Ok(())
}

/// What this hardware cannot tell.
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
