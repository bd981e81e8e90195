// SPDX-License-Identifier: GPL-2.0
//! What a sample can hold: each field of perf_event_open(2), alone and with all
//! others in one record, the layout of the record, and values that the test
//! knows by other means.

use std::collections::BTreeSet;
use std::io;

use perf_event::sys;

use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use pmu_selftests::codes::INSTRUCTIONS;
use pmu_selftests::codes::RUN_INSTRUCTIONS;
use pmu_selftests::codes::on_pmc;
use pmu_selftests::errno_of;
use pmu_selftests::fields::sample::BRANCH_STACK;
use pmu_selftests::fields::sample::CALLCHAIN;
use pmu_selftests::fields::sample::IP;
use pmu_selftests::fields::sample::READ;
use pmu_selftests::fields::sample::REGS_INTR;
use pmu_selftests::fields::sample::REGS_USER;
use pmu_selftests::fields::sample::STACK_USER;
use pmu_selftests::fields::sample::WEIGHT;
use pmu_selftests::fields::sample::WEIGHT_STRUCT;
use pmu_selftests::known;
use pmu_selftests::known_samples::FEWEST;
use pmu_selftests::known_samples::PAGES;
use pmu_selftests::known_samples::PERIOD;
use pmu_selftests::known_samples::in_loop;
use pmu_selftests::known_samples::run;
use pmu_selftests::known_samples::sampling;
use pmu_selftests::machine;
use pmu_selftests::machine::Model;
use pmu_selftests::sample::Recorder;
use pmu_selftests::sample::Sample;
use pmu_selftests::work;

/// Operation, level, snoop, lock and TLB "not available" (PERF_MEM_NA).
const NO_SOURCE: u64 = 1 | 1 << 5 | 1 << 19 | 1 << 24 | 1 << 26 | 0xf << 33;

/// Every field but the branch stack, of which not every processor has one.
const FIELDS: [u32; 21] = [
    sys::PERF_SAMPLE_IDENTIFIER,
    sys::PERF_SAMPLE_IP,
    sys::PERF_SAMPLE_TID,
    sys::PERF_SAMPLE_TIME,
    sys::PERF_SAMPLE_ADDR,
    sys::PERF_SAMPLE_ID,
    sys::PERF_SAMPLE_STREAM_ID,
    sys::PERF_SAMPLE_CPU,
    sys::PERF_SAMPLE_PERIOD,
    sys::PERF_SAMPLE_READ,
    sys::PERF_SAMPLE_CALLCHAIN,
    sys::PERF_SAMPLE_RAW,
    sys::PERF_SAMPLE_REGS_USER,
    sys::PERF_SAMPLE_STACK_USER,
    sys::PERF_SAMPLE_WEIGHT,
    sys::PERF_SAMPLE_DATA_SRC,
    sys::PERF_SAMPLE_TRANSACTION,
    sys::PERF_SAMPLE_REGS_INTR,
    sys::PERF_SAMPLE_PHYS_ADDR,
    sys::PERF_SAMPLE_DATA_PAGE_SIZE,
    sys::PERF_SAMPLE_CODE_PAGE_SIZE,
];

/// The samples of the known loop under an event.
fn samples_of(attr: Attr) -> io::Result<Vec<Sample>> {
    Recorder::open(attr, PAGES)?.samples(run)
}

/// All of them.
fn all_fields() -> u64 {
    FIELDS.iter().fold(0, |all, field| all | u64::from(*field))
}

fn each_field_alone() -> Outcome {
    machine::needs_pace()?;
    for field in FIELDS.map(u64::from).into_iter().chain([WEIGHT_STRUCT]) {
        let samples = match samples_of(sampling(field)) {
            Ok(samples) => samples,
            Err(error) => return ktap::fail(format!("{field:#x}: {error}")),
        };
        let fewest = FEWEST as usize;
        check!(
            samples.len() >= fewest,
            "{field:#x}: {} samples of {fewest}",
            samples.len()
        );
    }
    Ok(())
}

