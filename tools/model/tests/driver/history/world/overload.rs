// SPDX-License-Identifier: GPL-2.0

//! PM interrupts that overload the kernel: each sample takes 35 ms, and 4 ms pass between two
//! steps. The oracle checks that each sample comes in time and has the right period.

use super::{
    directed::{CYCLES, run_on},
    *,
};

/// Returns a partition whose kernel PM interrupts overload.
fn slow(processor: Processor) -> Kind {
    Kind {
        is_slow: true,
        ..Kind::partition(processor)
    }
}

/// An event of programs with a period of 8 cycles.
const SHORT: Wish = wish!(CYCLES, addr: false, registers: false);

/// Returns the periods of an event's samples.
fn periods(event: &Event) -> Vec<u64> {
    let samples = event.samples.borrow();
    samples.iter().map(|sample| sample.period).collect()
}

/// Runs the program on CPU 0 for `count` times 8 cycles.
fn run_periods(count: usize) -> impl Iterator<Item = Op> {
    std::iter::repeat_n(Op::Run(0, 8, 1, 1), count)
}

/// Lets 4 ms pass `count` times without samples.
fn idle(count: usize) -> impl Iterator<Item = Op> {
    std::iter::repeat_n(Op::Kernel(1, 1, false), count)
}

#[test]
fn an_event_that_overflows_all_the_time_is_throttled() {
    // The excess is 104 ms after the first sample, and after the second one 200 ms, its maximum. So
    // the second sample is one too many. Because the third one follows soon, the next period is 8
    // times as long.
    let mut history = vec![Op::Switch(0, 0), Op::Open(0, SHORT)];
    history.extend(run_periods(60));
    run_on(slow, &history, |world, _| {
        let event = &world.open[0];
        assert_eq!(periods(event), [8, 8, 8, 64]);
        assert_eq!(event.lost_samples(), 7);
    });
    // If a sample takes 1 us, no period is made longer.
    run_on(Kind::partition, &history, |world, _| {
        assert_eq!(periods(&world.open[0]), [8; 60]);
    });
}

#[test]
fn a_switch_does_not_end_throttling() {
    let mut history = vec![Op::Switch(0, 0), Op::Open(0, SHORT)];
    // perf core throttles the event at each sample, and restarts it when its task is switched in.
    history.push(Op::Throttle(0));
    for _ in 0..11 {
        history.extend([Op::Switch(0, 1), Op::Switch(0, 0)]);
        history.extend(run_periods(1));
    }
    run_on(slow, &history, |world, _| {
        assert_eq!(periods(&world.open[0]), [8; 4]);
    });
}

#[test]
fn a_new_period_ends_throttling_for_one_sample() {
    let mut history = vec![Op::Switch(0, 0), Op::Open(0, SHORT)];
    history.extend(run_periods(6));
    history.push(Op::Period(0, 1));
    history.extend(run_periods(8));
    run_on(slow, &history, |world, _| {
        let event = &world.open[0];
        assert_eq!(periods(event), [8, 8, 8, 9]);
        assert_eq!(event.lost_samples(), 0);
    });
}

#[test]
fn an_event_goes_on_as_before_when_the_storm_is_over() {
    // The result does not depend on the length of the storm. The stretched period has 64 events.
    for storm in [4, 14] {
        let mut history = vec![Op::Switch(0, 0)];
        for _ in 0..storm {
            history.push(Op::Open(0, SHORT));
        }
        history.extend(run_periods(4));
        history.extend((1..storm).map(|_| Op::Close(1)));
        for periods in [7, 1, 1] {
            history.extend(idle(60));
            history.extend(run_periods(periods));
        }
        run_on(slow, &history, |world, _| {
            let found = periods(&world.open[0]);
            let after = found.iter().skip_while(|period| **period == 8);
            assert!(after.eq(&[64, 8, 8]), "{found:?}");
        });
    }
}

