// SPDX-License-Identifier: GPL-2.0
//! A group that can never be on the PMU as a whole is refused with EINVAL when
//! the member that makes it so is opened; what was open before goes on.

use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use perf_event::Event;
use pmu_selftests::codes::CYCLES;
use pmu_selftests::codes::INSTRUCTIONS;
use pmu_selftests::codes::RUN_CYCLES;
use pmu_selftests::codes::RUN_INSTRUCTIONS;
use pmu_selftests::codes::on_pmc;
use pmu_selftests::errno_of;
use pmu_selftests::machine;
use pmu_selftests::machine::Model;
use pmu_selftests::of_cpu_0;
use pmu_selftests::work;

const WORK: u64 = 1_000_000;

/// Opens `codes` as one group; the events, and the errno that ended it or 0.
fn open_group(event: fn(u64) -> Attr, codes: &[u64]) -> (Vec<Event>, i32) {
    let mut events: Vec<Event> = Vec::new();
    for &code in codes {
        let attr = event(code);
        let result = match events.first() {
            None => attr.open(),
            Some(leader) => attr.open_with(leader),
        };
        match result {
            Ok(event) => events.push(event),
            Err(error) => return (events, error.errno().unwrap_or(-1)),
        }
    }
    (events, 0)
}

/// The last code is refused, and the group before it still counts.
fn expect_refused(event: fn(u64) -> Attr, codes: &[u64]) -> Outcome {
    let (events, errno) = open_group(event, codes);
    check!(
        errno == libc::EINVAL,
        "{codes:x?}: errno {errno} at event {}",
        events.len()
    );
    check!(
        events.len() == codes.len() - 1,
        "{codes:x?}: refused at {}",
        events.len()
    );
    expect_counting(&events, codes)
}

fn expect_accepted(event: fn(u64) -> Attr, codes: &[u64]) -> Outcome {
    let (events, errno) = open_group(event, codes);
    check!(
        errno == 0,
        "{codes:x?}: errno {errno} at event {}",
        events.len()
    );
    expect_counting(&events, codes)
}

fn expect_counting(events: &[Event], codes: &[u64]) -> Outcome {
    events[0].enable()?;
    work::run(WORK);
    events[0].disable()?;
    for (event, code) in events.iter().zip(codes) {
        let count = event.read()?;
        // What stands for run cycles on PMC1 to PMC4, emulators do not count.
        check!(
            count.value > 0 || *code == RUN_CYCLES,
            "{codes:x?}: {code:#x} gave {count:?}"
        );
        check!(
            count.running > 0 && count.enabled == count.running,
            "{codes:x?}: {code:#x} gave {count:?}"
        );
    }
    Ok(())
}

fn same_counter_twice() -> Outcome {
    for pmc in 1..=4 {
        expect_refused(Attr::raw, &[on_pmc(pmc, CYCLES), on_pmc(pmc, INSTRUCTIONS)])?;
    }
    Ok(())
}

fn different_counters() -> Outcome {
    for pmc in 2..=4 {
        expect_accepted(Attr::raw, &[on_pmc(1, CYCLES), on_pmc(pmc, INSTRUCTIONS)])?;
    }
    expect_accepted(Attr::raw, &[RUN_INSTRUCTIONS, RUN_CYCLES])
}

/// `fits` times the code is accepted, once more is refused.
fn expect_at_most(event: fn(u64) -> Attr, code: u64, fits: usize) -> Outcome {
    expect_accepted(event, &vec![code; fits])?;
    expect_refused(event, &vec![code; fits + 1])
}

/// On a whole CPU, time in the idle loop makes run instructions and run cycles
/// something else; POWER10 counts the plain ones on PMC5 and PMC6 too.
fn too_many_of_a_cpu() -> Outcome {
    machine::pin_to(0)?;
    let fits = match machine::model()? {
        Model::Power8 | Model::Power9 => 4,
        Model::Power10 => 5,
    };
    expect_at_most(of_cpu_0, INSTRUCTIONS, fits)?;
    expect_at_most(of_cpu_0, CYCLES, fits)
}

/// A task does not run the idle loop: four counters and PMC5, or PMC6.
fn too_many_of_a_task() -> Outcome {
    for code in [INSTRUCTIONS, CYCLES, RUN_INSTRUCTIONS, RUN_CYCLES] {
        expect_at_most(Attr::raw, code, 5)?;
    }
    expect_refused(
        Attr::raw,
        &[
            on_pmc(1, CYCLES),
            on_pmc(2, CYCLES),
            on_pmc(3, CYCLES),
            on_pmc(4, CYCLES),
            RUN_INSTRUCTIONS,
            RUN_CYCLES,
            INSTRUCTIONS,
        ],
    )
}

/// An event that may go anywhere makes room for one that may not.
fn free_event_gives_way() -> Outcome {
    let fixed = [
        on_pmc(1, CYCLES),
        on_pmc(2, CYCLES),
        on_pmc(3, CYCLES),
        on_pmc(4, CYCLES),
    ];
    for left in 0..4 {
        let mut codes = vec![INSTRUCTIONS];
        for (index, &code) in fixed.iter().enumerate() {
            if index != left {
                codes.push(code);
            }
        }
        expect_accepted(Attr::raw, &codes)?;
    }
    Ok(())
}

/// Apart from each other they are fine: they take turns.
fn no_conflict_between_groups() -> Outcome {
    let first = Attr::raw(on_pmc(1, CYCLES)).open()?;
    let second = Attr::raw(on_pmc(1, INSTRUCTIONS)).open()?;
    first.enable()?;
    second.enable()?;
    work::run(WORK);
    check!(first.read()?.enabled > 0 && second.read()?.enabled > 0);
    Ok(())
}

fn refusals_leave_nothing() -> Outcome {
    let leader = Attr::raw(on_pmc(1, INSTRUCTIONS)).open()?;
    for _ in 0..2000 {
        let member = Attr::raw(on_pmc(1, CYCLES)).open_with(&leader);
        let errno = errno_of(member);
        check!(errno == libc::EINVAL, "errno {errno}");
    }
    let member = Attr::raw(on_pmc(2, INSTRUCTIONS)).open_with(&leader)?;
    leader.enable()?;
    let done = work::run(WORK);
    check!(leader.read()?.value >= done && member.read()?.value >= done);
    Ok(())
}

fn main() {
    ktap::run(&[
        ("same_counter_twice", same_counter_twice),
        ("different_counters", different_counters),
        ("too_many_of_a_cpu", too_many_of_a_cpu),
        ("too_many_of_a_task", too_many_of_a_task),
        ("free_event_gives_way", free_event_gives_way),
        ("no_conflict_between_groups", no_conflict_between_groups),
        ("refusals_leave_nothing", refusals_leave_nothing),
    ])
}
