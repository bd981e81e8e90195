// SPDX-License-Identifier: GPL-2.0
//! Samples of an event that excludes the kernel show nothing of the kernel: no address, register,
//! caller, branch or data of it gets into a sample of a program without privileges, whatever fields
//! the sample has. Yet interrupts come in the kernel: late ones on any machine, and others on an
//! emulator that ignores the freeze bits of MMCR2 and so counts the kernel's work.

use std::time::Duration;

use ktap::process::NOBODY;
use ktap::process::become_user;
use pmu_selftests::fields::sample::*;
use pmu_selftests::kernel_work;
use pmu_selftests::prelude::*;
use pmu_selftests::regs;

fn period() -> u64 {
    machine::period(12_011)
}

fn time() -> Duration {
    machine::sampling_time(Duration::from_millis(10))
}

const PAGES: usize = 32;

/// Returns an event of user mode that samples `fields`.
fn of_user(code: u64, fields: u64) -> Result<Attr, Failure> {
    let mask = regs::GENERAL | regs::extended()?;
    let attr = Attr::raw(code).sampling(period(), fields);
    Ok(attr.exclude_kernel(true).exclude_hv(true).with(|raw| {
        // Without this, a callchain requires privileges.
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

/// Returns whether an entry of a callchain is in the kernel.
///
/// The walk of a program's stack takes any number as a caller, such as 1 << 63 from its data, and
/// the top 4096 values mark contexts. The kernel, its mapping of memory and its modules are in one
/// sixteenth of the addresses.
fn is_kernel_caller(entry: u64) -> bool {
    entry >> 60 == 0xc
}

/// Returns what a sample shows of the kernel, if anything.
fn leak(sample: &Sample) -> Option<String> {
    let found = |what: &str, value: u64| Some(format!("{what} {value:#x}"));
    for (what, address) in [("IP", sample.ip), ("address", sample.addr)] {
        if is_kernel_address(address) {
            return found(what, address);
        }
    }
    if let Some(&entry) = sample
        .callchain
        .iter()
        .find(|entry| is_kernel_caller(**entry))
    {
        return found("callchain", entry);
    }
    let branches = sample.branches.iter();
    let mut ends = branches.flat_map(|branch| [branch.from, branch.to]);
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
        // The start of the kernel's memory is no secret. Only other kernel addresses are leaks.
        let is_of_kernel = |value: u64| value >> 52 == 0xc00 && value << 12 != 0;
        let mut numbers = (0..=regs::SIAR).filter(|number| *number != regs::ORIG_R3);
        if let Some(number) = numbers.find(|number| is_of_kernel(registers.get(*number))) {
            return found(&format!("{what} {number}:"), registers.get(number));
        }
    }
    None
}

/// Returns the samples of one kind of work.
fn samples_of(attr: &Attr, kind: &kernel_work::Kind) -> Result<Vec<Sample>, Failure> {
    let mut recorder = Recorder::open(attr.clone(), PAGES)?;
    let mut done = Ok(());
    let samples = recorder.samples(|| done = kernel_work::run_for(kind, time()))?;
    done?;
    Ok(samples)
}

/// Checks the samples of all kinds of work, and that there are enough of them.
fn nothing_leaks(fields: u64) -> Outcome {
    cpu::pin_to(0)?;
    become_user(NOBODY)?;
    let mut taken = 0;
    for code in [on_pmc(1, INSTRUCTIONS), RUN_INSTRUCTIONS] {
        let attr = of_user(code, fields)?;
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

/// Tests that samples taken in the program remain. Where an event that excludes the kernel counts
/// the kernel's work, only the samples taken in the kernel are dropped.
fn own_samples_remain() -> Outcome {
    machine::needs_pace()?;
    cpu::pin_to(0)?;
    become_user(NOBODY)?;
    let attr = of_user(on_pmc(1, INSTRUCTIONS), IP)?;
    let mut recorder = Recorder::open(attr, PAGES)?;
    let period = period();
    let mut done = 0;
    let samples = recorder.samples(|| {
        for turn in 0..100 {
            // The length varies, so that overflows come in all parts of the work.
            done += work::run(2 * period + turn % 29 * 512);
            work::system_calls(turn % 17);
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

ktap::main! {
    first: machine::keep_sample_rate;
    addresses = nothing_leaks(IP),
    everything = nothing_leaks(IP | ADDR | CALLCHAIN | REGS_INTR | REGS_USER),
    registers_alone = nothing_leaks(REGS_INTR),
    registers_of_user_alone = nothing_leaks(REGS_USER),
    callchain_alone = nothing_leaks(CALLCHAIN),
    data_address_alone = nothing_leaks(ADDR),
    branches_alone = nothing_leaks(BRANCH_STACK),
    branches_and_addresses = nothing_leaks(IP | BRANCH_STACK),
    own_samples_remain,
}
