// SPDX-License-Identifier: GPL-2.0
//! Samples of a kernel that works with interrupts masked. A PM interrupt that comes then is taken
//! at once or stays pending. But no sample is lost or repeated, too early or too late, and each one
//! shows the interrupted code.

use std::io;
use std::time::Duration;

use pmu_selftests::kernel_work;
use pmu_selftests::kernel_work::Kind;
use pmu_selftests::of_cpu_0;
use pmu_selftests::prelude::*;
use pmu_selftests::regs;

/// Returns a period long enough for perf's limit of 400 samples in a tick (100 kHz at 250 ticks/s).
fn period() -> u64 {
    machine::period(15_013)
}

fn time() -> Duration {
    machine::sampling_time(Duration::from_millis(20))
}

const PAGES: usize = 32;

/// Number of instructions by which an interrupt may be late: those between the overflow and the end
/// of a straight run of code, where the interrupt is taken.
const LATE: u64 = 4000;

const FIELDS: u64 = (sys::PERF_SAMPLE_IP
    | sys::PERF_SAMPLE_TID
    | sys::PERF_SAMPLE_TIME
    | sys::PERF_SAMPLE_CPU
    | sys::PERF_SAMPLE_READ
    | sys::PERF_SAMPLE_REGS_INTR) as u64;

fn sampling(attr: Attr, period: u64) -> Attr {
    attr.sampling(period, FIELDS).with(|raw| {
        raw.sample_regs_intr = 1 << regs::NIP | 1 << regs::MSR | 1 << regs::SOFTE | 1 << regs::TRAP;
    })
}

/// Opens a sampling event of this period with its buffer.
fn open(attr: Attr, period: u64) -> io::Result<Recorder> {
    Recorder::open(sampling(attr, period), PAGES)
}

/// Checks the samples taken so far, and returns them.
fn samples(recorder: &mut Recorder) -> Result<Vec<Sample>, Failure> {
    let period = recorder.attr.as_raw().sample_period;
    let what = format!("{:#x} each {period}", recorder.attr.as_raw().config);
    let records = recorder.ring.take();
    let lost = records
        .iter()
        .filter(|record| record.kind == sys::PERF_RECORD_LOST);
    check!(lost.count() == 0, "{what}: the buffer was too small");
    let samples = Sample::all(&recorder.attr, &records)?;
    let mut last_time = 0;
    for (index, sample) in samples.iter().enumerate() {
        check!(
            sample.time > last_time,
            "{what}: sample {index} at {} after {last_time}",
            sample.time
        );
        last_time = sample.time;
        // Sample n marks the end of period n.
        let due = (index as u64 + 1) * period;
        let count = sample.read.values[0].value;
        expect_within(
            format!("{what}: count of sample {index}"),
            count,
            due..due + LATE,
        )?;
        let is_kernel = is_kernel_address(sample.ip);
        let mode = if is_kernel {
            sys::PERF_RECORD_MISC_KERNEL
        } else {
            sys::PERF_RECORD_MISC_USER
        };
        check!(
            sample.mode() == mode,
            "{what}: {:#x} in mode {}",
            sample.ip,
            sample.mode()
        );
        let msr = sample.regs_intr.get(regs::MSR);
        check!(
            (msr & regs::PROBLEM_STATE == 0) == is_kernel
                && is_kernel_address(sample.regs_intr.get(regs::NIP)) == is_kernel
                && sample.regs_intr.get(regs::TRAP) == regs::PERFMON,
            "{what}: {:x?}",
            sample.regs_intr
        );
    }
    let count = recorder.event.read()?.value;
    // The last sample may have become due just now. It then comes when the event runs again.
    let (taken, due) = (samples.len() as u64, count / period);
    check!(
        taken == due || taken + 1 == due && count % period < LATE,
        "{what}: {count} counted, {taken} samples"
    );
    Ok(samples)
}

