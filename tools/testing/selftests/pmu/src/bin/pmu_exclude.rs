// SPDX-License-Identifier: GPL-2.0
//! exclude_user, exclude_kernel, exclude_hv, exclude_idle, exclude_host, exclude_guest.
//!
//! Emulators ignore the freeze bits of MMCR2, so counts show nothing there. Samples show the bits:
//! from POWER9 on, PERF_SAMPLE_REGS_INTR holds MMCR2 as the interrupt found it (`asm/perf_regs.h`).
//! A program with an EBB event can read the bits that concern its own state.

use std::arch::asm;
use std::io;

use pmu_selftests::fields::sample::REGS_INTR;
use pmu_selftests::prelude::*;
use pmu_selftests::regs;

const WORK: u64 = 1_000_000;

// Freeze bits of PMC1 in MMCR2 (Power ISA v3.1, Book III, section 10.4.6). The bits of PMC n are
// lower by 9 (n - 1) positions.
const FREEZE_SUPERVISOR: u64 = 1 << 63;
const FREEZE_PROBLEM: u64 = 1 << 62;
const FREEZE_PROBLEM_HV: u64 = 1 << 61;
const FREEZE_WAIT: u64 = 1 << 58;
const FREEZE_HYPERVISOR: u64 = 1 << 57;
const FREEZE_ALL: u64 =
    FREEZE_SUPERVISOR | FREEZE_PROBLEM | FREEZE_PROBLEM_HV | FREEZE_WAIT | FREEZE_HYPERVISOR;

const USER: u32 = 1;
const KERNEL: u32 = 2;
const HYPERVISOR: u32 = 4;
const IDLE: u32 = 8;

fn excluding(attr: Attr, who: u32) -> Attr {
    attr.exclude_user(who & USER != 0)
        .exclude_kernel(who & KERNEL != 0)
        .exclude_hv(who & HYPERVISOR != 0)
        .exclude_idle(who & IDLE != 0)
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
        // The work takes several ticks. In shorter work, one tick of a debug kernel could be a
        // large part.
        let (count, done) = count_work(&event, 10 * WORK)?;
        expect_within(who, count, done..done + machine::kernel_share(done / 10))?;
    }
    Ok(())
}

/// Tests exclude_host and exclude_guest. All code here runs in the host. An event that excludes the
/// host counts nothing, alone or in a group, and takes no samples. An event that excludes guests
/// counts as usual.
fn host_is_excluded() -> Outcome {
    for period in [0, 10_000] {
        let attr = || Attr::instructions().sample_period(period);
        let group = open_group([
            attr().exclude_guest(true),
            attr().exclude_host(true),
            attr().exclude_host(true).exclude_guest(true),
        ])?;
        let (count, done) = count_work(&group[0], WORK)?;
        // perf core may throttle an event that samples often, which then misses some of the work.
        check!(period > 0 || count >= done, "{done} done, {count} counted");
        for event in &group[1..] {
            let count = event.read()?;
            let on_pmu = count.running > 0 && count.enabled == count.running;
            check!(on_pmu && count.value == 0, "{count:?}");
        }
        let event = attr().exclude_host(true).open()?;
        let (count, _) = count_work(&event, WORK)?;
        check!(count == 0, "{count} counted alone");
    }
    Ok(())
}

/// Adds MMCR2 to the samples of an event.
fn sampling(attr: Attr) -> Attr {
    attr.sampling(20_000, REGS_INTR)
        .sample_regs_intr(1 << regs::MMCR2)
}

/// Returns the freeze bits of `pmc` in a sample of the event, or `None` if there is no sample.
fn sampled_freeze_bits(attr: Attr, pmc: u32) -> io::Result<Option<u64>> {
    let samples = Recorder::open(sampling(attr), 16)?.samples(|| {
        work::run_for(2_000_000);
    })?;
    // A sample taken in a state that the event excludes has no registers.
    let with_registers = samples.iter().find(|s| s.regs_intr.abi != 0);
    let mmcr2 = with_registers.map(|sample| sample.regs_intr.get(regs::MMCR2));
    Ok(mmcr2.map(|mmcr2| mmcr2 << (9 * (pmc - 1)) & FREEZE_ALL))
}

fn freeze_bits_of_mmcr2() -> Outcome {
    machine::needs_pace()?;
    if regs::extended()? == 0 {
        return ktap::skip("this processor has no extended registers");
    }
    // On bare metal the kernel runs in hypervisor state, its programs run with MSR[HV] set, and
    // there is no other hypervisor.
    let (user, kernel, hypervisor) = match machine::is_bare_metal()? {
        true => (FREEZE_PROBLEM | FREEZE_PROBLEM_HV, FREEZE_HYPERVISOR, 0),
        false => (FREEZE_PROBLEM, FREEZE_SUPERVISOR, FREEZE_HYPERVISOR),
    };
    for (pmc, code) in [
        (1, on_pmc(1, INSTRUCTIONS)),
        (3, on_pmc(3, INSTRUCTIONS)),
        (5, RUN_INSTRUCTIONS),
        (6, RUN_CYCLES),
    ] {
        for who in 0..16 {
            let expected = [
                (USER, user),
                (KERNEL, kernel),
                (HYPERVISOR, hypervisor),
                (IDLE, FREEZE_WAIT),
            ];
            let expected = expected.iter().filter(|(bit, _)| who & bit != 0);
            let expected: u64 = expected.map(|(_, freeze)| freeze).sum();
            let event = excluding(Attr::raw(code), who);
            // A machine that respects FCnP takes no sample of the work.
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

/// Returns MMCR2 as a program may read it (SPR 769): only its FCnP bits are visible.
fn mmcr2_of_program() -> u64 {
    let mmcr2;
    // SAFETY: The instruction only reads a register. A running EBB event makes it accessible to the
    // program; otherwise a signal ends the program, and the test fails.
    unsafe { asm!("mfspr {}, 769", out(reg) mmcr2, options(nomem, nostack)) };
    mmcr2
}

/// Tests that a program with an EBB event reads FCnP in MMCR2, and that the bits of a closed event
/// do not remain for the next one. (They do with the kernel's built-in driver.)
fn freeze_bit_that_a_program_sees() -> Outcome {
    for pmc in 1..=4 {
        for who in [0, USER, KERNEL | HYPERVISOR, USER | KERNEL] {
            let attr = Attr::raw(EBB | on_pmc(pmc, INSTRUCTIONS));
            let event = excluding(attr.pinned(true).exclusive(true), who).open()?;
            event.enable()?;
            event.check_scheduled()?;
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

ktap::main! {
    first: machine::keep_sample_rate;
    user_work_counts_without_the_rest,
    host_is_excluded, freeze_bits_of_mmcr2, freeze_bit_that_a_program_sees,
}
