// SPDX-License-Identifier: GPL-2.0
//! The BHRB's filter in MMCRA, as a program sees it there: that of the event on
//! the PMU, whatever else is opened, fails or is sampled beside it.

use std::arch::asm;
use std::thread;

use pmu_selftests::fields::branch::*;
use pmu_selftests::prelude::*;

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
    let reader = Peer::spawn(|_| {
        std::hint::black_box(mmcra());
        Ok(())
    })?;
    match reader.join() {
        Ok(()) => Ok(()),
        Err(_) => ktap::skip("this machine lets no program read MMCRA"),
    }
}

/// An event that samples branches, rarely.
fn sampling(code: u64, branches: u64) -> Attr {
    Attr::raw(code)
        .sampling(1 << 30, 0)
        .branches(branches | USER)
        .exclude_kernel(true)
        .exclude_hv(true)
}

/// Has the event programmed once more.
fn again(event: &Event) -> perf_event::Result<()> {
    event.disable()?;
    event.enable()
}

/// The control: calls are filter 1, all branches filter 0.
fn follows_the_event() -> Outcome {
    for (branches, expected) in [(ANY_CALL, CALLS), (ANY, 0), (ANY_CALL, CALLS)] {
        let event = sampling(on_pmc(1, CYCLES), branches).enabled().open()?;
        let filter = filter();
        check!(filter == expected, "filter {filter}, not {expected}");
        drop(event);
    }
    Ok(())
}

/// A marked event has MMCRA written in two steps.
fn stays_beside_a_marked_event() -> Outcome {
    let event = sampling(MARKED, ANY_CALL);
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
    let event = sampling(on_pmc(1, CYCLES), ANY_CALL);
    let event = event.enabled().open()?;
    let plain = Attr::raw(on_pmc(2, CYCLES)).enabled().open()?;
    let other = sampling(on_pmc(3, CYCLES), ANY).open()?;
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
    let attrs = ALL_COUNTERS.map(|code| Attr::raw(code).pinned(true).enabled());
    let all = attrs
        .iter()
        .map(Attr::open)
        .collect::<perf_event::Result<Vec<_>>>()?;
    for _ in 0..3 {
        let seventh = sampling(INSTRUCTIONS, ANY_CALL);
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

ktap::main! {
    first: require_mmcra;
    follows_the_event, stays_beside_a_marked_event, another_open_changes_nothing,
    failed_add_leaves_nothing,
}
