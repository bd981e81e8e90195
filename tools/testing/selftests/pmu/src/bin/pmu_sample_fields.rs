// SPDX-License-Identifier: GPL-2.0
//! Fields of a sample: all fields of perf_event_open(2) in one record, their layout, and values
//! that the test determines in other ways.

use std::io;

use pmu_selftests::fields::sample::*;
use pmu_selftests::known_samples::*;
use pmu_selftests::prelude::*;

/// Operation, level, snoop, lock and TLB "not available" (PERF_MEM_NA).
const NO_SOURCE: u64 = 1 | 1 << 5 | 1 << 19 | 1 << 24 | 1 << 26 | 0xf << 33;

/// All fields, without the branch stack, which some processors lack, the AUX data of tracers, and
/// the cgroup.
const ALL: u64 = (2 * sys::PERF_SAMPLE_CODE_PAGE_SIZE - 1) as u64
    & !(BRANCH_STACK | (sys::PERF_SAMPLE_AUX | sys::PERF_SAMPLE_CGROUP) as u64);

/// Returns the samples of the known loop under an event.
fn samples_of(attr: Attr) -> io::Result<Vec<Sample>> {
    Recorder::open(attr, PAGES)?.samples(run)
}

fn all_fields_in_one_record() -> Outcome {
    machine::needs_pace()?;
    cpu::pin_to(0)?;
    let attr = sampling(ALL).with(|raw| {
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
            "not {id}: {sample:x?}"
        );
        // SAFETY: The call takes no arguments.
        let (pid, tid) = (std::process::id(), unsafe { libc::gettid() });
        check!(sample.pid == pid && sample.tid == tid as u32, "{sample:x?}");
        expect_within("time", sample.time, last_time + 1..after)?;
        last_time = sample.time;
        check!(sample.cpu == 0 && sample.period == PERIOD, "{sample:x?}");
        check!(sample.raw == [4] && sample.transaction == 0, "{sample:x?}");
        check!(sample.branches.is_empty(), "{sample:x?}");
    }
    // SAFETY: The call takes a number and no pointer.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    for sample in in_loop(samples)? {
        let (mode, size) = (sample.mode(), sample.code_page_size);
        check!(mode == sys::PERF_RECORD_MISC_USER, "mode {mode}");
        check!(
            size >= page && size.is_power_of_two(),
            "code in a page of {size}"
        );
    }
    Ok(())
}

/// Returns the time of CLOCK_MONOTONIC in ns.
fn now() -> u64 {
    // SAFETY: A timespec is two numbers, for which 0 is valid.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: `time` outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Tests the data fields of samples without a data access. The loop has no data, and the events are
/// not marked. So the sample has the address that SDAR happens to hold, and nothing about the
/// access.
fn data_of_no_access() -> Outcome {
    let fields = IP
        | u64::from(sys::PERF_SAMPLE_ADDR | sys::PERF_SAMPLE_PHYS_ADDR)
        | u64::from(sys::PERF_SAMPLE_DATA_PAGE_SIZE | sys::PERF_SAMPLE_DATA_SRC);
    for weight in [WEIGHT, WEIGHT_STRUCT] {
        let samples = samples_of(sampling(fields | weight))?;
        for sample in in_loop(samples)? {
            let has_address = sample.addr != 0;
            check!(
                (sample.phys_addr != 0, sample.data_page_size != 0) == (has_address, has_address),
                "{sample:x?}"
            );
            check!([0, NO_SOURCE].contains(&sample.data_src), "{sample:x?}");
            check!(sample.weight == 0, "{sample:x?}");
        }
    }
    Ok(())
}

/// Tests that the counts in a sample are those of the moment of the sample.
fn counts_of_the_moment() -> Outcome {
    machine::needs_pace()?;
    let attr = sampling(IP | READ).grouped();
    let mut recorder = Recorder::open(attr, PAGES)?;
    let _member = Attr::raw(RUN_INSTRUCTIONS)
        .grouped()
        .open_with(&recorder.event)?;
    let samples = recorder.samples(run)?;
    check!(samples.len() > 10, "{} samples", samples.len());
    for (index, sample) in samples.iter().enumerate() {
        let read = &sample.read;
        check!(
            read.values.len() == 2 && read.running > 0 && read.enabled >= read.running,
            "{read:?}"
        );
        for value in &read.values {
            // Both events count the same, a little more than whole periods.
            let due = (index as u64 + 1) * PERIOD;
            expect_within(
                format!("sample {index}"),
                value.value,
                due..due + PERIOD / 2,
            )?;
        }
    }
    Ok(())
}

ktap::main! {
    first: machine::keep_sample_rate;
    all_fields_in_one_record, data_of_no_access, counts_of_the_moment,
}