/// Every pair: each field comes where the order of fields puts it.
fn each_field_beside_each() -> Outcome {
    for first in FIELDS.map(u64::from) {
        for second in FIELDS.map(u64::from) {
            let attr = sampling(IP | first | second);
            let mut recorder = Recorder::open(attr, PAGES)?;
            let samples = recorder.samples(|| {
                work::run(4 * PERIOD);
            });
            match samples {
                Ok(samples) => check!(
                    samples.iter().any(|s| work::code().contains(&s.ip)),
                    "{first:#x} and {second:#x}: {} samples",
                    samples.len()
                ),
                Err(error) => {
                    return ktap::fail(format!("{first:#x} and {second:#x}: {error}"));
                }
            }
        }
    }
    Ok(())
}

fn all_fields_in_one_record() -> Outcome {
    machine::needs_pace()?;
    machine::pin_to(0)?;
    let attr = sampling(all_fields()).with(|raw| {
        raw.set_use_clockid(1);
        raw.clockid = libc::CLOCK_MONOTONIC;
    });
    let mut recorder = Recorder::open(attr, PAGES)?;
    let id = recorder.event.id()?;
    let before = now();
    let samples = recorder.samples(run)?;
    let after = now();
    let mut last_time = before;
    for sample in &samples {
        check!(
            sample.identifier == id && sample.id == id && sample.stream_id == id,
            "ids {} {} {}, not {id}",
            sample.identifier,
            sample.id,
            sample.stream_id
        );
        // SAFETY: a question without pointers.
        let (pid, tid) = (std::process::id(), unsafe { libc::gettid() });
        check!(sample.pid == pid && sample.tid == tid as u32, "{sample:x?}");
        check!(
            sample.time > last_time && sample.time < after,
            "time {} after {last_time}, ended at {after}",
            sample.time
        );
        last_time = sample.time;
        check!(sample.cpu == 0, "CPU {}", sample.cpu);
        check!(sample.period == PERIOD, "period {}", sample.period);
        check!(sample.raw == [4], "raw data {:x?}", sample.raw);
        check!(sample.transaction == 0, "{:#x}", sample.transaction);
        check!(sample.branches.is_empty(), "{:x?}", sample.branches);
    }
    // SAFETY: a question without pointers.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    for sample in in_loop(samples)? {
        check!(
            sample.mode() == sys::PERF_RECORD_MISC_USER,
            "mode {}",
            sample.mode()
        );
        check!(
            sample.code_page_size >= page && sample.code_page_size.is_power_of_two(),
            "code in a page of {}",
            sample.code_page_size
        );
    }
    Ok(())
}

fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The loop has no data, and the events here are not marked: whatever SDAR has
/// is what the sample tells, and nothing is known about where it came from.
fn data_of_no_access() -> Outcome {
    let fields = IP
        | u64::from(sys::PERF_SAMPLE_ADDR | sys::PERF_SAMPLE_PHYS_ADDR)
        | u64::from(sys::PERF_SAMPLE_DATA_PAGE_SIZE | sys::PERF_SAMPLE_DATA_SRC);
    for weight in [WEIGHT, WEIGHT_STRUCT] {
        let samples = samples_of(sampling(fields | weight))?;
        for sample in in_loop(samples)? {
            check!(
                (sample.addr == 0) == (sample.phys_addr == 0)
                    && (sample.addr == 0) == (sample.data_page_size == 0),
                "address {:#x}, physical {:#x}, page {:#x}",
                sample.addr,
                sample.phys_addr,
                sample.data_page_size
            );
            check!(
                [0, NO_SOURCE].contains(&sample.data_src),
                "data source {:#x}",
                sample.data_src
            );
            check!(sample.weight == 0, "weight {:#x}", sample.weight);
        }
    }
    Ok(())
}

