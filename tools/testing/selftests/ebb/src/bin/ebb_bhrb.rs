// SPDX-License-Identifier: GPL-2.0
//! The Branch History Rolling Buffer with EBBs. An event that requests it gets entries that the
//! program can read, in the filter mode of the event code, with a target where the instruction does
//! not determine it. An event that does not request it gets none. Branches of another task are
//! never visible.

use ebb::Attr;
use ebb::EbbContext;
use ebb::Event;
use ebb::config;
use ebb::config::Ifm;
use ebb::pmc;
use ebb::reg::Mmcr0;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ktap::Failure;
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

// A loop with three branches of known kind and address: a call, its return, and a conditional
// branch back. Power ISA v3.1 Book I section 2.4.
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
    safe fn branches(rounds: u64);
    fn branches_call();
    fn branches_back();
    fn branches_return();
}

/// Returns the address of a label.
fn address(place: unsafe extern "C" fn()) -> u64 {
    place as usize as u64
}

/// Returns whether an entry is the branch at `place`; the low bits of entries are flags.
fn has(entries: &[u64], place: unsafe extern "C" fn()) -> bool {
    entries.iter().any(|entry| entry & !3 == address(place))
}

macro_rules! entries {
    ($($n:literal)*) => { [$(pmc::bhrb_entry::<$n>()),*] };
}

/// Entries at the EBB with the most entries among the first five, read before the handler branches.
/// The emulator also counts the kernel, so of two EBBs around a tick the second finds none.
static ENTRIES: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

fn store(entries: [u64; 8]) {
    for (entry, value) in ENTRIES.iter().zip(entries) {
        entry.store(value, Relaxed);
    }
}

fn stored() -> [u64; 8] {
    ENTRIES.each_ref().map(|entry| entry.load(Relaxed))
}

fn note(context: &mut EbbContext<'_>) {
    let found = entries!(0 1 2 3 4 5 6 7);
    let most = |entries: [u64; 8]| entries.into_iter().filter(|&entry| entry != 0).count();
    // Later EBBs may come after the loop.
    if context.number() <= 5 && most(found) >= most(stored()) {
        store(found);
    }
    pmc::bhrb_clear();
}

/// Takes EBBs in the loop with the BHRB as in `config`; returns the entries of one EBB.
fn entries_with(config: u64) -> Result<[u64; 8], Failure> {
    store([0; 8]);
    let event = session::prepare(CYCLES | config, note)?;
    pmc::bhrb_clear();
    session::arm(PERIOD)?;
    branches(100_000);
    session::end(event)?;
    check!(ebb::count() > 5, "only {} EBBs came", ebb::count());
    let entries = stored();
    println!(
        "entries {entries:x?}, the call is at {:#x}",
        address(branches_call)
    );
    Ok(entries)
}

fn every_branch() -> Outcome {
    let entries = entries_with(config::bhrb(Ifm::All))?;
    check!(has(&entries, branches_call), "the call is missing");
    check!(has(&entries, branches_back), "the way back is missing");
    check!(has(&entries, branches_return), "the return is missing");
    Ok(())
}

/// IFM 1 records calls only.
fn calls_only() -> Outcome {
    let entries = entries_with(config::bhrb(Ifm::Calls))?;
    check!(has(&entries, branches_call), "the call is missing");
    check!(!has(&entries, branches_back), "the way back is no call");
    check!(!has(&entries, branches_return), "the return is no call");
    Ok(())
}

/// IFM 2 records indirect branches: the return. It is not certain that it records indirect calls,
/// so the loop has none.
fn indirect_only() -> Outcome {
    let entries = entries_with(config::bhrb(Ifm::Indirect))?;
    check!(has(&entries, branches_return), "the return is missing");
    check!(!has(&entries, branches_call), "the call is direct");
    // The target of the return, right before the branch back, has an entry of its own.
    let target = address(branches_back) | TARGET;
    let known = [address(branches_return), target];
    check!(
        entries
            .iter()
            .all(|entry| known.contains(&(entry & !WRONG))),
        "others than {known:x?}"
    );
    Ok(())
}

/// IFM 3 records conditional branches: the branch back.
fn conditional_only() -> Outcome {
    let entries = entries_with(config::bhrb(Ifm::Conditional))?;
    let back = address(branches_back);
    check!(
        entries.iter().all(|entry| entry & !WRONG == back),
        "others than the way back, {back:#x}"
    );
    Ok(())
}

