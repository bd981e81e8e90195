// SPDX-License-Identifier: GPL-2.0
//! Asks a processor what documents and emulators do not answer, for the report of `check_here.sh`.
//! Prints what was seen, and judges nothing. Each question has a process of its own, which is
//! killed after a minute.

use ebb::EbbContext;
use ebb::Event;
use ebb::Handler;
use ebb::Pmc;
use ebb::Rearm;
use ebb::config;
use ebb::config::Ifm;
use ebb::pmc;
use ebb::reg::Mmcr0;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ebb_selftests::tracee::Tracee;
use ktap::Failure;
use ktap::Outcome;
use ktap::cpu;
use ktap::process::Peer;
use pmu_selftests::branching::Program;
use pmu_selftests::work;
use std::arch::asm;
use std::fs;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::time::Instant;

/// Codes that sample at any instruction, and at marked ones (`PM_MRK_INST_CMPL` on PMC4 with random
/// sampling of instructions, and of loads and stores).
const CODES: [(&str, u64, u32); 3] = [
    ("cycles", CYCLES, 20_000),
    ("marked instructions", 0x4_01e0, 10),
    ("marked loads and stores", 0x104_01e0, 10),
];

/// A question and the function that prints the answers.
type Question = (&'static str, fn() -> Outcome);

const QUESTIONS: [Question; 6] = [
    (
        "Do SIAR, SDAR and SIER keep their values while the counters are frozen?",
        frozen,
    ),
    (
        "How far is an EBB from the overflow that caused it?",
        distance,
    ),
    (
        "Which branches does each filter of the BHRB record?",
        filters,
    ),
    (
        "Do alerts raise PM interrupts while EBBs are enabled?",
        interrupts,
    ),
    (
        "Does a trace interrupt write SIAR and SDAR of a frozen PMU?",
        single_steps,
    ),
    (
        "How many instructions does PMC5 count between two writes of MMCR0 that unfreeze and freeze?",
        freezing,
    ),
];

fn main() {
    for (question, ask) in QUESTIONS {
        println!("question: {question}");
        let answer = |_: &mut _| {
            end_in_a_minute();
            session::require_ebb()?;
            cpu::pin()?;
            ask()
        };
        match Peer::spawn(answer).and_then(|peer| peer.join()) {
            Ok(()) => {}
            Err(Failure::Skip(reason) | Failure::Fail(reason)) => println!("  no answer: {reason}"),
        }
    }
}

fn end_in_a_minute() {
    // SAFETY: The call takes no pointer.
    unsafe { libc::alarm(60) };
}

/// Works until `ebbs` EBBs have come, for 0.3 s at most. Returns whether they have.
fn await_ebbs(ebbs: u64, work: impl Fn()) -> bool {
    let end = Instant::now() + Duration::from_millis(300);
    while ebb::count() < ebbs && Instant::now() < end {
        work();
    }
    ebb::count() >= ebbs
}

/// Begins EBBs of the event `code`.
fn begin(code: u64, period: u32, handler: Handler) -> Result<Event, Failure> {
    let event = session::prepare(code, handler)?;
    ebb::start(session::pmc_of(code)?, period.into())?;
    ebb::enable()?;
    pmc::unfreeze();
    Ok(event)
}

/// Memory that does not fit into the caches.
const BYTES: usize = 64 << 20;

/// Reads memory that misses the caches, with a branch for each read.
fn read_memory(memory: &[u64]) {
    let sum: u64 = memory.iter().step_by(19).sum();
    std::hint::black_box(sum);
}

fn sampled_registers() -> Vec<(&'static str, u64)> {
    let mut all = vec![
        ("SIAR", pmc::siar()),
        ("SDAR", pmc::sdar()),
        ("SIER", pmc::sier()),
    ];
    if session::isa_v31() {
        all.extend([("SIER2", pmc::sier2()), ("SIER3", pmc::sier3())]);
    }
    all
}

fn stop(context: &mut EbbContext<'_>) {
    context.rearm(Rearm::Stop);
}

/// Compares the registers at the first EBB with those after much work, with alerts off and on.
fn frozen() -> Outcome {
    const SAMPLES: usize = 20;
    let memory = vec![1; BYTES / size_of::<u64>()];
    for (name, code, period) in CODES {
        for (bits, mmcr0) in [("FC", Mmcr0::FC), ("FC, PMAE", Mmcr0::FC | Mmcr0::PMAE)] {
            let mut pairs = Vec::new();
            for _ in 0..SAMPLES {
                let event = begin(code, period, stop)?;
                if !await_ebbs(1, || read_memory(&memory[..1 << 16])) {
                    session::end(event)?;
                    break;
                }
                // A negative counter would raise an alert again.
                session::pmc_of(code)?.write(0);
                mmcr0.write();
                let before = sampled_registers();
                read_memory(&memory);
                pairs.push((before, sampled_registers()));
                session::end(event)?;
            }
            println!("  {name}, MMCR0 {bits}: {} samples", pairs.len());
            let Some((before, after)) = pairs.last() else {
                break;
            };
            for (index, ((name, old), (_, new))) in before.iter().zip(after).enumerate() {
                let changed = pairs.iter().filter(|(a, b)| a[index] != b[index]);
                println!(
                    "    {name:<5} changed in {}, last {old:#x}, {new:#x}",
                    changed.count()
                );
            }
        }
    }
    Ok(())
}

/// EBBs whose figures are stored.
const STORED: usize = 500;
static BEYOND: [AtomicU64; STORED] = [const { AtomicU64::new(0) }; STORED];
static BYTES_LATER: [AtomicU64; STORED] = [const { AtomicU64::new(0) }; STORED];
static COUNTER: AtomicU64 = AtomicU64::new(0);

fn store_distance(context: &mut EbbContext<'_>) {
    let index = context.number() as usize - 1;
    let counter = Pmc::ALL[COUNTER.load(Relaxed) as usize];
    if index < STORED {
        let beyond = context.value(counter).wrapping_sub(pmc::OVERFLOW);
        BEYOND[index].store(beyond.into(), Relaxed);
        let later = context.interrupted().wrapping_sub(pmc::siar());
        BYTES_LATER[index].store(later, Relaxed);
    }
}

/// Prints the smallest value, the quartiles and the largest one, as signed numbers.
fn print_quartiles(name: &str, values: &[AtomicU64]) {
    let mut values: Vec<i64> = values.iter().map(|v| v.load(Relaxed) as i64).collect();
    values.sort_unstable();
    let quartiles = [0, 1, 2, 3, 4].map(|n| values[(values.len() - 1) * n / 4]);
    println!("  {name}: smallest, quartiles, largest {quartiles:?}");
}

/// Takes EBBs in a loop of `nop`.
fn distance() -> Outcome {
    for (name, code) in [
        ("cycles", CYCLES),
        ("instructions", config::INSTRUCTIONS_PMC2),
    ] {
        COUNTER.store(session::pmc_of(code)?.index() as u64, Relaxed);
        let event = begin(code, 10_007, store_distance)?;
        await_ebbs(STORED as u64, || {
            work::run(1 << 16);
        });
        let came = (ebb::count() as usize).min(STORED);
        session::end(event)?;
        println!("  {came} EBBs of {name}");
        if came > 0 {
            print_quartiles("counts beyond 0x80000000", &BEYOND[..came]);
            print_quartiles("bytes from SIAR to EBBRR", &BYTES_LATER[..came]);
        }
    }
    Ok(())
}

/// The branches of `Program::plain` and `Program::mixed`, in the order of their tables.
const PLAIN: [&str; 8] = ["bl", "blr", "bctrl", "blr", "beq", "b", "bctr", "bne"];
const MIXED: [&str; 11] = [
    "bcl 12,26",
    "beqlr",
    "beqctrl",
    "blr",
    "bcl 20,31,$+4",
    "beqctr",
    "bdnz",
    "bctar",
    "bctarl",
    "blr",
    "bne",
];

/// Address of a branch, and how often it was recorded without its target and with it.
static SITES: [[AtomicU64; 3]; 16] = [const { [const { AtomicU64::new(0) }; 3] }; 16];
static OTHERS: AtomicU64 = AtomicU64::new(0);

fn store_branches(context: &mut EbbContext<'_>) {
    let mut entries = [0; ebb::bhrb::ENTRIES];
    for branch in context.branches(&mut entries) {
        let found = SITES
            .iter()
            .find(|site| site[0].load(Relaxed) == branch.from);
        let counter = match found {
            Some(site) if branch.from != 0 => &site[1 + usize::from(branch.to.is_some())],
            _ => &OTHERS,
        };
        counter.fetch_add(1, Relaxed);
    }
    pmc::bhrb_clear();
}

/// Lists the branches of two known programs that each filter records.
fn filters() -> Outcome {
    for ifm in (0..=3).filter_map(Ifm::new) {
        for (name, program, names) in [
            ("simple branches", Program::plain(), &PLAIN[..]),
            ("others", Program::mixed(), &MIXED[..]),
        ] {
            for (index, site) in SITES.iter().enumerate() {
                let from = program.sites().get(index).map_or(0, |site| site.from);
                site[0].store(from, Relaxed);
                site[1..].iter().for_each(|count| count.store(0, Relaxed));
            }
            OTHERS.store(0, Relaxed);
            let event = begin(CYCLES | config::bhrb(ifm), 20_000, store_branches)?;
            await_ebbs(50, || program.run(1000));
            session::end(event)?;
            let [ifm, ebbs] = [ifm as u64, ebb::count()];
            println!("  IFM {ifm}, {name}, {ebbs} EBBs: recorded without target, with target");
            for (name, [_, without, with]) in names.iter().zip(&SITES) {
                println!(
                    "    {name:<14} {:>6} {:>6}",
                    without.load(Relaxed),
                    with.load(Relaxed)
                );
            }
            println!("    {:<14} {:>6}", "elsewhere", OTHERS.load(Relaxed));
        }
    }
    Ok(())
}

/// Returns the number of PM interrupts of all CPUs.
fn pm_interrupts() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/interrupts")?;
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with("PMI:"));
    let words = line.unwrap_or("").split_whitespace();
    Ok(words.filter_map(|word| word.parse::<u64>().ok()).sum())
}