/// Counts in a sample are those of the moment it was taken.
fn counts_of_the_moment() -> Outcome {
    machine::needs_pace()?;
    for bits in 0..sys::PERF_FORMAT_MAX {
        let attr = sampling(IP | READ).read_format(bits.into());
        let mut recorder = Recorder::open(attr, PAGES)?;
        let member = Attr::raw(RUN_INSTRUCTIONS)
            .read_format(bits.into())
            .open_with(&recorder.event)?;
        let ids = [recorder.event.id()?, member.id()?];
        let samples = recorder.samples(run)?;
        check!(samples.len() > 10, "{bits:#x}: {} samples", samples.len());
        let is_group = bits & sys::PERF_FORMAT_GROUP != 0;
        for (index, sample) in samples.iter().enumerate() {
            let read = &sample.read;
            let events = if is_group { 2 } else { 1 };
            check!(read.values.len() == events, "{bits:#x}: {read:?}");
            for (value, id) in read.values.iter().zip(ids) {
                // The counts of both are alike, a little above whole periods.
                let due = (index as u64 + 1) * PERIOD;
                check!(
                    (due..due + PERIOD / 2).contains(&value.value),
                    "{bits:#x}: sample {index}: {read:?}"
                );
                let has_id = bits & sys::PERF_FORMAT_ID != 0;
                check!(value.id == if has_id { id } else { 0 }, "{read:?}");
                check!(value.lost == 0, "{read:?}");
            }
            let has_enabled = bits & sys::PERF_FORMAT_TOTAL_TIME_ENABLED != 0;
            let has_running = bits & sys::PERF_FORMAT_TOTAL_TIME_RUNNING != 0;
            check!(
                (read.enabled > 0) == has_enabled && (read.running > 0) == has_running,
                "{bits:#x}: {read:?}"
            );
        }
    }
    Ok(())
}

/// Samples of two events in one buffer are told apart by their identifiers.
fn two_events_in_one_buffer() -> Outcome {
    machine::needs_pace()?;
    let fields = u64::from(sys::PERF_SAMPLE_IDENTIFIER | sys::PERF_SAMPLE_PERIOD);
    let mut recorder = Recorder::open(sampling(IP | fields), PAGES)?;
    let other = Attr::raw(on_pmc(2, INSTRUCTIONS))
        .sampling(2 * PERIOD, IP | fields)
        .open_with(&recorder.event)?;
    other.redirect_to(&recorder.event)?;
    let ids = [recorder.event.id()?, other.id()?];
    let samples = recorder.samples(run)?;
    let mut seen = [0_u64; 2];
    for sample in &samples {
        let Some(which) = ids.iter().position(|&id| id == sample.identifier) else {
            return ktap::fail(format!("{}, neither of {ids:?}", sample.identifier));
        };
        check!(
            sample.period == PERIOD * (which as u64 + 1),
            "{which}: {}",
            sample.period
        );
        seen[which] += 1;
    }
    check!(
        seen[1] >= 10 && seen[0].abs_diff(2 * seen[1]) <= 1,
        "{seen:?} samples"
    );
    Ok(())
}

