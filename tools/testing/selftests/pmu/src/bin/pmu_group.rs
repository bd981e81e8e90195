// SPDX-License-Identifier: GPL-2.0
//! Groups: their members are on the PMU together or not at all, are read as
//! one, and follow their leader.

use perf_event::sys::PERF_COUNT_SW_TASK_CLOCK;

use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use pmu_selftests::codes::CYCLES;
use pmu_selftests::codes::INSTRUCTIONS;
use pmu_selftests::codes::RUN_CYCLES;
use pmu_selftests::codes::RUN_INSTRUCTIONS;
use pmu_selftests::codes::on_pmc;
use pmu_selftests::work;

const WORK: u64 = 2_000_000;

/// Members start and stop by one write, so equal events differ by little.
const SKEW: u64 = 8;

fn equal_events_count_alike() -> Outcome {
    let leader = Attr::raw(on_pmc(1, INSTRUCTIONS)).grouped().open()?;
    let mut members = Vec::new();
    for pmc in 2..=4 {
        members.push(Attr::raw(on_pmc(pmc, INSTRUCTIONS)).open_with(&leader)?);
    }
    leader.enable()?;
    let done = work::run(WORK);
    leader.disable()?;
    let group = leader.read_group()?;
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

fn read_in_order_with_ids() -> Outcome {
    let leader = Attr::instructions().grouped().open()?;
    let mut events = vec![];
    for attr in [Attr::cycles(), Attr::raw(RUN_INSTRUCTIONS)] {
        events.push(attr.open_with(&leader)?);
    }
    leader.enable()?;
    work::run(WORK);
    leader.disable()?;
    let group = leader.read_group()?;
    let ids: Vec<u64> = group.values.iter().map(|&(_, id)| id).collect();
    check!(
        ids == [leader.id()?, events[0].id()?, events[1].id()?],
        "{ids:?}"
    );
    for (event, &(value, _)) in events.iter().zip(&group.values[1..]) {
        let count = event.read()?;
        check!(
            count.value == value,
            "{count:?} alone, {value} in the group"
        );
        check!(count.enabled == group.enabled, "{count:?}, {group:?}");
        check!(count.running == group.running, "{count:?}, {group:?}");
    }
    Ok(())
}

fn full_pmu() -> Outcome {
    let leader = Attr::raw(on_pmc(1, CYCLES)).grouped().open()?;
    let mut members = Vec::new();
    for code in [
        on_pmc(2, INSTRUCTIONS),
        on_pmc(3, CYCLES),
        on_pmc(4, INSTRUCTIONS),
        RUN_INSTRUCTIONS,
        RUN_CYCLES,
    ] {
        members.push(Attr::raw(code).open_with(&leader)?);
    }
    leader.enable()?;
    let done = work::run(WORK);
    leader.disable()?;
    let group = leader.read_group()?;
    check!(group.values.len() == 6, "{group:?}");
    check!(group.enabled == group.running, "{group:?}");
    for index in [1, 3, 4] {
        check!(group.values[index].0 >= done, "{done} done, {group:?}");
    }
    for index in [0, 2, 5] {
        check!(group.values[index].0 > 0, "{group:?}");
    }
    Ok(())
}

fn member_alone_stops() -> Outcome {
    let leader = Attr::raw(on_pmc(1, INSTRUCTIONS)).open()?;
    let member = Attr::raw(on_pmc(2, INSTRUCTIONS)).open_with(&leader)?;
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
    let resumed = member.read()?.value;
    check!(resumed >= stopped + done, "{stopped}, then {resumed}");
    check!(resumed < stopped + 2 * done, "{stopped}, then {resumed}");
    Ok(())
}

fn nothing_without_leader() -> Outcome {
    let leader = Attr::instructions().open()?;
    let member = Attr::cycles().open_with(&leader)?;
    work::run(WORK);
    let count = member.read()?;
    check!(
        count.value == 0 && count.running == 0,
        "leader disabled: {count:?}"
    );
    Ok(())
}

fn members_added_while_counting() -> Outcome {
    let leader = Attr::raw(on_pmc(1, INSTRUCTIONS)).enabled().open()?;
    let early = work::run(WORK);
    let member = Attr::raw(on_pmc(2, INSTRUCTIONS)).open_with(&leader)?;
    let late = work::run(WORK);
    let (leads, follows) = (leader.read()?.value, member.read()?.value);
    check!(leads >= early + late, "leader {leads}");
    check!(
        follows >= late && follows < late + early / 2,
        "member {follows}"
    );
    Ok(())
}

fn reset_whole_group() -> Outcome {
    let leader = Attr::instructions().grouped().open()?;
    let _member = Attr::cycles().open_with(&leader)?;
    leader.enable()?;
    work::run(WORK);
    leader.disable()?;
    leader.reset_group()?;
    let group = leader.read_group()?;
    check!(
        group.values.iter().all(|&(value, _)| value == 0),
        "{group:?}"
    );
    Ok(())
}

fn closed_member() -> Outcome {
    let leader = Attr::raw(on_pmc(1, INSTRUCTIONS)).grouped().open()?;
    let member = Attr::raw(on_pmc(2, INSTRUCTIONS)).open_with(&leader)?;
    leader.enable()?;
    work::run(WORK);
    drop(member);
    let before = leader.read_group()?.values;
    let done = work::run(WORK);
    let after = leader.read_group()?.values;
    check!(
        before.len() == 1 && after.len() == 1,
        "{before:?}, {after:?}"
    );
    check!(after[0].0 >= before[0].0 + done, "{before:?}, {after:?}");
    // Its counter is free again.
    let _next = Attr::raw(on_pmc(2, CYCLES)).open_with(&leader)?;
    check!(leader.read_group()?.values.len() == 2);
    Ok(())
}

fn closed_leader() -> Outcome {
    let leader = Attr::raw(on_pmc(1, CYCLES)).open()?;
    let member = Attr::raw(on_pmc(2, INSTRUCTIONS)).open_with(&leader)?;
    leader.enable()?;
    work::run(WORK);
    drop(leader);
    let before = member.read()?.value;
    let done = work::run(WORK);
    let after = member.read()?.value;
    check!(after >= before + done, "{before}, then {after}");
    Ok(())
}

fn software_leader() -> Outcome {
    let leader = Attr::software(PERF_COUNT_SW_TASK_CLOCK).grouped().open()?;
    let _member = Attr::instructions().open_with(&leader)?;
    leader.enable()?;
    let done = work::run(WORK);
    leader.disable()?;
    let group = leader.read_group()?;
    check!(
        group.values.len() == 2 && group.values[1].0 >= done,
        "{group:?}"
    );
    check!(group.values[0].0 > 0, "{group:?}");
    Ok(())
}

fn main() {
    ktap::run(&[
        ("equal_events_count_alike", equal_events_count_alike),
        ("read_in_order_with_ids", read_in_order_with_ids),
        ("full_pmu", full_pmu),
        ("member_alone_stops", member_alone_stops),
        ("nothing_without_leader", nothing_without_leader),
        ("members_added_while_counting", members_added_while_counting),
        ("reset_whole_group", reset_whole_group),
        ("closed_member", closed_member),
        ("closed_leader", closed_leader),
        ("software_leader", software_leader),
    ])
}