#[test]
fn an_event_that_starts_after_the_storm_is_not_throttled() {
    let restarts = [
        [Op::Disable(0), Op::Enable(0)],
        [Op::Switch(0, 1), Op::Switch(0, 0)],
    ];
    for restart in restarts {
        // The counter has counted 24 of 64 cycles.
        let mut storm = vec![Op::Switch(0, 0), Op::Open(0, SHORT)];
        storm.extend(run_periods(6));
        let mut after = storm.clone();
        after.extend(idle(60));
        after.extend(restart);
        after.extend(run_periods(2));
        run_on(slow, &after, |world, _| {
            let event = &world.open[0];
            assert_eq!(periods(event), [8, 8, 8, 32, 8]);
            assert_eq!(event.lost_samples(), 3);
        });
        // In a storm the period is not restored.
        storm.extend(restart);
        storm.extend(run_periods(4));
        run_on(slow, &storm, |world, _| {
            assert_eq!(periods(&world.open[0]), [8; 3]);
        });
    }
}

#[test]
fn an_event_that_was_throttled_is_unthrottled() {
    let mut history = vec![Op::Switch(0, 0), Op::Open(0, SHORT), Op::Throttle(0)];
    for _ in 0..4 {
        history.push(Op::Tick(0));
        history.extend(run_periods(1));
    }
    history.extend(idle(60));
    history.push(Op::Tick(0));
    history.extend(run_periods(1));
    run_on(slow, &history, |world, _| {
        let event = &world.open[0];
        assert_eq!(periods(event), [8; 5]);
        assert_eq!(event.lost_samples(), 0);
    });
}

#[test]
fn a_long_period_is_throttled_too_if_it_ends_all_the_time() {
    let long = wish!(SHORT, period: 200_000);
    let mut history = vec![Op::Switch(0, 0), Op::Open(0, long)];
    history.extend([Op::Run(0, 250, 200, 1); 37]);
    run_on(slow, &history, |world, _| {
        let found = periods(&world.open[0]);
        assert_eq!(found[3..], [200_000, 1 << 20]);
    });
}

#[test]
fn an_event_with_a_frequency_is_throttled_by_no_more_than_perf_core_allows() {
    let mut history = vec![Op::Switch(0, 0), Op::Open(0, SHORT), Op::Adjust(0, 0)];
    history.extend(run_periods(27));
    run_on(slow, &history, |world, _| {
        let event = &world.open[0];
        assert_eq!(periods(event), [8, 8, 8, 64, 64, 64]);
        assert_eq!(event.lost_samples(), 0);
    });
}

#[test]
fn an_event_that_overflows_rarely_is_left_alone() {
    // The events have counters of their own. PM interrupts take all of the time, those of the
    // second event 1/500 of it.
    let rare = wish!(SHORT, code: 1, period: 4000);
    let mut history = vec![Op::Switch(0, 0), Op::Open(0, SHORT), Op::Open(0, rare)];
    for _ in 0..1600 {
        history.extend([Op::Period(0, 0), Op::Run(0, 8, 1, 1)]);
    }
    run_on(slow, &history, |world, _| {
        // Each of its periods is stretched and then restored.
        assert_eq!(periods(&world.open[0]), [8; 1600]);
        assert_eq!(periods(&world.open[1]), [4000; 3]);
    });
}

#[test]
fn samples_of_a_child_are_lost_to_the_event_that_was_opened() {
    let inherited = wish!(SHORT, inherit: true);
    let child = TASKS as u8;
    let of_child = wish!(SHORT, disabled: true);
    // The child is not a clone of its parent, so it does not get its parent's context.
    let mut history = vec![
        Op::Switch(0, 0),
        Op::Open(0, inherited),
        Op::Fork(0),
        Op::Open(child, of_child),
        Op::Switch(0, child),
    ];
    history.extend(run_periods(60));
    run_on(slow, &history, |world, _| {
        assert_eq!(world.open[0].lost_samples(), 7);
    });
}
