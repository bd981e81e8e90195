// SPDX-License-Identifier: GPL-2.0
//! The interrupted program in a sample: its registers, its stack and callers,
//! and the registers of the PMU itself, the extended ones.

use perf_event::sys;

use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use pmu_selftests::codes::CYCLES;
use pmu_selftests::codes::INSTRUCTIONS;
use pmu_selftests::codes::RUN_INSTRUCTIONS;
use pmu_selftests::codes::on_pmc;
use pmu_selftests::errno_of;
use pmu_selftests::fields::sample::ADDR;
use pmu_selftests::fields::sample::CALLCHAIN;
use pmu_selftests::fields::sample::DATA_SRC;
use pmu_selftests::fields::sample::IP;
use pmu_selftests::fields::sample::READ;
use pmu_selftests::fields::sample::REGS_INTR;
use pmu_selftests::fields::sample::REGS_USER;
use pmu_selftests::fields::sample::STACK_USER;
use pmu_selftests::known;
use pmu_selftests::known_samples::PAGES;
use pmu_selftests::known_samples::PERIOD;
use pmu_selftests::known_samples::STACK_BYTES;
use pmu_selftests::known_samples::WORK;
use pmu_selftests::known_samples::in_loop;
use pmu_selftests::known_samples::run;
use pmu_selftests::known_samples::samples_in_loop;
use pmu_selftests::known_samples::sampling;
use pmu_selftests::machine;
use pmu_selftests::machine::Model;
use pmu_selftests::process;
use pmu_selftests::regs;
use pmu_selftests::sample::Recorder;

// Fields of MMCR0 and MMCRA (Power ISA v3.1, Book III, chapter 10; PMCCEXT since
// v3.1, SDAR mode and BHRBRD in the processors' manuals).
const PMC1_CONDITION: u64 = 1 << 15;
const PMCJ_CONDITION: u64 = 1 << 14;
const PMCC_EXTENSION: u64 = 1 << 9;
const COUNT_56_ALWAYS: u64 = 1 << 8;
const FREEZE_56: u64 = 1 << 4;
/// FC, PMAE, FCECE and PMAO: what an overflow changes in MMCR0.
const OVERFLOW: u64 = 1 << 31 | 1 << 26 | 1 << 25 | 1 << 7;

/// A branch event on PMC4 of POWER9 and later, which no emulator counts: the bus
/// 0xd, event 0x5e.
const BRANCHES: u64 = 0x4_d05e;

/// A marked event, PM_MRK_INST_CMPL, which no emulator counts.
const MARKED: u64 = 0x4_01e0;

/// Sampling of the known loop with the extended registers of the machine.
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
            check!(
                registers.abi == sys::PERF_SAMPLE_REGS_ABI_64.into(),
                "ABI {}",
                registers.abi
            );
            check!(
                known::code().contains(&get(regs::NIP)) && get(regs::NIP) == sample.ip,
                "NIP {:#x}, IP {:#x}",
                get(regs::NIP),
                sample.ip
            );
            check!(
                get(regs::MSR) & regs::PROBLEM_STATE != 0,
                "MSR {:#x}",
                get(regs::MSR)
            );
            check!(
                get(regs::TRAP) == regs::PERFMON,
                "trap {:#x}",
                get(regs::TRAP)
            );
            for (number, value) in known::REGISTERS {
                check!(get(number) == value, "r{number} {:#x}", get(number));
            }
        }
        // Rounds to go.
        let ctr = sample.regs_intr.get(regs::CTR);
        check!(
            ctr > 0 && ctr <= WORK / 256 && ctr < last_ctr,
            "CTR {ctr} after {last_ctr}"
        );
        last_ctr = ctr;
    }
    Ok(())
}

/// The chain of calls is walked from the stack of the program.
fn callchain() -> Outcome {
    let samples = samples_in_loop(sampling(IP | CALLCHAIN))?;
    let returns = known::callers();
    for sample in &samples {
        let chain = &sample.callchain;
        check!(chain.first() == Some(&sys::PERF_CONTEXT_USER), "{chain:x?}");
        check!(chain.get(1) == Some(&sample.ip), "{chain:x?}");
        let mut calls: Vec<_> = chain.iter().filter(|ip| returns.contains(ip)).collect();
        // The innermost is in LR as well as in its frame.
        calls.dedup();
        check!(calls == [&returns[0], &returns[1]], "{chain:x?}");
    }
    Ok(())
}

