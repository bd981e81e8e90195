// SPDX-License-Identifier: GPL-2.0
//! Sampling the kernel at work with its interrupts masked: a PM interrupt that
//! comes there is taken at once or kept pending, but no sample is lost, none comes
//! twice, none too early or late, and each says what was interrupted.

use std::io;
use std::time::Duration;

use perf_event::sys;

use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use perf_event::Event;
use pmu_selftests::TASK_AND_CPU;
use pmu_selftests::codes::CYCLES;
use pmu_selftests::codes::INSTRUCTIONS;
use pmu_selftests::codes::RUN_INSTRUCTIONS;
use pmu_selftests::codes::on_pmc;
use pmu_selftests::kernel_work;
use pmu_selftests::kernel_work::Kind;
use pmu_selftests::machine;
use pmu_selftests::of_cpu_0;
use pmu_selftests::regs;
use pmu_selftests::ring::Record;
use pmu_selftests::ring::Ring;
use pmu_selftests::sample::Sample;

/// Above what perf allows in a tick: 400 (100 kHz at 250 ticks/s).
fn period() -> u64 {
    machine::period(15_013)
}

fn time() -> Duration {
    machine::sampling_time(Duration::from_millis(20))
}

const PAGES: usize = 32;

/// Instructions by which an interrupt may be late. No counter counts from the
/// overflow on, so it is the way from the last instruction of a run of code.
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

/// A sampling event with its buffer.
struct Sampler {
    attr: Attr,
    event: Event,
    ring: Ring,
}

impl Sampler {
    fn open(attr: Attr) -> io::Result<Sampler> {
        let event = attr.open()?;
        let ring = Ring::map(&event, PAGES)?;
        Ok(Sampler { attr, event, ring })
    }

    fn period(&self) -> u64 {
        self.attr.as_raw().sample_period
    }

