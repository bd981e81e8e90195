// SPDX-License-Identifier: GPL-2.0
//! Which branches get into a branch stack: each filter by type, all that several
//! want together, privilege levels, and what is refused.
//!
//! The built-in driver refuses all but four of the filters.

use std::io;

use perf_event::sys;

use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use pmu_selftests::branch::needs_branches;
use pmu_selftests::branching::FILTERS;
use pmu_selftests::branching::Program;
use pmu_selftests::branching::filter_names;
use pmu_selftests::errno_of;
use pmu_selftests::fields::branch::ANY;
use pmu_selftests::fields::branch::HV;
use pmu_selftests::fields::branch::KERNEL;
use pmu_selftests::fields::branch::TYPE_SAVE;
use pmu_selftests::fields::branch::USER;
use pmu_selftests::machine;
use pmu_selftests::ring::Ring;
use pmu_selftests::sample::Sample;

fn period() -> u64 {
    machine::period(20_011)
}

fn rounds() -> u64 {
    machine::sampled_work(50_000)
}

/// User space only, so that every sample is of a program's own.
fn event(filter: u64) -> Attr {
    Attr::instructions()
        .sampling(period(), sys::PERF_SAMPLE_IP.into())
        .branches(filter)
        .exclude_kernel(true)
}

/// Samples of `program`.
fn sample(attr: &Attr, program: &Program, rounds: u64) -> io::Result<Vec<Sample>> {
    let event = attr.open()?;
    let mut ring = Ring::map(&event, 256)?;
    event.count(|| program.run(rounds))?;
    Sample::all(attr, &ring.take())
}

/// The stacks of the samples that were taken in the program, long after it began.
fn steady<'a>(samples: &'a [Sample], program: &Program) -> Vec<&'a Sample> {
    let inside = samples.iter().filter(|s| program.code().contains(&s.ip));
    inside.skip(1).collect()
}

/// Each stack under `filter` holds what the filter wants of the program's last
/// branches, with its kind, and at least once each.
fn holds(program: &Program, filter: u64) -> Outcome {
    let samples = sample(&event(filter | TYPE_SAVE), program, rounds())?;
    let steady = steady(&samples, program);
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
    needs_branches()?;
    for (_, filter) in FILTERS {
        holds(&Program::plain(), filter)?;
        holds(&Program::mixed(), filter)?;
    }
    Ok(())
}

fn every_combination() -> Outcome {
    needs_branches()?;
    let mut combinations = 0;
    for filter in all_choices().filter(|choice| choice.count_ones() > 1) {
        holds(&Program::plain(), filter)?;
        combinations += 1;
    }
    check!(combinations == 57, "{combinations} combinations");
    Ok(())
}

/// The same for branches that are of several kinds.
fn every_combination_of_mixed() -> Outcome {
    needs_branches()?;
    for filter in all_choices().filter(|choice| choice.count_ones() > 1) {
        holds(&Program::mixed(), filter)?;
    }
    Ok(())
}

/// `any` makes the others superfluous.
fn any_beside_others() -> Outcome {
    needs_branches()?;
    for (_, filter) in FILTERS {
        holds(&Program::plain(), ANY | filter)?;
    }
    Ok(())
}

/// Stacks of user space say so under each privilege filter that has it in.
fn user_space_is_wanted() -> Outcome {
    needs_branches()?;
    let program = Program::plain();
    for privilege in [0, USER, USER | KERNEL, USER | HV, USER | KERNEL | HV] {
        holds(&program, ANY | privilege)?;
    }
    Ok(())
}

/// An event that asks for the kernel's branches, but no others, gets no other.
fn kernel_only() -> Outcome {
    needs_branches()?;
    let program = Program::plain();
    let attr = event(ANY | KERNEL);
    let of_user = sample(&attr, &program, rounds())?;
    check!(of_user.len() > 8, "{} samples", of_user.len());
    let attr = attr.exclude_kernel(false);
    let of_both = sample(&attr, &program, rounds())?;
    for branch in of_user.iter().chain(&of_both).flat_map(|s| &s.branches) {
        check!(
            !program.code().contains(&branch.from),
            "a branch of user space: {branch:x?}"
        );
    }
    Ok(())
}

/// Without a privilege level it is the event's own: user space's branches do not
/// belong into an event that excludes user space.
fn privilege_of_the_event() -> Outcome {
    needs_branches()?;
    let program = Program::plain();
    let attr = event(ANY).with(|raw| {
        raw.set_exclude_kernel(0);
        raw.set_exclude_user(1);
    });
    let samples = sample(&attr, &program, 10 * rounds())?;
    for branch in samples.iter().flat_map(|sample| &sample.branches) {
        check!(
            !program.code().contains(&branch.from),
            "a branch of user space: {branch:x?}"
        );
    }
    Ok(())
}

/// HV is ignored, not an error.
fn hypervisor_is_taken() -> Outcome {
    for (name, filter) in FILTERS {
        let errno = errno_of(event(filter | HV).open());
        check!(errno == 0, "{name},hv: errno {errno}");
    }
    Ok(())
}

/// Every choice of filters can be opened on every CPU.
fn all_are_taken() -> Outcome {
    for filter in all_choices() {
        for more in [0, USER, USER | KERNEL, ANY] {
            let errno = errno_of(event(filter | more).open());
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
            let errno = errno_of(event(beside | u64::from(bit)).open());
            check!(errno == libc::EOPNOTSUPP, "{name}: errno {errno}");
        }
    }
    Ok(())
}

fn main() {
    if let Err(error) = machine::keep_sample_rate() {
        eprintln!("perf_cpu_time_max_percent cannot be set: {error}");
    }
    ktap::run(&[
        ("each_alone", each_alone),
        ("every_combination", every_combination),
        ("every_combination_of_mixed", every_combination_of_mixed),
        ("any_beside_others", any_beside_others),
        ("user_space_is_wanted", user_space_is_wanted),
        ("kernel_only", kernel_only),
        ("privilege_of_the_event", privilege_of_the_event),
        ("hypervisor_is_taken", hypervisor_is_taken),
        ("all_are_taken", all_are_taken),
        ("refused", refused),
    ])
}