fn interrupts() -> Outcome {
    let before = pm_interrupts()?;
    let event = begin(CYCLES, 20_000, session::count_only)?;
    await_ebbs(1000, || {
        work::run(1 << 16);
    });
    session::end(event)?;
    let came = pm_interrupts()? - before;
    println!(
        "  {came} PM interrupts on all CPUs during {} EBBs",
        ebb::count()
    );
    Ok(())
}

/// Steps a child whose PMU is frozen with alerts off, and looks at the registers that the kernel
/// saves for it.
fn single_steps() -> Outcome {
    const STEPS: usize = 100;
    let mut child = Peer::spawn(|parent| {
        end_in_a_minute();
        let _event = session::prepare(CYCLES, session::count_only)?;
        Mmcr0::FC.write();
        parent.tell()?;
        loop {
            session::work();
        }
    })?;
    child.listen()?;
    let tracee = Tracee::attach(child.pid())?;
    let (mut own, mut siar, mut sdar, mut sier) = (0, 0, 0, 0);
    for _ in 0..STEPS {
        let (at, before) = (tracee.nip()?, tracee.pmu()?);
        tracee.step()?;
        let after = tracee.pmu()?;
        own += usize::from(after.siar == at);
        siar += usize::from(after.siar != before.siar);
        sdar += usize::from(after.sdar != before.sdar);
        sier += usize::from(after.sier != before.sier);
    }
    println!("  {STEPS} steps: SIAR is the stepped instruction after {own}");
    println!("  changed: SIAR in {siar}, SDAR in {sdar}, SIER in {sier}");
    tracee.detach()
}

/// Returns what PMC5 counts while the counters run for the instructions of the macro's argument.
macro_rules! counted {
    ($code:literal) => {{
        Pmc::Pmc5.write(0);
        // SAFETY: MMCR0 has number 779 for problem state. The program has an EBB event, and no
        // alert is due in so few instructions.
        unsafe {
            asm!("isync", "mtspr 779, {run}", $code, "mtspr 779, {frozen}", "isync",
                run = in(reg) 0_u64, frozen = in(reg) Mmcr0::FC.0, options(nostack));
        }
        Pmc::Pmc5.read()
    }};
}

fn freezing() -> Outcome {
    let event = session::prepare(pmu_selftests::codes::RUN_INSTRUCTIONS, session::count_only)?;
    for _ in 0..3 {
        let counts = [
            counted!(""),
            counted!("isync"),
            counted!(".rept 8; nop; .endr"),
            counted!(".rept 64; nop; .endr"),
        ];
        println!("  none, isync, 8 nop, 64 nop between the writes: {counts:?}");
    }
    session::end(event)
}
