// SPDX-License-Identifier: GPL-2.0

//! Random groups of events: compares the solver with a brute force search over all codes and
//! counters (`oracle.rs`), and the register images with a decoder (`decode.rs`). Neither uses
//! anything of the crate except the types of requests and results.
//!
//! `PROPTEST_CASES` sets the number of groups for each CPU; the default is 2,000. The long run is
//! `PROPTEST_CASES=100000 cargo test --release`.

mod branches;
mod decode;
mod generate;
mod oracle;

use std::cell::Cell;

use isa207::{
    CpuModel,
    Demand,
    Isa,
    Platform,
    Refusal,
    Request,
    Solution,
    COUNTERS, //
};
use proptest::{
    prelude::*,
    test_runner::{
        Config,
        TestCaseError,
        TestCaseResult,
        TestRunner, //
    }, //
};

/// POWER8, POWER9, POWER10 and Power11.
fn models() -> [&'static CpuModel; 4] {
    let pvrs = [0x004d_0200, 0x004e_1203, 0x0080_1200, 0x0082_1200];
    pvrs.map(|pvr| CpuModel::from_pvr(pvr).expect("a known PVR"))
}

fn cases() -> u32 {
    match std::env::var("PROPTEST_CASES") {
        Ok(number) => number.parse().expect("PROPTEST_CASES is a number"),
        Err(_) => 2_000,
    }
}

