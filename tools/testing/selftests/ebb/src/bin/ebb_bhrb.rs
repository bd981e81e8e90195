// SPDX-License-Identifier: GPL-2.0
//! The Branch History Rolling Buffer under EBB: filled and readable for an event
//! that asks for it, in the filter mode that it names; empty for one that does
//! not. The branches of another task are never in it.

use ebb::Attr;
use ebb::EbbContext;
use ebb::Pmc;
use ebb::config;
use ebb::pmc;
use ebb::reg::Mmcr0;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ktap::Failure;
use ktap::OrFail;
use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use ktap::process::Peer;
use perf_event::sys;
use pmu_selftests::machine;
use pmu_selftests::ring::Ring;
use pmu_selftests::sample::Sample;
use std::arch::global_asm;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const PERIOD: u32 = 20_000;

// A loop with three branches of known kind and place: a call, its return, and a
// conditional one back. Power ISA v3.1 Book I section 2.4.
global_asm!(
    ".globl branches",
    ".type branches, @function",
    "branches:",
    "mflr 0",
    "mtctr 3",
    "1:",
    ".globl branches_call",
    "branches_call: bl 2f",
    ".globl branches_back",
    "branches_back: bdnz 1b",
    "mtlr 0",
    "blr",
    ".globl branches_return",
    "2:",
    "branches_return: blr",
    ".size branches, . - branches",
);

unsafe extern "C" {
    fn branches(rounds: u64);
    fn branches_call();
    fn branches_back();
    fn branches_return();
}

/// The entries at the last EBB, before anything else is done in it.
static ENTRIES: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

fn note(_: &mut EbbContext<'_>) {
    let read = [
        pmc::bhrb_entry::<0>(),
        pmc::bhrb_entry::<1>(),
        pmc::bhrb_entry::<2>(),
        pmc::bhrb_entry::<3>(),
        pmc::bhrb_entry::<4>(),
        pmc::bhrb_entry::<5>(),
        pmc::bhrb_entry::<6>(),
        pmc::bhrb_entry::<7>(),
    ];
    for (entry, value) in ENTRIES.iter().zip(read) {
        entry.store(value, Relaxed);
    }
    pmc::bhrb_clear();
}

/// Takes EBBs in the loop with an event as it is; returns the last one's entries.
fn run(event: &Attr) -> Result<[u64; 8], Failure> {
    if !session::isa_v31() {
        ktap::skip("the emulator records branches from POWER10 on")?;
    }
    let event = event.open().or_fail("open")?;
    // SAFETY: the handler reads registers and stores to atomics.
    unsafe { ebb::install(note) }.or_fail("install")?;
    event.enable().or_fail("enable")?;
    event.check_scheduled().or_fail("schedule")?;
    pmc::bhrb_clear();
    pmc::freeze();
    ebb::start(Pmc::Pmc1, PERIOD).or_fail("start")?;
    ebb::enable().or_fail("enable EBBs")?;
    pmc::unfreeze();
    for _ in 0..100 {
        // SAFETY: the routine changes r0, CTR and CR only, as a callee may.
        unsafe { branches(1000) };
    }
    ebb::disable();
    check!(ebb::count() > 5, "only {} EBBs came", ebb::count());
    event.close();
    Ok(ENTRIES.each_ref().map(|entry| entry.load(Relaxed)))
}

/// Address of an entry, without its flag bits.
fn address(entry: u64) -> u64 {
    entry & !3
}

fn every_branch() -> Outcome {
    let entries = run(&ebb::event(CYCLES | config::bhrb(0)))?;
    let places = [branches_call, branches_back, branches_return].map(|f| f as *const () as u64);
    println!("entries {entries:x?}, branches at {places:x?}");
    for place in places {
        check!(
            entries.iter().any(|&entry| address(entry) == place),
            "the branch at {place:#x} is missing"
        );
    }
    Ok(())
}

/// IFM 1: calls only.
fn calls_only() -> Outcome {
    let entries = run(&ebb::event(CYCLES | config::bhrb(1)))?;
    let call = branches_call as *const () as u64;
    println!("entries {entries:x?}, call at {call:#x}");
    check!(
        entries.iter().any(|&entry| address(entry) == call),
        "the call is missing"
    );
    for place in [branches_back, branches_return] {
        let place = place as *const () as u64;
        check!(
            entries.iter().all(|&entry| address(entry) != place),
            "the branch at {place:#x} is no call"
        );
    }
    Ok(())
}

