// SPDX-License-Identifier: GPL-2.0
//! A group that can never be on the PMU as a whole is refused with EINVAL when
//! the member that makes it so is opened; what was open before goes on.

use pmu_selftests::of_cpu_0;
use pmu_selftests::open_until_refused;
use pmu_selftests::prelude::*;

const WORK: u64 = 1_000_000;

/// The group opens up to the last code, which is refused; what is open counts.
fn expect_refused(raw: fn(u64) -> Attr, codes: &[u64]) -> Outcome {
    let (events, end) = open_until_refused(codes.iter().copied().map(raw));
    let errno = errno_of(end);
    check!(
        errno == libc::EINVAL && events.len() == codes.len() - 1,
        "{codes:x?}: errno {errno} after {} events",
        events.len()
    );
    expect_counting(&events, codes)
}

fn expect_accepted(raw: fn(u64) -> Attr, codes: &[u64]) -> Outcome {
    let events = open_group(codes.iter().copied().map(raw))?;
    expect_counting(&events, codes)
}

fn expect_counting(events: &[Event], codes: &[u64]) -> Outcome {
    events[0].enable()?;
    work::run(WORK);
    events[0].disable()?;
    for (event, code) in events.iter().zip(codes) {
        let count = event.read()?;
        let on_pmu = count.running > 0 && count.enabled == count.running;
        // What stands for run cycles on PMC1 to PMC4, emulators do not count.
        let counted = count.value > 0 || *code == RUN_CYCLES;
        check!(on_pmu && counted, "{codes:x?}: {code:#x} gave {count:?}");
    }
    Ok(())
}

fn same_counter_twice() -> Outcome {
    for pmc in 1..=4 {
        expect_refused(Attr::raw, &[on_pmc(pmc, CYCLES), on_pmc(pmc, INSTRUCTIONS)])?;
    }
    Ok(())
}

/// `fits` times the code is accepted, once more is refused.
fn expect_at_most(raw: fn(u64) -> Attr, code: u64, fits: usize) -> Outcome {
    expect_accepted(raw, &vec![code; fits])?;
    expect_refused(raw, &vec![code; fits + 1])
}

/// On a whole CPU, time in the idle loop makes run instructions and run cycles
/// something else; POWER10 counts the plain ones on PMC5 and PMC6 too.
fn too_many_of_a_cpu() -> Outcome {
    cpu::pin_to(0)?;
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
    expect_refused(Attr::raw, &[&ALL_COUNTERS[..], &[INSTRUCTIONS]].concat())
}

/// An event that may go anywhere makes room for one that may not.
fn free_event_gives_way() -> Outcome {
    for free in 1..=4 {
        let mut codes = vec![INSTRUCTIONS];
        let fixed = (1..=4).filter(|pmc| *pmc != free);
        codes.extend(fixed.map(|pmc| on_pmc(pmc, CYCLES)));
        expect_accepted(Attr::raw, &codes)?;
    }
    Ok(())
}

fn refusals_leave_nothing() -> Outcome {
    let leader = Attr::raw(on_pmc(1, INSTRUCTIONS)).open()?;
    for _ in 0..2000 {
        let errno = errno_of(Attr::raw(on_pmc(1, CYCLES)).open_with(&leader));
        check!(errno == libc::EINVAL, "errno {errno}");
    }
    let member = Attr::raw(on_pmc(2, INSTRUCTIONS)).open_with(&leader)?;
    leader.enable()?;
    let done = work::run(WORK);
    check!(leader.read()?.value >= done && member.read()?.value >= done);
    Ok(())
}

ktap::main! {
    same_counter_twice, too_many_of_a_cpu, too_many_of_a_task,
    free_event_gives_way, refusals_leave_nothing,
}
