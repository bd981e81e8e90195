// SPDX-License-Identifier: GPL-2.0
//! What an event that excludes the kernel tells of it: nothing. Neither address,
//! register, caller, branch nor data of the kernel gets into a sample of a program
//! without privileges, whatever else the sample holds, although interrupts come
//! there: late on any machine, and on an emulator that ignores the freeze bits of
//! MMCR2 because the kernel's work is counted.

use std::fs;
use std::io;
use std::time::Duration;
use std::time::Instant;

use perf_event::sys;

use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use pmu_selftests::codes::INSTRUCTIONS;
use pmu_selftests::codes::RUN_INSTRUCTIONS;
use pmu_selftests::codes::on_pmc;
use pmu_selftests::errno_of;
use pmu_selftests::fields::sample::ADDR;
use pmu_selftests::fields::sample::BRANCH_STACK;
use pmu_selftests::fields::sample::CALLCHAIN;
use pmu_selftests::fields::sample::IP;
use pmu_selftests::fields::sample::REGS_INTR;
use pmu_selftests::fields::sample::REGS_USER;
use pmu_selftests::kernel_work;
use pmu_selftests::machine;
use pmu_selftests::process;
use pmu_selftests::regs;
use pmu_selftests::sample::Recorder;
use pmu_selftests::sample::Sample;
use pmu_selftests::work;

fn period() -> u64 {
    machine::period(12_011)
}

fn time() -> Duration {
    machine::sampling_time(Duration::from_millis(10))
}

const PAGES: usize = 32;

/// An event of user mode with the fields given.
fn of_user(code: u64, fields: u64) -> Result<Attr, Failure> {
    let mask = regs::GENERAL | regs::extended()?;
    Ok(Attr::raw(code).sampling(period(), fields).with(|raw| {
        raw.set_exclude_kernel(1);
        raw.set_exclude_hv(1);
        // Without this, a callchain takes privileges.
        raw.set_exclude_callchain_kernel(1);
        if fields & REGS_INTR != 0 {
            raw.sample_regs_intr = mask;
        }
        if fields & REGS_USER != 0 {
            raw.sample_regs_user = mask;
        }
        if fields & BRANCH_STACK != 0 {
            raw.branch_sample_type = sys::PERF_SAMPLE_BRANCH_ANY.into();
        }
    }))
}

fn is_kernel_address(address: u64) -> bool {
    address >> 63 != 0
}

/// The walk of a program's stack takes any number for a caller, such as 1 << 63 from
/// its data, and marks who called by some of the last 4096. The kernel itself is in
/// one sixteenth of the addresses, its mapping of memory and its modules too.
fn is_kernel_caller(entry: u64) -> bool {
    entry >> 60 == 0xc
}

/// What of the kernel is in a sample.
fn leak(sample: &Sample) -> Option<String> {
    let found = |what: &str, value: u64| Some(format!("{what} {value:#x}"));
    if is_kernel_address(sample.ip) {
        return found("IP", sample.ip);
    }
    if is_kernel_address(sample.addr) {
        return found("address", sample.addr);
    }
    if let Some(&entry) = sample
        .callchain
        .iter()
        .find(|entry| is_kernel_caller(**entry))
    {
        return found("callchain", entry);
    }
    let mut ends = sample
        .branches
        .iter()
        .flat_map(|branch| [branch.from, branch.to]);
    if let Some(end) = ends.find(|end| is_kernel_address(*end)) {
        return found("branch", end);
    }
    for (what, registers) in [
        ("user's", &sample.regs_user),
        ("interrupted", &sample.regs_intr),
    ] {
        if registers.abi != 0 && registers.get(regs::MSR) & regs::PROBLEM_STATE == 0 {
            return found(what, registers.get(regs::NIP));
        }
        for number in [regs::NIP, regs::R1, regs::SDAR, regs::SIAR] {
            if is_kernel_address(registers.get(number)) {
                return found(what, registers.get(number));
            }
        }
    }
    None
}

/// The samples that one kind of work gives.
fn samples_of(attr: &Attr, kind: &kernel_work::Kind) -> Result<Vec<Sample>, Failure> {
    let mut recorder = Recorder::open(attr.clone(), PAGES)?;
    let mut done = Ok(());
    let samples = recorder.samples(|| done = kernel_work::run_for(kind, time()))?;
    done?;
    Ok(samples)
}

/// Checks the samples of all kinds of work, and that there are some at all.
fn nothing_leaks(fields: u64) -> Outcome {
    machine::pin_to(0)?;
    process::become_nobody()?;
    let mut taken = 0;
    for code in [on_pmc(1, INSTRUCTIONS), RUN_INSTRUCTIONS] {
        let attr = of_user(code, fields)?;
        if fields & BRANCH_STACK != 0 && errno_of(attr.open()) != 0 {
            return ktap::skip("the driver offers no branch stacks");
        }
        for kind in &kernel_work::KINDS {
            for sample in samples_of(&attr, kind)? {
                taken += 1;
                if let Some(what) = leak(&sample) {
                    return ktap::fail(format!("{code:#x}, {}: {what}", kind.0));
                }
                check!(
                    fields & IP == 0 || sample.mode() == sys::PERF_RECORD_MISC_USER,
                    "{}: {:#x} in mode {}",
                    kind.0,
                    sample.ip,
                    sample.mode()
                );
                check!(fields & IP == 0 || sample.ip != 0, "{}: IP 0", kind.0);
            }
        }
    }
    check!(taken > 100, "{taken} samples");
    Ok(())
}

