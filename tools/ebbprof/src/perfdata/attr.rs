// SPDX-License-Identifier: MIT OR Apache-2.0
//! The event, in the form of `struct perf_event_attr`.

use std::fs;

use super::put;
use super::put_half;
use crate::branches::Filter;

/// The size `PERF_ATTR_SIZE_VER6`.
const ATTR_SIZE: u32 = 120;
/// Size of an attribute and the section header of its ids.
pub const ENTRY_SIZE: u64 = ATTR_SIZE as u64 + 16;

const PERF_TYPE_HARDWARE: u32 = 0;
const PERF_TYPE_RAW: u32 = 4;
/// The flags for address, thread, time and period.
const SAMPLE_TYPE: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 8;
/// The flag for the call chain.
const SAMPLE_CALLCHAIN: u64 = 1 << 5;
/// The flags for the branches before a sample, of user mode.
const SAMPLE_BRANCH_STACK: u64 = 1 << 11;
const BRANCH_USER: u64 = 1;
/// The flags inherit, `exclude_kernel`, `exclude_hv`, mmap, comm, task, `sample_id_all`, mmap2,
/// `comm_exec`, `use_clockid`, `build_id`.
const FLAGS: u64 = 1 << 1
    | 1 << 5
    | 1 << 6
    | 1 << 8
    | 1 << 9
    | 1 << 13
    | 1 << 18
    | 1 << 23
    | 1 << 24
    | 1 << 25
    | 1 << 34;
const CLOCK_MONOTONIC: u32 = 1;

/// The sampled event.
pub struct Event {
    /// Name of the event in perf.
    pub name: String,
    pub period: u64,
    /// Whether samples have their callers.
    pub callers: bool,
    /// The branches that samples have.
    pub branches: Option<Filter>,
    kind: u32,
    config: u64,
}

impl Event {
    /// Returns the event with the name `name`.
    pub fn new(name: &str, period: u64, callers: bool, branches: Option<Filter>) -> Self {
        let (kind, config) = match name {
            "cycles" => (PERF_TYPE_HARDWARE, 0),
            "instructions" => (PERF_TYPE_HARDWARE, 1),
            _ => (PERF_TYPE_RAW, code(name)),
        };
        Self {
            name: format!("{name}:u"),
            period,
            callers,
            branches,
            kind,
            config,
        }
    }

    /// Returns the event's `struct perf_event_attr`.
    pub(super) fn attr(&self) -> Vec<u8> {
        let mut attr = Vec::new();
        put_half(&mut attr, self.kind);
        put_half(&mut attr, ATTR_SIZE);
        let callers = if self.callers { SAMPLE_CALLCHAIN } else { 0 };
        // The fields from `config` on; the fourth is `read_format`.
        let branches = self.branches.map_or(0, |_| SAMPLE_BRANCH_STACK);
        let what = SAMPLE_TYPE | callers | branches;
        for word in [self.config, self.period, what, 0, FLAGS] {
            put(&mut attr, word);
        }
        attr.resize(72, 0);
        let recorded = self
            .branches
            .map_or(0, |filter| filter.as_perf() | BRANCH_USER);
        put(&mut attr, recorded);
        attr.resize(92, 0);
        put_half(&mut attr, CLOCK_MONOTONIC);
        attr.resize(ATTR_SIZE as usize, 0);
        attr
    }
}

/// Returns the code of an event that is named by its code, by `event=CODE` or in sysfs; else 0.
fn code(name: &str) -> u64 {
    let path = format!("/sys/bus/event_source/devices/cpu/events/{name}");
    let terms = fs::read_to_string(path).unwrap_or_else(|_| name.to_string());
    let terms = terms.trim();
    let terms = terms.strip_prefix("event=").unwrap_or(terms);
    let digits = terms.strip_prefix("0x").or_else(|| terms.strip_prefix('r'));
    match digits {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap_or(0),
        None => terms.parse().unwrap_or(0),
    }
}
