// SPDX-License-Identifier: GPL-2.0
//! EBBs of marked events. An EBB comes after as many marked instructions as the period says, and
//! the sampled address is that of a marked instruction. No emulator marks instructions, so
//! `check_here.sh` runs this program on hardware.

use ebb::EbbContext;
use ebb::pmc;
use ebb_selftests::session;
use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use pmu_selftests::work;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::time::Instant;

/// `PM_MRK_INST_CMPL` on PMC4, with random sampling of instructions, or of loads and stores.
const INSTRUCTIONS: u64 = 0x4_01e0;
const LOADS_AND_STORES: u64 = 0x104_01e0;

/// The processor marks one of some thousand instructions.
const PERIOD: u32 = 10;
const EBBS: u64 = 20;
const PATIENCE: Duration = Duration::from_secs(5);

/// Addresses that the handler expects, and how many samples had such an address or another one.
static EXPECTED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
static WITHIN: AtomicU64 = AtomicU64::new(0);
static OUTSIDE: AtomicU64 = AtomicU64::new(0);

fn expect(range: Range<u64>) {
    EXPECTED[0].store(range.start, Relaxed);
    EXPECTED[1].store(range.end, Relaxed);
}

fn note(address: Option<u64>) {
    let expected = EXPECTED[0].load(Relaxed)..EXPECTED[1].load(Relaxed);
    if let Some(address) = address {
        let counter = if expected.contains(&address) {
            &WITHIN
        } else {
            &OUTSIDE
        };
        counter.fetch_add(1, Relaxed);
    }
}

fn note_instruction(context: &mut EbbContext<'_>) {
    note(context.sampled());
}

fn note_data(context: &mut EbbContext<'_>) {
    note(context.sampled_data());
}

/// Skips the test if the event `code` counts nothing while `work` runs.
fn require_marked(code: u64, work: fn()) -> Outcome {
    session::require_ebb()?;
    let event = Attr::raw(code).user_only().open()?;
    let count = event.count(|| {
        let end = Instant::now() + Duration::from_millis(100);
        while Instant::now() < end {
            work();
        }
    })?;
    println!("{count} marked instructions in 100 ms");
    if count == 0 {
        return ktap::skip("this machine marks no instructions");
    }
    Ok(())
}

/// Takes EBBs of the event `code` in `work`. Fails unless most samples have an address in `range`.
fn ebbs(code: u64, range: Range<u64>, handler: ebb::Handler, work: fn()) -> Outcome {
    require_marked(code, work)?;
    expect(range);
    let event = session::prepare(code, handler)?;
    ebb::set_marked(true);
    ebb::start(session::pmc_of(code)?, PERIOD.into())?;
    ebb::enable()?;
    pmc::unfreeze();
    let end = Instant::now() + PATIENCE;
    while ebb::count() < EBBS && Instant::now() < end {
        work();
    }
    let came = ebb::count();
    session::end(event)?;
    let [within, outside] = [&WITHIN, &OUTSIDE].map(|counter| counter.load(Relaxed));
    println!("{came} EBBs: {within} samples within the work, {outside} elsewhere");
    check!(came >= EBBS, "{came} EBBs in {} s", PATIENCE.as_secs());
    check!(
        within > outside,
        "{within} samples within, {outside} elsewhere"
    );
    Ok(())
}

fn nops() {
    work::run(1 << 16);
}

fn marked_instructions() -> Outcome {
    ebbs(INSTRUCTIONS, work::code(), note_instruction, nops)
}

/// Memory for loads and stores.
static DATA: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

fn loads_and_stores() {
    for (index, word) in DATA.iter().enumerate() {
        word.store(DATA[DATA.len() - 1 - index].load(Relaxed) + 1, Relaxed);
    }
}

fn data_of_marked_loads() -> Outcome {
    let start = DATA.as_ptr() as u64;
    let range = start..start + size_of_val(&DATA) as u64;
    ebbs(LOADS_AND_STORES, range, note_data, loads_and_stores)
}

ktap::main! {
    marked_instructions, data_of_marked_loads,
}
