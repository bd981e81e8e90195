// SPDX-License-Identifier: GPL-2.0
//! The BHRB's filter in MMCRA, as a program sees it there: that of the event on
//! the PMU, whatever else is opened, fails or is sampled beside it.

use std::arch::asm;
use std::thread;

use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use perf_event::Event;
use perf_event::sys::PERF_SAMPLE_BRANCH_ANY;
use perf_event::sys::PERF_SAMPLE_BRANCH_ANY_CALL;
use perf_event::sys::PERF_SAMPLE_BRANCH_STACK;
use perf_event::sys::PERF_SAMPLE_BRANCH_USER;
use pmu_selftests::codes::CYCLES;
use pmu_selftests::codes::INSTRUCTIONS;
use pmu_selftests::codes::RUN_CYCLES;
use pmu_selftests::codes::RUN_INSTRUCTIONS;
use pmu_selftests::codes::on_pmc;
use pmu_selftests::process::Child;
use pmu_selftests::work;

/// A marked event on PMC1, with the sampling that it needs (bits 24-28).
const MARKED: u64 = 0x101_01e0;

/// MMCRA bit 63: random sampling is on.
const SAMPLE_ENABLE: u64 = 1;

/// IFM 1: calls.
const CALLS: u64 = 1;

/// MMCRA. A read without EBB traps from ISA v3.1 on, but not in QEMU.
fn mmcra() -> u64 {
    let value;
    // SAFETY: reads a register, without effect.
    unsafe { asm!("mfspr {}, 770", out(reg) value, options(nomem, nostack)) };
    value
}

/// The filter, bits 32-33.
fn filter() -> u64 {
    mmcra() >> 30 & 3
}

/// Skips where reading MMCRA ends in SIGILL.
fn require_mmcra() -> Outcome {
    let readable = Child::spawn(|| {
        std::hint::black_box(mmcra());
        Ok(())
    })?;
    match readable.wait() {
        Ok(()) => Ok(()),
        Err(_) => ktap::skip("this machine lets no program read MMCRA"),
    }
}

/// An event that samples branches, rarely.
fn sampling(code: u64, branches: u32) -> Attr {
    Attr::raw(code)
        .sampling(1 << 30, PERF_SAMPLE_BRANCH_STACK.into())
        .with(|attr| {
            attr.branch_sample_type = (branches | PERF_SAMPLE_BRANCH_USER).into();
            attr.set_exclude_kernel(1);
            attr.set_exclude_hv(1);
        })
}

/// Has the event programmed once more.
fn again(event: &Event) -> perf_event::Result<()> {
    event.disable()?;
    event.enable()
}

/// The control: calls are filter 1, all branches filter 0.
fn follows_the_event() -> Outcome {
    require_mmcra()?;
    for (branches, expected) in [
        (PERF_SAMPLE_BRANCH_ANY_CALL, CALLS),
        (PERF_SAMPLE_BRANCH_ANY, 0),
        (PERF_SAMPLE_BRANCH_ANY_CALL, CALLS),
    ] {
        let event = sampling(on_pmc(1, CYCLES), branches).enabled().open()?;
        let filter = filter();
        check!(filter == expected, "filter {filter}, not {expected}");
        drop(event);
    }
    Ok(())
}

/// A marked event has MMCRA written in two steps.
fn stays_beside_a_marked_event() -> Outcome {
    require_mmcra()?;
    let event = sampling(MARKED, PERF_SAMPLE_BRANCH_ANY_CALL);
    let event = event.enabled().open()?;
    for turn in 0..20 {
        let value = mmcra();
        check!(
            value >> 30 & 3 == CALLS && value & SAMPLE_ENABLE != 0,
            "turn {turn}: MMCRA is {value:#x}"
        );
        again(&event)?;
        thread::yield_now();
    }
    Ok(())
}

/// Opening an event, enabled or not, is no reason to program anything of it.
fn another_open_changes_nothing() -> Outcome {
    require_mmcra()?;
    let event = sampling(on_pmc(1, CYCLES), PERF_SAMPLE_BRANCH_ANY_CALL);
    let event = event.enabled().open()?;
    let plain = Attr::raw(on_pmc(2, CYCLES)).enabled().open()?;
    let other = sampling(on_pmc(3, CYCLES), PERF_SAMPLE_BRANCH_ANY).open()?;
    // The PMU stops and goes on without a new event.
    plain.disable()?;
    let now = filter();
    check!(now == CALLS, "filter {now} after an open");
    drop(other);
    again(&event)?;
    let now = filter();
    check!(now == CALLS, "filter {now} after the close");
    Ok(())
}

/// An event that finds all counters taken leaves nothing behind.
fn failed_add_leaves_nothing() -> Outcome {
    require_mmcra()?;
    let codes = [
        on_pmc(1, CYCLES),
        on_pmc(2, CYCLES),
        on_pmc(3, CYCLES),
        on_pmc(4, CYCLES),
        RUN_INSTRUCTIONS,
        RUN_CYCLES,
    ];
    let mut all = Vec::new();
    for code in codes {
        let event = Attr::raw(code).pinned(true);
        all.push(event.enabled().open()?);
    }
    for _ in 0..3 {
        let seventh = sampling(INSTRUCTIONS, PERF_SAMPLE_BRANCH_ANY_CALL);
        let seventh = seventh.enabled().open()?;
        work::run(100_000);
        let count = seventh.read()?;
        check!(count.running == 0, "the seventh event ran: {count:?}");
    }
    drop(all);
    let plain = Attr::raw(on_pmc(1, CYCLES)).enabled().open()?;
    again(&plain)?;
    let filter = filter();
    check!(filter == 0, "filter {filter} of an event that is gone");
    Ok(())
}

fn main() {
    ktap::run(&[
        ("follows_the_event", follows_the_event),
        ("stays_beside_a_marked_event", stays_beside_a_marked_event),
        ("another_open_changes_nothing", another_open_changes_nothing),
        ("failed_add_leaves_nothing", failed_add_leaves_nothing),
    ])
}