/// The branch stack beside all other fields, where the processor has one.
fn all_fields_and_branches() -> Outcome {
    let with_branches = sampling(all_fields() | BRANCH_STACK);
    if [libc::EOPNOTSUPP, libc::EINVAL].contains(&errno_of(sampling(IP | BRANCH_STACK).open())) {
        return ktap::skip("the driver offers no branch stacks");
    }
    for extra in [
        0,
        sys::PERF_SAMPLE_BRANCH_HW_INDEX,
        sys::PERF_SAMPLE_BRANCH_NO_FLAGS | sys::PERF_SAMPLE_BRANCH_NO_CYCLES,
    ] {
        let attr = with_branches
            .clone()
            .with(|raw| raw.branch_sample_type |= u64::from(extra));
        // In-tree, nothing may be asked for beside the type of branches.
        if extra != 0 && errno_of(attr.open()) == libc::EOPNOTSUPP {
            println!("{extra:#x} is not supported");
            continue;
        }
        let samples = samples_of(attr)?;
        let inside = in_loop(samples)?;
        let to_loop = known::code().start;
        let with_loop = inside
            .iter()
            .filter(|sample| sample.branches.iter().any(|branch| branch.to == to_loop))
            .count();
        let entries: usize = inside.iter().map(|sample| sample.branches.len()).sum();
        println!("{extra:#x}: {entries} branches in {} samples", inside.len());
        if entries == 0 && machine::model()? != Model::Power10 {
            println!("none is recorded by this machine");
            continue;
        }
        check!(
            with_loop * 10 >= inside.len() * 9,
            "{with_loop} of {} samples have the loop's branch",
            inside.len()
        );
        for sample in inside {
            check!(
                sample.regs_intr.abi != 0 && sample.raw == [4],
                "{sample:x?}"
            );
        }
    }
    Ok(())
}

/// What perf core refuses, whatever the driver.
fn impossible_requests() -> Outcome {
    let refused = |what: &str, attr: Attr, errno: i32| {
        let got = errno_of(attr.open());
        check!(got == errno, "{what}: errno {got}, not {errno}");
        Ok(())
    };
    check!(errno_of(sampling(all_fields()).open()) == 0, "all fields");
    for bit in (0..64).filter(|bit| 1 << bit >= u64::from(sys::PERF_SAMPLE_MAX)) {
        refused("field", sampling(IP | 1 << bit), libc::EINVAL)?;
    }
    for bit in (0..64).filter(|bit| 1 << bit >= u64::from(sys::PERF_FORMAT_MAX)) {
        let attr = sampling(IP | READ).with(|raw| raw.read_format |= 1 << bit);
        refused("read format", attr, libc::EINVAL)?;
    }
    refused("weights", sampling(WEIGHT | WEIGHT_STRUCT), libc::EINVAL)?;
    for field in [REGS_USER, REGS_INTR] {
        let none = sampling(field).with(|raw| {
            raw.sample_regs_user = 0;
            raw.sample_regs_intr = 0;
        });
        refused("no registers", none, libc::EINVAL)?;
    }
    for size in [4, 12, 0xffff] {
        let attr = sampling(STACK_USER).sample_stack_user(size);
        refused("size of the stack", attr, libc::EINVAL)?;
    }
    let deep = sampling(CALLCHAIN).sample_max_stack(0xffff);
    refused("length of the callchain", deep, libc::EOVERFLOW)?;
    let reserved = sampling(IP).with(|raw| raw.__reserved_2 = 1);
    refused("reserved word", reserved, libc::EINVAL)
}

/// No POWER promises a bound on the skid of ordinary events, so that no precision
/// can be had. (The kernel's built-in driver does not look.)
fn precision_is_refused() -> Outcome {
    let errnos: BTreeSet<_> = (1..=3)
        .map(|precision| {
            let attr = sampling(IP).with(|raw| raw.set_precise_ip(precision));
            errno_of(attr.open())
        })
        .collect();
    check!(errnos == [libc::EOPNOTSUPP].into(), "errnos {errnos:?}");
    Ok(())
}

fn main() {
    if let Err(error) = machine::keep_sample_rate() {
        eprintln!("perf_cpu_time_max_percent cannot be set: {error}");
    }
    ktap::run(&[
        ("each_field_alone", each_field_alone),
        ("each_field_beside_each", each_field_beside_each),
        ("all_fields_in_one_record", all_fields_in_one_record),
        ("data_of_no_access", data_of_no_access),
        ("counts_of_the_moment", counts_of_the_moment),
        ("two_events_in_one_buffer", two_events_in_one_buffer),
        ("all_fields_and_branches", all_fields_and_branches),
        ("impossible_requests", impossible_requests),
        ("precision_is_refused", precision_is_refused),
    ])
}
