// SPDX-License-Identifier: GPL-2.0
//! The state of the interrupted program in a sample (registers, stack and callers), and the
//! registers of the PMU, which are the extended ones.

use ktap::process::NOBODY;
use ktap::process::become_user;
use pmu_selftests::fields::sample::*;
use pmu_selftests::known;
use pmu_selftests::known_samples::*;
use pmu_selftests::of_cpu_0;
use pmu_selftests::prelude::*;
use pmu_selftests::regs;

// Fields of MMCR0 and MMCRA (Power ISA v3.1, Book III, chapter 10; PMCCEXT exists since v3.1; the
// processors' manuals define the SDAR mode and BHRBRD).
const PMC1_CONDITION: u64 = 1 << 15;
const PMCJ_CONDITION: u64 = 1 << 14;
const PMCC_EXTENSION: u64 = 1 << 9;
const COUNT_56_ALWAYS: u64 = 1 << 8;
const FREEZE_56: u64 = 1 << 4;
/// PMCC, which the kernel's built-in driver leaves 0, so that programs have no access.
const NO_ACCESS: u64 = 1 << 18;
/// FC, PMAE, FCECE and PMAO: the fields of MMCR0 that an overflow changes.
const OVERFLOW: u64 = 1 << 31 | 1 << 26 | 1 << 25 | 1 << 7;

/// A branch event on PMC4 of POWER9 and later: bus 0xd, event 0x5e. No emulator counts it.
const BRANCHES: u64 = 0x4_d05e;

/// A marked event, PM_MRK_INST_CMPL. No emulator counts it.
const MARKED: u64 = 0x4_01e0;

/// Returns an event that samples the known loop with the machine's extended registers.
fn extended(fields: u64) -> Result<Attr, Failure> {
    let mask = regs::extended()?;
    if mask == 0 {
        ktap::skip("this processor has no extended registers")?;
    }
    Ok(sampling(fields | REGS_INTR).with(|raw| raw.sample_regs_intr |= mask))
}

fn general_registers() -> Outcome {
    let samples = samples_in_loop(sampling(IP | REGS_USER | REGS_INTR))?;
    let mut last_ctr = u64::MAX;
    for sample in &samples {
        for registers in [&sample.regs_intr, &sample.regs_user] {
            let get = |number| registers.get(number);
            let abi = u64::from(sys::PERF_SAMPLE_REGS_ABI_64);
            check!(registers.abi == abi, "{registers:x?}");
            let nip = get(regs::NIP);
            check!(
                known::code().contains(&nip) && nip == sample.ip,
                "{registers:x?}"
            );
            check!(get(regs::MSR) & regs::PROBLEM_STATE != 0, "{registers:x?}");
            check!(get(regs::TRAP) == regs::PERFMON, "{registers:x?}");
            for (number, value) in known::REGISTERS {
                check!(get(number) == value, "r{number} {:#x}", get(number));
            }
        }
        // CTR holds the remaining rounds.
        let ctr = sample.regs_intr.get(regs::CTR);
        expect_within("CTR", ctr, 1..last_ctr.min(WORK / 256 + 1))?;
        last_ctr = ctr;
    }
    Ok(())
}

/// Tests the callchain, which the kernel walks on the program's stack.
fn callchain() -> Outcome {
    let samples = samples_in_loop(sampling(IP | CALLCHAIN))?;
    let returns = known::callers();
    for sample in &samples {
        let chain = &sample.callchain;
        check!(chain.first() == Some(&sys::PERF_CONTEXT_USER), "{chain:x?}");
        check!(chain.get(1) == Some(&sample.ip), "{chain:x?}");
        let mut calls: Vec<_> = chain.iter().filter(|ip| returns.contains(ip)).collect();
        // The innermost return address is in LR as well as in its frame.
        calls.dedup();
        check!(calls == [&returns[0], &returns[1]], "{chain:x?}");
    }
    Ok(())
}

fn stack_of_user() -> Outcome {
    let samples = samples_in_loop(sampling(IP | STACK_USER | REGS_USER))?;
    for sample in &samples {
        let length = sample.stack_user.len();
        check!(length == STACK_BYTES as usize, "{length} bytes");
        // r1 points to a word that holds the address of the caller's frame.
        let back = u64::from_le_bytes(sample.stack_user[..8].try_into().unwrap_or_default());
        let r1 = sample.regs_user.get(regs::R1);
        check!(
            back == r1 + known::FRAME,
            "r1 {r1:#x}, its caller's {back:#x}"
        );
    }
    Ok(())
}

/// Tests each extended register by itself, and that registers which the processor lacks are
/// refused.
fn extended_registers_offered() -> Outcome {
    let all = regs::GENERAL | regs::extended()?;
    for number in 0..64 {
        let offered = all >> number & 1 != 0;
        let expected = if offered { 0 } else { libc::EINVAL };
        for field in [REGS_INTR, REGS_USER] {
            let attr = sampling(field)
                .sample_regs_intr(1 << number)
                .sample_regs_user(1 << number);
            let errno = errno_of(attr.open());
            check!(
                errno == expected,
                "register {number}, field {field:#x}: errno {errno}"
            );
        }
    }
    Ok(())
}

