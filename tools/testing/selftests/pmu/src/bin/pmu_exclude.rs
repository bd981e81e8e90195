// SPDX-License-Identifier: GPL-2.0
//! exclude_user, exclude_kernel, exclude_hv, exclude_idle.
//!
//! Emulators ignore the freeze bits of MMCR2, so that counts show nothing there.
//! Samples can: PERF_SAMPLE_REGS_INTR holds MMCR2 as the interrupt found it
//! (`asm/perf_regs.h`), where the driver offers it. So can a program with an EBB
//! event, as far as its own state goes.

use std::arch::asm;
use std::io;

use perf_event::sys::PERF_SAMPLE_REGS_INTR;
use perf_event::sys::perf_event_attr;

use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use pmu_selftests::codes::INSTRUCTIONS;
use pmu_selftests::codes::RUN_CYCLES;
use pmu_selftests::codes::RUN_INSTRUCTIONS;
use pmu_selftests::codes::on_pmc;
use pmu_selftests::errno_of;
use pmu_selftests::machine;
use pmu_selftests::ring::Ring;
use pmu_selftests::work;

const WORK: u64 = 1_000_000;

/// PERF_REG_POWERPC_MMCR2.
const REGS_MMCR2: u32 = 47;

// Freeze bits of PMC1 in MMCR2 (Power ISA v3.1, Book III, section 10.4.6); those
// of PMC n lie 9 (n - 1) bits lower.
const FREEZE_SUPERVISOR: u64 = 1 << 63;
const FREEZE_PROBLEM: u64 = 1 << 62;
const FREEZE_WAIT: u64 = 1 << 58;
const FREEZE_HYPERVISOR: u64 = 1 << 57;
const FREEZE_ALL: u64 = FREEZE_SUPERVISOR | FREEZE_PROBLEM | FREEZE_WAIT | FREEZE_HYPERVISOR;

/// The bit of the event code that asks for Event Based Branches.
const EBB: u64 = 1 << 63;

const USER: u32 = 1;
const KERNEL: u32 = 2;
const HYPERVISOR: u32 = 4;
const IDLE: u32 = 8;

fn excluding(attr: Attr, who: u32) -> Attr {
    attr.with(|raw: &mut perf_event_attr| {
        raw.set_exclude_user((who & USER != 0).into());
        raw.set_exclude_kernel((who & KERNEL != 0).into());
        raw.set_exclude_hv((who & HYPERVISOR != 0).into());
        raw.set_exclude_idle((who & IDLE != 0).into());
    })
}

fn every_combination_opens() -> Outcome {
    for who in 0..16 {
        for attr in [
            Attr::cycles(),
            Attr::instructions(),
            Attr::raw(on_pmc(2, INSTRUCTIONS)),
            Attr::raw(RUN_INSTRUCTIONS),
        ] {
            let event = excluding(attr, who).open()?;
            event.enable()?;
            work::run(WORK);
            event.disable()?;
            let count = event.read()?;
            check!(
                count.running > 0 && count.enabled == count.running,
                "{who:#x}: {count:?}"
            );
        }
    }
    Ok(())
}

fn user_work_counts_without_the_rest() -> Outcome {
    for who in [
        KERNEL,
        HYPERVISOR,
        IDLE,
        KERNEL | HYPERVISOR,
        KERNEL | HYPERVISOR | IDLE,
    ] {
        let event = excluding(Attr::instructions(), who).open()?;
        let mut done = 0;
        // For some ticks: in less, those of a debug kernel may be a large part.
        let count = event.count(|| done = work::run(10 * WORK))?;
        check!(
            count >= done && count < done + machine::kernel_share(done / 10),
            "{who:#x}: {count} of {done}"
        );
    }
    Ok(())
}

fn idle_is_optional_for_a_cpu() -> Outcome {
    machine::pin_to(0)?;
    let event = excluding(Attr::instructions(), IDLE).on_cpu(0).open()?;
    let mut done = 0;
    let count = event.count(|| done = work::run(WORK))?;
    check!(count >= done, "{done} done, {count} counted");
    Ok(())
}

/// Members may exclude other things than their leader.
fn differs_within_a_group() -> Outcome {
    let leader = excluding(Attr::raw(on_pmc(1, INSTRUCTIONS)), KERNEL).open()?;
    let mut members = Vec::new();
    for (who, code) in [
        (0, on_pmc(2, INSTRUCTIONS)),
        (HYPERVISOR | IDLE, on_pmc(3, INSTRUCTIONS)),
        (KERNEL, RUN_INSTRUCTIONS),
    ] {
        members.push(excluding(Attr::raw(code), who).open_with(&leader)?);
    }
    leader.enable()?;
    let done = work::run(WORK);
    leader.disable()?;
    for event in members.iter().chain([&leader]) {
        let count = event.read()?;
        check!(
            count.value >= done && count.enabled == count.running,
            "{count:?}"
        );
    }
    Ok(())
}

/// What is excluded is not counted, where the machine honours it.
fn user_work_is_left_out() -> Outcome {
    let event = excluding(Attr::instructions(), USER).open()?;
    let mut done = 0;
    let count = event.count(|| done = work::run(20 * WORK))?;
    if count >= done {
        return ktap::skip("this machine ignores the freeze bits of MMCR2");
    }
    check!(
        count > 0 && count < done / 4,
        "{done} of user mode, {count} counted"
    );
    Ok(())
}

