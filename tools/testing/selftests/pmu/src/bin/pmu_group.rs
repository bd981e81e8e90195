// SPDX-License-Identifier: GPL-2.0
//! Groups: their members are on the PMU together or not at all, are read together, and are enabled
//! and disabled by their leader.

use ktap::process::give_way;
use perf_event::sys::PERF_COUNT_SW_TASK_CLOCK;
use pmu_selftests::prelude::*;

const WORK: u64 = 2_000_000;

/// Opens a disabled group of raw events. A read of the leader returns all counts.
fn group<const N: usize>(codes: [u64; N]) -> perf_event::Result<Vec<Event>> {
    open_group(codes.map(|code| Attr::raw(code).grouped()))
}

/// Enables `leader` for some work. Returns the instructions done.
fn work_under(leader: &Event) -> perf_event::Result<u64> {
    let mut done = 0;
    leader.enable_during(|| done = work::run(WORK))?;
    Ok(done)
}

/// Largest difference between equal events. One register write starts or stops all members, so they
/// differ by little.
const SKEW: u64 = 8;

fn equal_events_count_alike() -> Outcome {
    let events = group([1, 2, 3, 4].map(|pmc| on_pmc(pmc, INSTRUCTIONS)))?;
    let done = work_under(&events[0])?;
    let group = events[0].read_group()?;
    check!(group.values.len() == 4, "{group:?}");
    let first = group.values[0].0;
    check!(first >= done, "{done} done, {group:?}");
    for &(value, _) in &group.values {
        check!(value.abs_diff(first) <= SKEW, "{group:?}");
    }
    check!(
        group.enabled > 0 && group.enabled == group.running,
        "{group:?}"
    );
    Ok(())
}

fn full_pmu() -> Outcome {
    let events = group([
        on_pmc(1, CYCLES),
        on_pmc(2, INSTRUCTIONS),
        on_pmc(3, CYCLES),
        on_pmc(4, INSTRUCTIONS),
        RUN_INSTRUCTIONS,
        RUN_CYCLES,
    ])?;
    let done = work_under(&events[0])?;
    let group = events[0].read_group()?;
    check!(group.values.len() == 6, "{group:?}");
    check!(group.enabled == group.running, "{group:?}");
    for (index, (value, _)) in group.values.iter().enumerate() {
        let least = if [1, 3, 4].contains(&index) { done } else { 1 };
        check!(*value >= least, "{done} done, {group:?}");
    }
    Ok(())
}

/// Tests cycles and instructions of perf's lists, which since POWER10 name PMC1 for both
/// (`perf stat -M IPC`). The module uses another counter for one of them, so both count all the
/// time. (The built-in driver refuses the second one.)
fn cycles_and_instructions_of_perfs_lists() -> Outcome {
    if machine::model()? != machine::Model::Power10 {
        return ktap::skip("this processor's lists have them on any counter");
    }
    let [cycles, instructions] = [0x1_00f0, 0x1_00fe];
    for codes in [[cycles, instructions], [instructions, cycles]] {
        let events = group(codes)?;
        let done = work_under(&events[0])?;
        let group = events[0].read_group()?;
        check!(group.enabled == group.running, "{group:?}");
        for (value, _) in group.values {
            check!(value >= done, "{done} done, {value} counted");
        }
    }
    Ok(())
}

/// Opens a leader on PMC1, and a member that counts instructions on PMC2.
fn pair() -> perf_event::Result<(Event, Event)> {
    let leader = Attr::raw(on_pmc(1, INSTRUCTIONS)).open()?;
    let member = Attr::raw(on_pmc(2, INSTRUCTIONS)).open_with(&leader)?;
    Ok((leader, member))
}

fn member_alone_stops() -> Outcome {
    let (leader, member) = pair()?;
    leader.enable()?;
    work::run(WORK);
    member.disable()?;
    let stopped = member.read()?.value;
    let done = work::run(WORK);
    let (leads, follows) = (leader.read()?.value, member.read()?.value);
    check!(
        follows == stopped,
        "a disabled member went on: {stopped} to {follows}"
    );
    check!(
        leads >= stopped + done,
        "leader {leads}, member stopped at {stopped}"
    );
    member.enable()?;
    let done = work::run(WORK);
    let resumed = member.read()?.value - stopped;
    expect_within("member enabled again", resumed, done..2 * done)
}