fn addresses() -> Outcome {
    nothing_leaks(IP)
}

fn everything() -> Outcome {
    nothing_leaks(IP | ADDR | CALLCHAIN | REGS_INTR | REGS_USER)
}

fn registers_alone() -> Outcome {
    nothing_leaks(REGS_INTR)
}

fn registers_of_user_alone() -> Outcome {
    nothing_leaks(REGS_USER)
}

fn callchain_alone() -> Outcome {
    nothing_leaks(CALLCHAIN)
}

fn data_address_alone() -> Outcome {
    nothing_leaks(ADDR)
}

fn branches_alone() -> Outcome {
    nothing_leaks(BRANCH_STACK)
}

fn branches_and_addresses() -> Outcome {
    nothing_leaks(IP | BRANCH_STACK)
}

/// Where such an event sees the kernel's work, what it would sample there is left
/// out, and what belongs to the program is not.
fn own_samples_remain() -> Outcome {
    machine::needs_pace()?;
    machine::pin_to(0)?;
    process::become_nobody()?;
    let attr = of_user(on_pmc(1, INSTRUCTIONS), IP)?;
    let mut recorder = Recorder::open(attr, PAGES)?;
    let period = period();
    let mut done = 0;
    let samples = recorder.samples(|| {
        for turn in 0..100 {
            // Of no fixed length, so that overflows come everywhere.
            done += work::run(2 * period + turn % 29 * 512);
            for _ in 0..turn % 17 {
                // SAFETY: a system call without arguments.
                unsafe { libc::syscall(libc::SYS_getppid) };
            }
        }
    })?;
    let inside = samples
        .iter()
        .filter(|sample| work::code().contains(&sample.ip))
        .count() as u64;
    check!(
        (done * 3 / 4..done * 3 / 2).contains(&(inside * period)),
        "{done} done: {inside} of {} samples there",
        samples.len()
    );
    Ok(())
}

/// Interrupts that give no sample are counted all the same: perf stops an event
/// that has too many of them until the next tick.
fn samples_left_out_are_throttled() -> Outcome {
    machine::needs_pace()?;
    machine::pin_to(0)?;
    let most_per_second: u64 = fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate")?
        .trim()
        .parse()
        .map_err(io::Error::other)?;
    process::become_nobody()?;
    let faults = ("page faults", kernel_work::page_faults as _);
    let (mut all_due, mut all_taken) = (0, 0);
    // Work that repeats is interrupted at the same places again and again, so one
    // period may meet the kernel always, and another never.
    for usually in [701, 853, 997, 1201, 1511, 1759, 1999, 2237] {
        let period = machine::period(usually);
        let attr = of_user(on_pmc(1, INSTRUCTIONS), IP)?.sample_period(period);
        let mut recorder = Recorder::open(attr, PAGES)?;
        let mut done = Ok(());
        let start = Instant::now();
        let records = recorder.records(|| done = kernel_work::run_for(&faults, 3 * time()))?;
        let elapsed = start.elapsed();
        done?;
        let of = |kind| records.iter().filter(move |record| record.kind == kind);
        let taken = of(sys::PERF_RECORD_SAMPLE).count() as u64;
        let throttled = of(sys::PERF_RECORD_THROTTLE).count();
        let due = recorder.event.read()?.value / period;
        println!("{due} due, {taken} taken, throttled {throttled} times");
        let most = most_per_second as f64 * elapsed.as_secs_f64();
        check!(
            due as f64 <= 2.0 * most && throttled >= 5,
            "{due} interrupts in {elapsed:?}, of which {taken} samples, throttled {throttled} times"
        );
        all_due += due;
        all_taken += taken;
    }
    if all_taken * 10 > all_due * 9 {
        return ktap::skip("hardly any interrupt came in the kernel");
    }
    Ok(())
}

fn main() {
    if let Err(error) = machine::keep_sample_rate() {
        eprintln!("perf_cpu_time_max_percent cannot be set: {error}");
    }
    ktap::run(&[
        ("addresses", addresses),
        ("everything", everything),
        ("registers_alone", registers_alone),
        ("registers_of_user_alone", registers_of_user_alone),
        ("callchain_alone", callchain_alone),
        ("data_address_alone", data_address_alone),
        ("branches_alone", branches_alone),
        ("branches_and_addresses", branches_and_addresses),
        ("own_samples_remain", own_samples_remain),
        (
            "samples_left_out_are_throttled",
            samples_left_out_are_throttled,
        ),
    ])
}