fn callchain_as_long_as_asked() -> Outcome {
    for longest in [1, 2, 3] {
        let attr = sampling(IP | CALLCHAIN).sample_max_stack(longest);
        let samples = samples_in_loop(attr)?;
        for sample in &samples {
            // One entry is the mark that user addresses follow.
            check!(
                sample.callchain.len() == usize::from(longest) + 1,
                "{longest}: {:x?}",
                sample.callchain
            );
        }
    }
    Ok(())
}

fn stack_of_user() -> Outcome {
    let samples = samples_in_loop(sampling(IP | STACK_USER | REGS_USER))?;
    for sample in &samples {
        check!(
            sample.stack_user.len() == STACK_BYTES as usize,
            "{} bytes",
            sample.stack_user.len()
        );
        // The word that r1 points at is the caller's frame.
        let back = u64::from_le_bytes(sample.stack_user[..8].try_into().unwrap_or_default());
        let r1 = sample.regs_user.get(regs::R1);
        check!(
            back == r1 + known::FRAME,
            "r1 {r1:#x}, its caller's {back:#x}"
        );
    }
    Ok(())
}

/// Each extended register by itself, and those that the processor lacks.
fn extended_registers_offered() -> Outcome {
    let all = regs::GENERAL | regs::extended()?;
    for number in 0..64 {
        let expected = if all >> number & 1 != 0 {
            0
        } else {
            libc::EINVAL
        };
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

/// The control registers are those that the event codes ask for.
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
            check!(
                get(regs::MMCR0) & !OVERFLOW == mmcr0 | always,
                "{members:x?}: MMCR0 {:#x}",
                get(regs::MMCR0)
            );
            check!(
                get(regs::MMCR1) == mmcr1,
                "{members:x?}: MMCR1 {:#x}",
                get(regs::MMCR1)
            );
            check!(get(regs::MMCR2) == 0, "MMCR2 {:#x}", get(regs::MMCR2));
            check!(get(regs::MMCR3) == 0, "MMCR3 {:#x}", get(regs::MMCR3));
            // SDAR is updated by cache misses (mode 2); no branches are recorded.
            check!(
                get(regs::MMCRA) == 2 << 42 | no_branches,
                "MMCRA {:#x}",
                get(regs::MMCRA)
            );
        }
    }
    Ok(())
}

/// The counters as the interrupt found them; those without an event are 0. (PMC6
/// counts along with PMC5 in any case.)
fn counters_of_the_moment() -> Outcome {
    let attr = extended(IP | READ)?.grouped();
    for leader in [1, 3] {
        let attr = attr.clone().config(on_pmc(leader, INSTRUCTIONS));
        let mut recorder = Recorder::open(attr, PAGES)?;
        let _members = [
            Attr::raw(on_pmc(2, INSTRUCTIONS))
                .grouped()
                .open_with(&recorder.event)?,
            Attr::raw(RUN_INSTRUCTIONS)
                .grouped()
                .open_with(&recorder.event)?,
        ];
        let mut last: Option<(u64, u64)> = None;
        let mut in_step = 0;
        for sample in in_loop(recorder.samples(run)?)? {
            let pmc = |number: u32| sample.regs_intr.get(regs::PMC1 + number - 1);
            let over = pmc(leader as u32).checked_sub(1 << 31);
            check!(
                over.is_some_and(|over| over < 4000),
                "PMC{leader} {:#x}",
                pmc(leader as u32)
            );
            // A counting event's counter began at 0, perhaps later than its count.
            for (number, value) in [(2, &sample.read.values[1]), (5, &sample.read.values[2])] {
                check!(
                    pmc(number) <= value.value,
                    "PMC{number} {}, count {}",
                    pmc(number),
                    value.value
                );
            }
            if let Some((counter, count)) = last
                && pmc(2) > counter
            {
                let (counted, value) = (pmc(2) - counter, sample.read.values[1].value - count);
                check!(counted == value, "PMC2 {counted} more, count {value} more");
                in_step += 1;
            }
            last = Some((pmc(2), sample.read.values[1].value));
            for unused in [1, 3, 4].into_iter().filter(|n| u64::from(*n) != leader) {
                check!(pmc(unused) == 0, "PMC{unused} {:#x}", pmc(unused));
            }
        }
        check!(in_step > 10, "{in_step} samples to compare");
    }
    Ok(())
}