    /// What was sampled, once it is found to be right.
    fn samples(&mut self) -> Result<Vec<Sample>, ktap::Failure> {
        let records = self.ring.take();
        let what = format!("{:#x} each {}", self.attr.as_raw().config, self.period());
        let lost = records
            .iter()
            .filter(|record| record.kind == sys::PERF_RECORD_LOST);
        check!(lost.count() == 0, "{what}: the buffer was too small");
        let samples = Sample::all(&self.attr, &records)?;
        let mut last_time = 0;
        for (index, sample) in samples.iter().enumerate() {
            check!(
                sample.time > last_time,
                "{what}: sample {index} at {} after {last_time}",
                sample.time
            );
            last_time = sample.time;
            // Sample n stands for the end of period n.
            let due = (index as u64 + 1) * self.period();
            let count = sample.read.values[0].value;
            check!(
                (due..due + LATE).contains(&count),
                "{what}: sample {index} at a count of {count}, due at {due}"
            );
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
        let count = self.event.read()?.value;
        // The last one may be due since a moment ago, and come when it goes on.
        let (taken, due) = (samples.len() as u64, count / self.period());
        check!(
            taken == due || taken + 1 == due && count % self.period() < LATE,
            "{what}: {count} counted, {taken} samples"
        );
        Ok(samples)
    }
}

fn is_kernel_address(address: u64) -> bool {
    address >> 60 == 0xc
}

/// Samples taken in the kernel, and of these, with interrupts masked.
fn in_kernel(samples: &[Sample]) -> (usize, usize) {
    let kernel = samples
        .iter()
        .filter(|sample| sample.mode() == sys::PERF_RECORD_MISC_KERNEL);
    let masked = kernel
        .clone()
        .filter(|sample| sample.regs_intr.get(regs::SOFTE) & 1 != 0);
    (kernel.count(), masked.count())
}

/// All tasks of a CPU, the idle one included.
fn every_kind_of_work() -> Outcome {
    machine::needs_pace()?;
    machine::pin_to(0)?;
    let mut all_masked = 0;
    for kind in &kernel_work::KINDS {
        let mut sampler = Sampler::open(sampling(of_cpu_0(on_pmc(1, INSTRUCTIONS)), period()))?;
        let mut done = Ok(());
        sampler
            .event
            .count(|| done = kernel_work::run_for(kind, time()))?;
        done?;
        let samples = sampler.samples()?;
        let (kernel, masked) = in_kernel(&samples);
        // What sampling_compare.sh reads.
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

/// A task's event, which comes and goes with the task.
fn of_a_task() -> Outcome {
    machine::needs_pace()?;
    machine::pin_to(0)?;
    for kind in &kernel_work::KINDS {
        let mut sampler = Sampler::open(sampling(Attr::raw(INSTRUCTIONS), period()))?;
        let mut done = Ok(());
        sampler
            .event
            .count(|| done = kernel_work::run_for(kind, time()))?;
        done?;
        let samples = sampler.samples()?;
        check!(samples.len() > 20, "{}: {}", kind.0, samples.len());
    }
    Ok(())
}

/// So often that perf stops the event for the rest of the tick.
fn while_throttled() -> Outcome {
    machine::needs_pace()?;
    machine::pin_to(0)?;
    for kind in &kernel_work::KINDS {
        let mut sampler = Sampler::open(sampling(
            of_cpu_0(on_pmc(3, INSTRUCTIONS)),
            machine::period(2003),
        ))?;
        let mut done = Ok(());
        sampler
            .event
            .count(|| done = kernel_work::run_for(kind, time() / 2))?;
        done?;
        let samples = sampler.samples()?;
        check!(samples.len() > 100, "{}: {}", kind.0, samples.len());
    }
    Ok(())
}

/// Up to six counters negative at once, three of them always together.
fn several_at_once() -> Outcome {
    machine::needs_pace()?;
    machine::pin_to(0)?;
    for kind in &kernel_work::KINDS {
        let mut samplers = Vec::new();
        for (code, period) in [
            (on_pmc(1, INSTRUCTIONS), 4 * period()),
            (on_pmc(2, INSTRUCTIONS), 4 * period()),
            (on_pmc(3, CYCLES), 5 * period()),
            (on_pmc(4, INSTRUCTIONS), 12 * period()),
            (RUN_INSTRUCTIONS, 7 * period()),
        ] {
            samplers.push(Sampler::open(sampling(of_cpu_0(code), period))?);
        }
        for sampler in &samplers {
            sampler.event.enable()?;
        }
        kernel_work::run_for(kind, time())?;
        for sampler in &samplers {
            sampler.event.disable()?;
        }
        for sampler in &mut samplers {
            let samples = sampler.samples()?;
            check!(!samples.is_empty(), "{}: no sample", kind.0);
        }
    }
    Ok(())
}

/// Enabled and disabled all the time, by the task itself and with an interrupt
/// due at any moment of that.
fn enabled_and_disabled() -> Outcome {
    machine::needs_pace()?;
    machine::pin_to(0)?;
    for raw in TASK_AND_CPU {
        for period in [period(), 20 * period() + 7] {
            let mut sampler = Sampler::open(sampling(raw(on_pmc(2, INSTRUCTIONS)), period))?;
            // Another event, so that enabling does not always start the PMU.
            let other = raw(on_pmc(4, INSTRUCTIONS)).enabled().open()?;
            for turn in 0..400 {
                sampler.event.enable()?;
                for _ in 0..turn % 13 {
                    // SAFETY: a system call without arguments.
                    unsafe { libc::syscall(libc::SYS_getppid) };
                }
                sampler.event.disable()?;
            }
            let samples = sampler.samples()?;
            check!(samples.len() > 2, "{} samples", samples.len());
            drop(other);
        }
    }
    Ok(())
}

/// Beside the event of a task, so that each switch reprograms the PMU, with
/// interrupts hard off: one that is due then must not be forgotten.
fn beside_an_event_of_a_task() -> Outcome {
    machine::needs_pace()?;
    machine::pin_to(0)?;
    for kind in &kernel_work::KINDS {
        let mut of_cpu = Sampler::open(sampling(of_cpu_0(on_pmc(1, INSTRUCTIONS)), period()))?;
        let mut of_task =
            Sampler::open(sampling(Attr::raw(on_pmc(2, INSTRUCTIONS)), 2 * period()))?;
        of_cpu.event.enable()?;
        of_task.event.enable()?;
        kernel_work::run_for(kind, time())?;
        of_task.event.disable()?;
        of_cpu.event.disable()?;
        let samples = [of_cpu.samples()?.len(), of_task.samples()?.len()];
        check!(samples[1] > 10, "{}: {samples:?} samples", kind.0);
    }
    Ok(())
}

/// A group that leaves the PMU and comes back at each tick, as it shares it with
/// another one.
fn multiplexed() -> Outcome {
    machine::needs_pace()?;
    machine::pin_to(0)?;
    let mut first = Sampler::open(sampling(of_cpu_0(on_pmc(1, INSTRUCTIONS)), period()))?;
    let mut second = Sampler::open(sampling(of_cpu_0(on_pmc(1, CYCLES)), period()))?;
    first.event.enable()?;
    second.event.enable()?;
    let storm: &Kind = &("timers", kernel_work::timers);
    kernel_work::run_for(storm, 3 * time())?;
    first.event.disable()?;
    second.event.disable()?;
    for sampler in [&mut first, &mut second] {
        let count = sampler.event.read()?;
        check!(count.running < count.enabled, "{count:?}");
        let samples = sampler.samples()?;
        check!(samples.len() > 50, "{} samples of {count:?}", samples.len());
    }
    Ok(())
}

/// With a buffer that is too small, perf tells how many records it lost, and the
/// event how many of them were samples.
fn lost_in_the_buffer() -> Outcome {
    machine::needs_pace()?;
    machine::pin_to(0)?;
    let attr = sampling(Attr::raw(on_pmc(1, INSTRUCTIONS)), period())
        .read_format(sys::PERF_FORMAT_LOST.into());
    let event = attr.on_cpu(0).open()?;
    let mut ring = Ring::map(&event, 1)?;
    let storm: &Kind = &("system calls", kernel_work::system_calls);
    event.enable()?;
    kernel_work::run_for(storm, 3 * time())?;
    // Room for what was lost to be told, and for all samples that follow.
    let mut records = ring.take();
    kernel_work::run_for(storm, time() / 4)?;
    event.disable()?;
    records.extend(ring.take());
    let [count, lost] = event.read_words()?[..] else {
        return ktap::fail("read() does not give two words");
    };
    let told: u64 = records
        .iter()
        .filter(|record| record.kind == sys::PERF_RECORD_LOST)
        .map(|record| record.words[1])
        .sum();
    let taken = records.iter().filter(|record| record.is_sample()).count() as u64;
    check!(
        taken > 100 && lost > 100 && lost == told && taken + lost == count / period(),
        "{} due, {taken} taken, {lost} lost, {told} told",
        count / period()
    );
    check!(!records.iter().any(is_throttle), "throttled");
    Ok(())
}

fn is_throttle(record: &Record) -> bool {
    record.kind == sys::PERF_RECORD_THROTTLE
}

fn main() {
    if let Err(error) = machine::keep_sample_rate() {
        eprintln!("perf_cpu_time_max_percent cannot be set: {error}");
    }
    ktap::run(&[
        ("every_kind_of_work", every_kind_of_work),
        ("of_a_task", of_a_task),
        ("while_throttled", while_throttled),
        ("several_at_once", several_at_once),
        ("enabled_and_disabled", enabled_and_disabled),
        ("beside_an_event_of_a_task", beside_an_event_of_a_task),
        ("multiplexed", multiplexed),
        ("lost_in_the_buffer", lost_in_the_buffer),
    ])
}