/// Runs `test` with random inputs; prints `name` and the input of one that fails.
fn run<S: Strategy>(name: &str, inputs: &S, test: impl Fn(S::Value) -> TestCaseResult) {
    let config = Config {
        cases: cases(),
        failure_persistence: None,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(inputs, test);
    result.unwrap_or_else(|why| panic!("{name}: {why}"));
}

/// Counts how often something happened, to check that the inputs reach it.
#[derive(Default)]
struct Count(Cell<u32>);

impl Count {
    fn add_if(&self, happened: bool) {
        self.0.set(self.0.get() + u32::from(happened));
    }

    /// Fails unless it happened in at least one of `n` cases. A run with fewer cases could miss it
    /// at random, so it passes.
    fn at_least_one_in(&self, n: u32, what: &str) {
        let (seen, all) = (self.0.get(), cases());
        if all < 1_000 {
            return;
        }
        assert!(seen * n >= all, "{what}: only {seen} of {all} groups");
    }
}

#[test]
fn solver_agrees_with_brute_force() {
    for model in models() {
        let isa = model.isa();
        let [counted, moved, conflicting, invalid] = [(); 4].map(|()| Count::default());
        let inputs = (generate::group(isa), any::<bool>());
        run(model.name(), &inputs, |(group, strict)| {
            let wrong = group.iter().any(|req| !oracle::is_valid(isa, req));
            let expected = if wrong {
                None
            } else {
                oracle::solve(isa, &group, strict)
            };
            let platform = Platform {
                strict_branch_filters: strict,
                ..Platform::default()
            };
            let answer = model.solve(&group, platform);
            counted.add_if(expected.is_some());
            conflicting.add_if(expected.is_none() && !wrong);
            invalid.add_if(wrong);
            match (expected, answer) {
                (None, Err(_)) => Ok(()),
                (Some(expected), Ok(answer)) => {
                    let found: Vec<_> = answer.placements().collect();
                    let found: Vec<_> = found.iter().map(|(p, c)| (p.number(), c.0)).collect();
                    prop_assert_eq!(&found, &expected);
                    moved.add_if(found.iter().zip(&group).any(|(f, req)| f.1 != req.code));
                    Ok(())
                }
                (expected, answer) => Err(TestCaseError::fail(format!(
                    "brute force: {expected:x?}, solver: {answer:x?}"
                ))),
            }
        });
        counted.at_least_one_in(5, "counted");
        moved.at_least_one_in(100, "with an alternative");
        conflicting.at_least_one_in(10, "in conflict");
        invalid.at_least_one_in(20, "invalid");
    }
}

#[test]
fn validation_agrees_with_the_written_rules() {
    for model in models() {
        let isa = model.isa();
        let [good, bad] = [(); 2].map(|()| Count::default());
        run(model.name(), &generate::doubtful_event(isa), |req| {
            let valid = oracle::is_valid(isa, &req);
            good.add_if(valid);
            bad.add_if(!valid);
            let answer = model.validate_event(&req);
            prop_assert_eq!(answer.is_ok(), valid, "{:?}", answer);
            Ok(())
        });
        good.at_least_one_in(5, "valid");
        bad.at_least_one_in(5, "invalid");
    }
}

#[test]
fn images_decode_back_to_the_events() {
    for model in models() {
        let isa = model.isa();
        let counted = Count::default();
        let inputs = (generate::group(isa), any::<bool>());
        run(model.name(), &inputs, |(group, hypervisor_mode)| {
            let platform = Platform {
                hypervisor_mode,
                ..Platform::default()
            };
            let Ok(answer) = model.solve(&group, platform) else {
                return Ok(());
            };
            counted.add_if(true);
            let seen = decode::decode(isa, &answer.mmcr);
            let placements: Vec<_> = answer.placements().collect();
            let wanted = decode::expected(isa, &group, &placements, hypervisor_mode);
            prop_assert_eq!(seen, wanted);
            Ok(())
        });
        counted.at_least_one_in(5, "counted");
    }
}

#[test]
fn asking_for_the_chosen_codes_changes_nothing() {
    for model in models() {
        let moved = Count::default();
        run(model.name(), &generate::group(model.isa()), |group| {
            let Ok(answer) = model.solve(&group, Platform::default()) else {
                return Ok(());
            };
            let mut chosen = group.clone();
            for (req, (_, code)) in chosen.iter_mut().zip(answer.placements()) {
                req.code = code.0;
            }
            moved.add_if(chosen != group);
            prop_assert_eq!(model.solve(&chosen, Platform::default()), Ok(answer));
            Ok(())
        });
        moved.at_least_one_in(100, "with an alternative");
    }
}

#[test]
fn demands_tell_what_the_solver_does() {
    for model in models() {
        let [together, by_others, apart] = [(); 3].map(|()| Count::default());
        let inputs = (generate::group(model.isa()), any::<bool>());
        run(model.name(), &inputs, |(group, strict)| {
            let platform = Platform {
                strict_branch_filters: strict,
                ..Platform::default()
            };
            let answer = model.solve(&group, platform);
            let demands = group.iter().map(|req| model.demand(req, platform));
            let Ok(demands) = demands.collect::<Result<Vec<_>, _>>() else {
                prop_assert!(answer.is_err());
                return Ok(());
            };
            let assignment = model.assign(demands.iter().copied());
            let Err(why) = Demand::check_compatible(demands.iter().copied()) else {
                together.add_if(true);
                prop_assert_eq!(assignment, answer.map(|solution| *solution));
                let codes = answer.iter().flat_map(Solution::placements);
                let codes: Vec<_> = codes.map(|(_, code)| code.0).collect();
                let requested: Vec<_> = group.iter().map(|req| req.code).collect();
                prop_assert_eq!(codes, requested);
                return Ok(());
            };
            prop_assert_eq!(assignment, Err(why));
            if group.len() <= COUNTERS {
                prop_assert_eq!(model.solve_with_alternatives(&group, platform, why), answer);
            }
            by_others.add_if(answer.is_ok());
            apart.add_if(answer.is_err());
            Ok(())
        });
        together.at_least_one_in(5, "together");
        by_others.at_least_one_in(100, "by other codes");
        apart.at_least_one_in(10, "apart");
    }
}

#[test]
fn what_others_leave_stays_on_its_counters() {
    for model in models() {
        let isa = model.isa();
        let counted = Count::default();
        let inputs = (generate::group(isa), any::<u8>(), any::<(bool, bool)>());
        run(model.name(), &inputs, |(mut group, leave, modes)| {
            let (hypervisor_mode, simple) = modes;
            if simple {
                // Fields that most groups have: counter, unit, PMCxCOMB and PMCxSEL, and the same
                // states.
                let combine = if isa == Isa::V207 { 0x800 } else { 0xc00 };
                let exclude = group.first().map(|req| req.exclude);
                for req in &mut group {
                    req.code &= 0xff0ff | combine;
                    req.exclude = exclude.unwrap_or_default();
                    req.branch_filter_ifm = None;
                }
            }
            let platform = Platform {
                hypervisor_mode,
                ..Platform::default()
            };
            let Ok(all) = model.solve(&group, platform) else {
                return Ok(());
            };
            let stays = |index: &usize| leave >> index & 1 == 0;
            let placed = all.demands().zip(all.placements()).enumerate();
            let placed = placed.filter(|(index, _)| stays(index));
            let placed: Vec<_> = placed.map(|(_, placed)| placed).collect();
            let remaining = placed.iter().map(|(demand, (pmc, _))| (*demand, *pmc));
            let remaining = model.assign_remaining(remaining);
            let placements: Vec<_> = placed.iter().map(|(_, placement)| *placement).collect();
            let pmcs: Vec<_> = placements.iter().map(|(pmc, _)| *pmc).collect();
            prop_assert_eq!(&remaining.pmcs.iter().collect::<Vec<_>>(), &pmcs);

            counted.add_if(!pmcs.is_empty() && pmcs.len() < group.len());
            let group: Vec<_> = (0..group.len()).filter(stays).map(|n| group[n]).collect();
            let wanted = decode::expected(isa, &group, &placements, hypervisor_mode);
            prop_assert_eq!(decode::decode(isa, &remaining.mmcr), wanted);
            Ok(())
        });
        counted.at_least_one_in(20, "counted");
    }
}

#[test]
fn order_decides_codes_but_not_whether_a_group_counts() {
    for model in models() {
        run(model.name(), &generate::group(model.isa()), |group| {
            let mut reversed = group.clone();
            reversed.reverse();
            let solve = |reqs: &[Request]| model.solve(reqs, Platform::default()).is_ok();
            prop_assert_eq!(solve(&group), solve(&reversed));
            Ok(())
        });
    }
}

#[test]
fn anything_at_all_gets_an_answer() {
    let word = any::<u64>;
    let anything = prop::collection::vec((word(), word(), word(), any::<u8>()), 0..12);
    for model in models() {
        run(model.name(), &anything, |words| {
            let reqs = words.iter().map(|&(code, config1, config2, ifm)| Request {
                code,
                config1,
                config2,
                branch_filter_ifm: Some(ifm),
                ..Request::default()
            });
            let reqs: Vec<_> = reqs.collect();
            let answer = model.solve(&reqs, Platform::default());
            if reqs.len() > 6 {
                prop_assert_eq!(answer, Err(Refusal::TooManyEvents));
            }
            Ok(())
        });
    }
}