/// What a program without privileges sees of counters that are not its own:
/// nothing. (The kernel's built-in driver shows all six.)
fn counters_of_others() -> Outcome {
    machine::pin_to(0)?;
    // Both fit on the PMU at once.
    let foreign = Attr::raw(on_pmc(3, INSTRUCTIONS))
        .enabled()
        .on_cpu(0)
        .open()?;
    let attr = extended(IP)?.with(|raw| {
        raw.set_exclude_kernel(1);
        raw.set_exclude_hv(1);
    });
    process::become_nobody()?;
    machine::needs_pace()?;
    let mut recorder = Recorder::open(attr, PAGES)?;
    let _member = Attr::raw(RUN_INSTRUCTIONS)
        .with(|raw| {
            raw.set_exclude_kernel(1);
            raw.set_exclude_hv(1);
        })
        .open_with(&recorder.event)?;
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
    let count = foreign.read()?;
    check!(count.value > WORK, "the other counts: {count:?}");
    Ok(())
}

/// Registers of the user's side, too, have what the PMU had at the interrupt.
fn extended_registers_of_user() -> Outcome {
    let attr = extended(IP | REGS_USER)?.with(|raw| {
        raw.sample_regs_user = raw.sample_regs_intr;
    });
    for sample in samples_in_loop(attr)? {
        for number in [regs::MMCR0, regs::MMCR1, regs::PMC1, regs::NIP] {
            let (user, intr) = (sample.regs_user.get(number), sample.regs_intr.get(number));
            check!(user == intr && user != 0, "{number}: {user:#x}, {intr:#x}");
        }
    }
    Ok(())
}

/// A marked event samples the instructions it chose, and a sample without such an
/// instruction is worthless: it is dropped if it should tell where it was or what it
/// accessed, and counted as lost. (The kernel's built-in driver does not count those
/// without a place.)
fn samples_without_instruction() -> Outcome {
    for (fields, is_dropped) in [
        (IP, true),
        (DATA_SRC, true),
        (IP | DATA_SRC, true),
        (IP | DATA_SRC | REGS_INTR, true),
        (REGS_INTR, false),
        (ADDR | REGS_INTR, false),
    ] {
        let attr = sampling(fields)
            .with(|raw| raw.read_format = (sys::PERF_FORMAT_LOST | sys::PERF_FORMAT_ID).into());
        let mut recorder = Recorder::open(attr, PAGES)?;
        let _marked = Attr::raw(MARKED).open_with(&recorder.event)?;
        let samples = recorder.samples(run)?;
        let [count, _id, lost] = recorder.event.read_words()?[..] else {
            return ktap::fail("read() does not give three words");
        };
        let due = count / PERIOD;
        let (taken, lost) = (samples.len() as u64, lost);
        check!(
            if is_dropped {
                taken == 0 && lost == due
            } else {
                taken == due && lost == 0
            },
            "{fields:#x}: {due} due, {taken} taken, {lost} lost"
        );
    }
    Ok(())
}

fn main() {
    if let Err(error) = machine::keep_sample_rate() {
        eprintln!("perf_cpu_time_max_percent cannot be set: {error}");
    }
    ktap::run(&[
        ("general_registers", general_registers),
        ("callchain", callchain),
        ("callchain_as_long_as_asked", callchain_as_long_as_asked),
        ("stack_of_user", stack_of_user),
        ("extended_registers_offered", extended_registers_offered),
        ("control_registers", control_registers),
        ("counters_of_the_moment", counters_of_the_moment),
        ("counters_of_others", counters_of_others),
        ("extended_registers_of_user", extended_registers_of_user),
        ("samples_without_instruction", samples_without_instruction),
    ])
}