/// Tests that the control registers are those that the event codes require.
fn control_registers() -> Outcome {
    let attr = extended(IP)?;
    let is_v31 = machine::model()? == Model::Power10;
    let (always, no_branches) = if is_v31 {
        (PMCC_EXTENSION | COUNT_56_ALWAYS, 1 << 37)
    } else {
        (0, 0)
    };
    for (members, mmcr0, mmcr1) in [
        (&[][..], PMC1_CONDITION | FREEZE_56, 0x02 << 24),
        (
            &[on_pmc(2, CYCLES), BRANCHES],
            PMC1_CONDITION | PMCJ_CONDITION | FREEZE_56,
            0x02 << 24 | 0x1e << 16 | 0xd << 48 | 0x5e,
        ),
        (
            &[RUN_INSTRUCTIONS],
            PMC1_CONDITION | PMCJ_CONDITION,
            0x02 << 24,
        ),
    ] {
        let mut recorder = Recorder::open(attr.clone(), PAGES)?;
        let mut open = Vec::new();
        for &code in members {
            open.push(Attr::raw(code).open_with(&recorder.event)?);
        }
        for sample in in_loop(recorder.samples(run)?)? {
            let get = |number| sample.regs_intr.get(number);
            // Cache misses update SDAR (mode 2), and no branches are recorded.
            let mmcra = 2 << 42 | no_branches;
            for (name, value, expected) in [
                (
                    "MMCR0",
                    get(regs::MMCR0) & !(OVERFLOW | NO_ACCESS),
                    mmcr0 | always,
                ),
                ("MMCR1", get(regs::MMCR1), mmcr1),
                ("MMCR2", get(regs::MMCR2), 0),
                ("MMCR3", get(regs::MMCR3), 0),
                ("MMCRA", get(regs::MMCRA), mmcra),
            ] {
                check!(
                    value == expected,
                    "{members:x?}: {name} {value:#x}, not {expected:#x}"
                );
            }
        }
    }
    Ok(())
}

/// Tests the counters in samples of a task's event: counters of other events are 0, whether the
/// event counts the kernel or excludes it, as a program without privileges has to. (The kernel's
/// built-in driver shows all six.)
fn counters_of_others() -> Outcome {
    cpu::pin_to(0)?;
    // All events of this test fit on the PMU at once.
    let foreign = of_cpu_0(on_pmc(3, INSTRUCTIONS)).enabled().open()?;
    sees_its_own_counters(|attr| attr)?;
    become_user(NOBODY)?;
    sees_its_own_counters(|attr| attr.exclude_kernel(true).exclude_hv(true))?;
    let count = foreign.read()?;
    check!(count.value > WORK, "the other counts: {count:?}");
    Ok(())
}

/// Checks that samples of two events of this task have only their two counters. `of` changes the
/// events.
fn sees_its_own_counters(of: fn(Attr) -> Attr) -> Outcome {
    let attr = of(extended(IP)?);
    machine::needs_pace()?;
    let mut recorder = Recorder::open(attr, PAGES)?;
    let _member = of(Attr::raw(RUN_INSTRUCTIONS)).open_with(&recorder.event)?;
    for sample in in_loop(recorder.samples(run)?)? {
        let pmcs: Vec<_> = (regs::PMC1..regs::SDAR)
            .map(|number| sample.regs_intr.get(number))
            .collect();
        check!(pmcs[0] > 0 && pmcs[4] > 0, "own counters: {pmcs:?}");
        check!(
            [1, 2, 3, 5].iter().all(|&other| pmcs[other] == 0),
            "counters of others: {pmcs:?}"
        );
    }
    Ok(())
}

/// Tests samples of a marked event, which are taken at marked instructions. If there is none, a
/// sample that should have its address or data access counts as lost. The overflow is reported
/// nevertheless, with address 0. (The kernel's built-in driver reports nothing, and does not count
/// samples without an address.)
fn samples_without_instruction() -> Outcome {
    for (fields, is_lost) in [
        (IP, true),
        (DATA_SRC, true),
        (IP | DATA_SRC, true),
        (IP | DATA_SRC | REGS_INTR, true),
        (REGS_INTR, false),
        (ADDR | REGS_INTR, false),
    ] {
        let format = sys::PERF_FORMAT_LOST | sys::PERF_FORMAT_ID;
        let attr = sampling(fields).read_format(format.into());
        let mut recorder = Recorder::open(attr, PAGES)?;
        let _marked = Attr::raw(MARKED).open_with(&recorder.event)?;
        let samples = recorder.samples(run)?;
        let [count, _id, lost] = recorder.event.read_words()?[..] else {
            return ktap::fail("read() does not give three words");
        };
        let (taken, due) = (samples.len() as u64, count / PERIOD);
        let expected = (due, if is_lost { due } else { 0 });
        check!(
            (taken, lost) == expected,
            "{fields:#x}: {due} due, {taken} taken, {lost} lost"
        );
        for sample in samples.iter().filter(|_| is_lost) {
            check!(sample.ip == 0, "{fields:#x}: lost at {:#x}", sample.ip);
        }
    }
    Ok(())
}

ktap::main! {
    first: machine::keep_sample_rate;
    general_registers, callchain, stack_of_user,
    extended_registers_offered, control_registers, counters_of_others,
    samples_without_instruction,
}