fn not_asked_for() -> Outcome {
    let entries = run(&ebb::event(CYCLES))?;
    check!(entries == [0; 8], "entries {entries:x?}");
    Ok(())
}

/// All of the buffer: 32 entries on every POWER so far. Recording ends, as no
/// entry can be read while PMAE is on.
fn all_entries() -> [u64; 32] {
    Mmcr0(0).write();
    macro_rules! entries {
        ($($n:literal)*) => { [$(pmc::bhrb_entry::<$n>()),*] };
    }
    entries!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
}

/// Calls only, of which the test below makes few in a turn.
fn own_session() -> Result<ebb::Event, Failure> {
    let event = ebb::event(CYCLES | config::bhrb(1))
        .open()
        .or_fail("open")?;
    event.enable().or_fail("enable")?;
    event.check_scheduled().or_fail("schedule")?;
    Ok(event)
}

/// Skips where no branches are recorded, keeps the test and its children on one CPU.
fn prepare_neighbours() -> Outcome {
    if !session::isa_v31() {
        ktap::skip("the emulator records branches from POWER10 on")?;
    }
    cpu::pin()?;
    Ok(())
}

/// The branches of the task that had this CPU before are its own.
fn nothing_of_a_neighbour() -> Outcome {
    prepare_neighbours()?;
    sees_nothing_of(Peer::spawn(|parent| {
        let event = own_session()?;
        loop {
            Mmcr0::PMAE.write();
            // SAFETY: the routine changes r0, CTR and CR only, as a callee may.
            unsafe { branches(100) };
            let call = branches_call as *const () as u64;
            let entries = all_entries();
            let calls = entries.iter().filter(|&&entry| address(entry) == call);
            check!(calls.count() > 16, "the neighbour's: {entries:x?}");
            event.check_scheduled().or_fail("neighbour")?;
            // SAFETY: as above.
            unsafe { branches(100) };
            parent.tell()?;
            parent.listen()?;
        }
    })?)
}

/// Nor those of a task whose branches the kernel samples.
fn nothing_of_a_sampled_neighbour() -> Outcome {
    prepare_neighbours()?;
    sees_nothing_of(Peer::spawn(|parent| {
        let rounds = machine::sampled_work(20_000);
        let attr = Attr::cycles()
            .sampling(machine::period(5_003), sys::PERF_SAMPLE_IP.into())
            .branches((sys::PERF_SAMPLE_BRANCH_ANY_CALL | sys::PERF_SAMPLE_BRANCH_USER).into())
            .with(|raw| raw.set_exclude_kernel(1));
        let event = attr.open().or_fail("open")?;
        let mut ring = Ring::map(&event, 64).or_fail("mmap")?;
        event.enable().or_fail("enable")?;
        loop {
            // SAFETY: the routine changes r0, CTR and CR only, as a callee may.
            unsafe { branches(rounds) };
            let samples = Sample::all(&attr, &ring.take()).or_fail("samples")?;
            let call = branches_call as *const () as u64;
            let mut stacks = samples.iter().flat_map(|sample| &sample.branches);
            check!(
                stacks.any(|branch| branch.from == call),
                "the neighbour's {} samples lack its calls",
                samples.len()
            );
            // SAFETY: as above.
            unsafe { branches(100) };
            parent.tell()?;
            parent.listen()?;
        }
    })?)
}

/// Takes turns with a neighbour that has just filled the buffer with its calls.
fn sees_nothing_of(mut neighbour: Peer) -> Outcome {
    let call = branches_call as *const () as u64;
    for turn in 0..20 {
        neighbour.listen()?;
        // At first, and when it comes back with an event that it has already.
        let event = own_session()?;
        for _ in 0..2 {
            let entries = all_entries();
            check!(
                entries.iter().all(|&entry| address(entry) != call),
                "turn {turn}, of the neighbour: {entries:x?}"
            );
            neighbour.tell()?;
            neighbour.listen()?;
        }
        event.close();
        neighbour.tell()?;
    }
    Ok(())
}

ktap::main! {
    first: session::require_ebb;
    every_branch, calls_only, not_asked_for, nothing_of_a_neighbour, nothing_of_a_sampled_neighbour,
}