fn kernel_work_is_left_out() -> Outcome {
    let busy = || {
        for _ in 0..10_000 {
            // SAFETY: a system call without arguments.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
    };
    let with = Attr::instructions().open()?.count(busy)?;
    let without = excluding(Attr::instructions(), KERNEL)
        .open()?
        .count(busy)?;
    if without >= with - with / 20 {
        return ktap::skip("this machine ignores the freeze bits of MMCR2");
    }
    check!(
        without < with / 2,
        "{with} with the kernel, {without} without"
    );
    Ok(())
}

/// The freeze bits of `pmc` as a sample of the event shows them.
fn sampled_freeze_bits(attr: Attr, pmc: u32) -> io::Result<Option<u64>> {
    let attr = attr.sampling(20_000, PERF_SAMPLE_REGS_INTR.into());
    let event = attr.sample_regs_intr(1 << REGS_MMCR2).open()?;
    let mut ring = Ring::map(&event, 16)?;
    event.count(|| {
        work::run_for(2_000_000);
    })?;
    let records = ring.take();
    // Of each sample: which registers' ABI, then the one that was asked for.
    let mmcr2 = records
        .iter()
        .filter(|record| record.is_sample())
        .find_map(|record| record.words.get(1));
    Ok(mmcr2.map(|mmcr2| mmcr2 << (9 * (pmc - 1)) & FREEZE_ALL))
}

fn freeze_bits_of_mmcr2() -> Outcome {
    machine::needs_pace()?;
    let probe = Attr::instructions()
        .sampling(20_000, PERF_SAMPLE_REGS_INTR.into())
        .sample_regs_intr(1 << REGS_MMCR2);
    if errno_of(probe.open()) == libc::EOPNOTSUPP || errno_of(probe.open()) == libc::EINVAL {
        return ktap::skip("the driver does not offer MMCR2 in samples");
    }
    for (pmc, code) in [
        (1, on_pmc(1, INSTRUCTIONS)),
        (3, on_pmc(3, INSTRUCTIONS)),
        (5, RUN_INSTRUCTIONS),
        (6, RUN_CYCLES),
    ] {
        for who in 0..16 {
            let mut expected = 0;
            for (bit, freeze) in [
                (USER, FREEZE_PROBLEM),
                (KERNEL, FREEZE_SUPERVISOR),
                (HYPERVISOR, FREEZE_HYPERVISOR),
                (IDLE, FREEZE_WAIT),
            ] {
                if who & bit != 0 {
                    expected |= freeze;
                }
            }
            let event = excluding(Attr::raw(code), who);
            // A machine that honours FCnP takes no sample of the work.
            let Some(bits) = sampled_freeze_bits(event, pmc)? else {
                check!(who & USER != 0, "{code:#x} excluding {who:#x}: no sample");
                continue;
            };
            check!(
                bits == expected,
                "{code:#x} excluding {who:#x}: {bits:#x} instead of {expected:#x}"
            );
        }
    }
    Ok(())
}

/// MMCR2 as a program may read it (SPR 769): of its bits, FCnP only.
fn mmcr2_of_program() -> u64 {
    let mmcr2;
    // SAFETY: reads a register that a running EBB event opens to the program;
    // else the program gets a signal, and the test has failed.
    unsafe { asm!("mfspr {}, 769", out(reg) mmcr2, options(nomem, nostack)) };
    mmcr2
}

/// A program with an EBB event sees FCnP in MMCR2 itself. The bits of a closed
/// event are gone for the next one (not so with the kernel's built-in driver).
fn freeze_bit_that_a_program_sees() -> Outcome {
    for pmc in 1..=4 {
        for who in [0, USER, KERNEL | HYPERVISOR, USER | KERNEL] {
            let attr = Attr::raw(EBB | on_pmc(pmc, INSTRUCTIONS)).with(|raw| {
                raw.set_pinned(1);
                raw.set_exclusive(1);
            });
            let event = excluding(attr, who).open()?;
            event.enable()?;
            // End of file would tell that it is not on the PMU.
            event.read()?;
            let mmcr2 = mmcr2_of_program();
            let frozen = mmcr2 << (9 * (pmc - 1)) & FREEZE_PROBLEM != 0;
            check!(
                frozen == (who & USER != 0),
                "PMC{pmc} excluding {who:#x}: MMCR2 is {mmcr2:#x}"
            );
        }
    }
    Ok(())
}

fn main() {
    if let Err(error) = machine::keep_sample_rate() {
        eprintln!("perf_cpu_time_max_percent cannot be set: {error}");
    }
    ktap::run(&[
        ("every_combination_opens", every_combination_opens),
        (
            "user_work_counts_without_the_rest",
            user_work_counts_without_the_rest,
        ),
        ("idle_is_optional_for_a_cpu", idle_is_optional_for_a_cpu),
        ("differs_within_a_group", differs_within_a_group),
        ("user_work_is_left_out", user_work_is_left_out),
        ("kernel_work_is_left_out", kernel_work_is_left_out),
        ("freeze_bits_of_mmcr2", freeze_bits_of_mmcr2),
        (
            "freeze_bit_that_a_program_sees",
            freeze_bit_that_a_program_sees,
        ),
    ])
}