/// Returns the samples of one kind of work, with the event enabled during it.
fn samples_of(
    attr: Attr,
    period: u64,
    kind: &Kind,
    time: Duration,
) -> Result<Vec<Sample>, Failure> {
    let mut recorder = open(attr, period)?;
    let mut done = Ok(());
    recorder
        .event
        .enable_during(|| done = kernel_work::run_for(kind, time))?;
    done?;
    samples(&mut recorder)
}

/// Checks that each kind of work gives more than `fewest` samples.
fn each_kind(attr: Attr, period: u64, time: Duration, fewest: usize) -> Outcome {
    for kind in &kernel_work::KINDS {
        let samples = samples_of(attr.clone(), period, kind, time)?;
        check!(samples.len() > fewest, "{}: {}", kind.0, samples.len());
    }
    Ok(())
}

fn is_kernel_address(address: u64) -> bool {
    address >> 60 == 0xc
}

/// Returns the number of samples taken in the kernel, and how many of these with interrupts masked.
fn in_kernel(samples: &[Sample]) -> (usize, usize) {
    let kernel = samples
        .iter()
        .filter(|sample| sample.mode() == sys::PERF_RECORD_MISC_KERNEL);
    let masked = kernel
        .clone()
        .filter(|sample| sample.regs_intr.get(regs::SOFTE) & 1 != 0);
    (kernel.count(), masked.count())
}

/// Tests all tasks of a CPU, including the idle task.
fn every_kind_of_work() -> Outcome {
    let mut all_masked = 0;
    for kind in &kernel_work::KINDS {
        let samples = samples_of(of_cpu_0(on_pmc(1, INSTRUCTIONS)), period(), kind, time())?;
        let (kernel, masked) = in_kernel(&samples);
        println!("{}: {} samples, {masked} masked", kind.0, samples.len());
        check!(
            kernel > 40,
            "{}: {kernel} of {} samples in the kernel",
            kind.0,
            samples.len()
        );
        all_masked += masked;
    }
    check!(all_masked > 100, "{all_masked} with interrupts masked");
    Ok(())
}

/// Does one kind of work with all the events enabled.
fn all_at_once(recorders: &[Recorder], kind: &Kind, time: Duration) -> Outcome {
    for recorder in recorders {
        recorder.event.enable()?;
    }
    kernel_work::run_for(kind, time)?;
    for recorder in recorders.iter().rev() {
        recorder.event.disable()?;
    }
    Ok(())
}

/// Tests several counters that are negative at once. Three of them always overflow together.
fn several_at_once() -> Outcome {
    for kind in &kernel_work::KINDS {
        let mut recorders = Vec::new();
        for (code, period) in [
            (on_pmc(1, INSTRUCTIONS), 4 * period()),
            (on_pmc(2, INSTRUCTIONS), 4 * period()),
            (on_pmc(3, CYCLES), 5 * period()),
            (on_pmc(4, INSTRUCTIONS), 12 * period()),
            (RUN_INSTRUCTIONS, 7 * period()),
        ] {
            recorders.push(open(of_cpu_0(code), period)?);
        }
        all_at_once(&recorders, kind, time())?;
        for recorder in &mut recorders {
            check!(!samples(recorder)?.is_empty(), "{}: no sample", kind.0);
        }
    }
    Ok(())
}

fn prepare() -> Outcome {
    machine::keep_sample_rate()?;
    machine::needs_pace()?;
    Ok(cpu::pin_to(0)?)
}

ktap::main! {
    first: prepare;
    every_kind_of_work,
    // A task's event is on the PMU only while the task runs.
    of_a_task = each_kind(Attr::raw(INSTRUCTIONS), period(), time(), 20),
    // Samples come so often that perf stops the event until the next tick.
    while_throttled = each_kind(
        of_cpu_0(on_pmc(3, INSTRUCTIONS)),
        machine::period(2003),
        time() / 2,
        100,
    ),
    several_at_once,
}
