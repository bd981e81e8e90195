// SPDX-License-Identifier: GPL-2.0
//! Groups of events and their text form: codes in hexadecimal, with `!` for an event that does not
//! follow a task.

use isa207::CpuModel;
use isa207::EventCode;
use isa207::Exclude;
use isa207::Isa;
use isa207::Request;

/// Returns an event with this code whose other attributes cost the solver the most: it follows a
/// task, which gives the most alternatives, excludes all states, requests a branch stack, and
/// compares with a large number where the threshold is a number.
pub fn event(model: &CpuModel, code: u64) -> Request {
    let compares = model.isa() == Isa::V31 && EventCode(code).thresh_sel() != 0;
    Request {
        code,
        config1: if compares { 0x3_fbff } else { 0 },
        config2: 0,
        exclude: Exclude {
            user: true,
            kernel: true,
            hv: true,
            idle: true,
        },
        only_count_run: true,
        branch_filter_ifm: Some(0),
    }
}

/// Parses a group in the text form.
pub fn parse(model: &CpuModel, group: &str) -> Vec<Request> {
    let request = |word: &str| {
        let digits = word.trim_start_matches("0x").trim_end_matches('!');
        let code = u64::from_str_radix(digits, 16).expect("an event code");
        Request {
            only_count_run: !word.ends_with('!'),
            ..event(model, code)
        }
    };
    group.split(' ').map(request).collect()
}

/// Formats the group in the text form.
pub fn show(group: &[Request]) -> String {
    let codes = group.iter().map(|req| {
        let other = if req.only_count_run { "" } else { "!" };
        format!("{:#x}{other}", req.code)
    });
    codes.collect::<Vec<_>>().join(" ")
}