fn members_added_while_counting() -> Outcome {
    let leader = Attr::raw(on_pmc(1, INSTRUCTIONS)).enabled().open()?;
    let early = work::run(WORK);
    let member = Attr::raw(on_pmc(2, INSTRUCTIONS)).open_with(&leader)?;
    let late = work::run(WORK);
    let (leads, follows) = (leader.read()?.value, member.read()?.value);
    check!(leads >= early + late, "leader {leads}");
    expect_within("member", follows, late..late + early / 2)
}

fn closed_member() -> Outcome {
    let mut events = group([on_pmc(1, INSTRUCTIONS), on_pmc(2, INSTRUCTIONS)])?;
    events[0].enable()?;
    work::run(WORK);
    drop(events.pop());
    let leader = &events[0];
    let before = leader.read_group()?.values;
    let done = work::run(WORK);
    let after = leader.read_group()?.values;
    check!(
        before.len() == 1 && after.len() == 1,
        "{before:?}, {after:?}"
    );
    check!(after[0].0 >= before[0].0 + done, "{before:?}, {after:?}");
    // The counter of the closed member is free again.
    let _next = Attr::raw(on_pmc(2, CYCLES)).open_with(leader)?;
    check!(leader.read_group()?.values.len() == 2);
    Ok(())
}

/// Tests that the member after a closed one may require another qualifier than that one, and that
/// the following member must then agree with it.
fn member_after_a_closed_one() -> Outcome {
    if machine::model()? == machine::Model::Power8 {
        return ktap::skip("0 is no qualifier");
    }
    let qualified = |pmc, qualifier: u64| Attr::raw(on_pmc(pmc, CYCLES) | qualifier << 20);
    let leader = Attr::raw(RUN_INSTRUCTIONS).open()?;
    drop(qualified(2, 0).open_with(&leader)?);
    let _next = qualified(2, 1).open_with(&leader)?;
    let refused = errno_of(qualified(3, 0).open_with(&leader));
    check!(
        refused == libc::EINVAL,
        "another qualifier: errno {refused}"
    );
    let _alike = qualified(3, 1).open_with(&leader)?;
    Ok(())
}

/// Tests a member whose leader is closed: it leads its own group from then on, and members of that
/// group must fit beside it.
fn member_that_leads() -> Outcome {
    let (leader, member) = pair()?;
    drop(leader);
    let refused = errno_of(Attr::raw(on_pmc(2, CYCLES)).open_with(&member));
    check!(refused == libc::EINVAL, "its counter: errno {refused}");
    let _other = Attr::raw(on_pmc(1, CYCLES)).open_with(&member)?;
    Ok(())
}

/// Tests that a member must fit beside its leader, which is disabled until the group is complete.
fn member_beside_a_disabled_leader() -> Outcome {
    let leader = Attr::raw(on_pmc(2, INSTRUCTIONS)).open()?;
    let refused = errno_of(Attr::raw(on_pmc(2, CYCLES)).open_with(&leader));
    check!(refused == libc::EINVAL, "its counter: errno {refused}");
    let _other = Attr::raw(on_pmc(1, CYCLES)).open_with(&leader)?;
    Ok(())
}

fn closed_leader() -> Outcome {
    let (leader, member) = pair()?;
    leader.enable()?;
    work::run(WORK);
    drop(leader);
    let before = member.read()?.value;
    let done = work::run(WORK);
    let after = member.read()?.value;
    check!(after >= before + done, "{before}, then {after}");
    Ok(())
}

/// Checks that a software leader continues to count after task switches once `stop` has removed or
/// disabled its only hardware member.
fn leader_goes_on<T>(stop: fn(Event) -> perf_event::Result<T>) -> Outcome {
    let clock = || Attr::software(PERF_COUNT_SW_TASK_CLOCK);
    for attr in [clock(), clock().pinned(true)] {
        let leader = attr.open()?;
        let member = Attr::instructions().open_with(&leader)?;
        leader.enable()?;
        let _member = stop(member)?;
        give_way();
        let before = leader.read()?.value;
        work::run(WORK);
        let after = leader.read()?.value;
        check!(after > before, "{before} ns, then {after} ns");
    }
    Ok(())
}

fn software_leader_of_closed() -> Outcome {
    leader_goes_on(|member| {
        drop(member);
        Ok(())
    })
}

fn software_leader_of_stopped() -> Outcome {
    leader_goes_on(|member| {
        member.disable()?;
        Ok(member)
    })
}

ktap::main! {
    equal_events_count_alike, full_pmu,
    cycles_and_instructions_of_perfs_lists, member_alone_stops,
    members_added_while_counting, closed_member,
    member_after_a_closed_one, member_that_leads, member_beside_a_disabled_leader, closed_leader,
    software_leader_of_closed, software_leader_of_stopped,
}