/// Bits 62 and 63 of an entry: the entry is a target; the prediction was wrong.
const TARGET: u64 = 2;
const WRONG: u64 = 1;

/// The target of an indirect branch is an entry, before the entry of the branch. Direct branches
/// have none.
fn targets() -> Outcome {
    let entries = entries_with(config::bhrb(Ifm::All))?;
    let target = address(branches_back) | TARGET;
    let mut found = 0;
    for (first, next) in std::iter::zip(entries, &entries[1..]) {
        let is_target = first & TARGET != 0;
        let is_return = next & !WRONG == address(branches_return);
        check!(is_target == is_return, "{first:#x}, then {next:#x}");
        check!(!is_target || first & !WRONG == target, "target {first:#x}");
        found += usize::from(is_target);
    }
    check!(found > 0, "no targets");
    Ok(())
}

fn not_asked_for() -> Outcome {
    let entries = entries_with(0)?;
    check!(entries == [0; 8], "entries {entries:x?}");
    Ok(())
}

/// Returns all entries of the buffer: 32 on every POWER so far. Stops recording first, as no entry
/// can be read while PMAE is on.
fn all_entries() -> [u64; 32] {
    Mmcr0(0).write();
    entries!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
}

/// Opens an event for calls only, of which the neighbours make few in a turn.
fn calls() -> Result<Event, Failure> {
    session::schedule(&ebb::event(CYCLES | config::bhrb(Ifm::Calls)))
}

/// A program does not see the branches of the task that used this CPU before.
fn nothing_of_a_neighbour() -> Outcome {
    sees_nothing_of(Peer::spawn(|parent| {
        let event = calls()?;
        loop {
            Mmcr0::PMAE.write();
            branches(100);
            let entries = all_entries();
            let own = entries
                .iter()
                .filter(|&&entry| has(&[entry], branches_call));
            check!(own.count() > 16, "the neighbour's: {entries:x?}");
            event.check_scheduled()?;
            branches(100);
            parent.tell()?;
            parent.listen()?;
        }
    })?)
}

/// A program does not see the branches of a task whose branches the kernel samples.
fn nothing_of_a_sampled_neighbour() -> Outcome {
    sees_nothing_of(Peer::spawn(|parent| {
        let rounds = machine::sampled_work(20_000);
        let attr = Attr::cycles()
            // Not so often that the driver holds the samples back.
            .sampling(machine::period(20_011), sys::PERF_SAMPLE_IP.into())
            .branches((sys::PERF_SAMPLE_BRANCH_ANY_CALL | sys::PERF_SAMPLE_BRANCH_USER).into())
            .exclude_kernel(true);
        let event = attr.open()?;
        let mut ring = Ring::map(&event, 64)?;
        event.enable()?;
        loop {
            // The event may be throttled until the next tick.
            let (mut seen, mut has_calls) = (0, false);
            for _ in 0..200 {
                branches(rounds);
                let samples = Sample::all(&attr, &ring.take())?;
                let mut stacks = samples.iter().flat_map(|sample| &sample.branches);
                has_calls = stacks.any(|branch| has(&[branch.from], branches_call));
                seen += samples.len();
                if has_calls {
                    break;
                }
            }
            check!(has_calls, "the neighbour's {seen} samples lack its calls");
            branches(100);
            parent.tell()?;
            parent.listen()?;
        }
    })?)
}

/// Takes turns with a neighbour that fills the buffer with its calls each time.
fn sees_nothing_of(mut neighbour: Peer) -> Outcome {
    for turn in 0..20 {
        neighbour.listen()?;
        // Looks with a new event, and then with the same event after a switch.
        let event = calls()?;
        for _ in 0..2 {
            let entries = all_entries();
            check!(!has(&entries, branches_call), "turn {turn}: {entries:x?}");
            neighbour.tell()?;
            neighbour.listen()?;
        }
        event.close();
        neighbour.tell()?;
    }
    Ok(())
}

/// Skips the test if the CPU does not record branches. Keeps the test and its children on one CPU.
fn require_branches() -> Outcome {
    session::require_ebb()?;
    if !session::isa_v31() {
        return ktap::skip("the emulator records branches from POWER10 on");
    }
    cpu::pin()?;
    Ok(())
}

ktap::main! {
    first: require_branches;
    every_branch, calls_only, indirect_only, conditional_only, targets, not_asked_for,
    nothing_of_a_neighbour, nothing_of_a_sampled_neighbour,
}
