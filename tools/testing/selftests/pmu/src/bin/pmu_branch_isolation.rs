// SPDX-License-Identifier: GPL-2.0
//! No branch of somebody else's in a branch stack: tasks with different filters
//! that take turns on one CPU, for a minute; and no address of the kernel in any
//! part of a sample of who may not look into the kernel.

use std::fs;
use std::io;
use std::ops::Range;
use std::time::Duration;
use std::time::Instant;

use perf_event::sys;

use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use pmu_selftests::branch::needs_branches;
use pmu_selftests::branching::Program;
use pmu_selftests::codes::INSTRUCTIONS;
use pmu_selftests::codes::on_pmc;
use pmu_selftests::errno_of;
use pmu_selftests::fields::branch::ANY;
use pmu_selftests::fields::branch::ANY_CALL;
use pmu_selftests::fields::branch::ANY_RETURN;
use pmu_selftests::fields::branch::COND;
use pmu_selftests::fields::branch::USER;
use pmu_selftests::fields::sample::IP;
use pmu_selftests::machine;
use pmu_selftests::process::Child;
use pmu_selftests::process::Turnstile;
use pmu_selftests::process::become_nobody;
use pmu_selftests::ring::Ring;
use pmu_selftests::sample::Sample;

const MINUTE: Duration = Duration::from_secs(60);
/// Turns that a task has between two times in which the CPU sleeps.
const TURNS: u64 = 20;
/// Rounds of its program in a turn: some more than fill the BHRB.
const ROUNDS: u64 = 8;
/// Much shorter than a turn with all around it, so that many samples fall right
/// behind a switch, when the BHRB would still hold the other's branches.
fn period() -> u64 {
    machine::period(5_003)
}

/// A task's part of the play.
struct Player<'a> {
    program: &'a Program,
    /// Where the code of all others is.
    others: Vec<Range<u64>>,
    filter: u64,
    /// Before its turn, and after it.
    mine: &'a Turnstile,
    next: &'a Turnstile,
    sleeps: bool,
}

/// What a task saw.
#[derive(Debug, Default)]
struct Seen {
    turns: u64,
    samples: u64,
    own: u64,
    foreign: u64,
}

impl Player<'_> {
    /// Plays until the time is up; the first to find that out tells the others by
    /// a turnstile that stays open.
    fn play(&self, duration: Duration) -> io::Result<Seen> {
        let attr = Attr::instructions()
            .sampling(period(), IP)
            .branches(self.filter)
            .exclude_kernel(true);
        let event = attr.open()?;
        let mut ring = Ring::map(&event, 64)?;
        let start = Instant::now();
        let mut seen = Seen::default();
        while start.elapsed() < duration {
            event.enable()?;
            for _ in 0..TURNS {
                self.mine.pass()?;
                self.program.run(ROUNDS);
                self.next.open()?;
            }
            event.disable()?;
            seen.turns += TURNS;
            self.judge(Sample::all(&attr, &ring.take())?, &mut seen)?;
            if self.sleeps {
                // Passes at once in an emulator with an instruction clock.
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        Ok(seen)
    }

    /// Counts the branches of the task's own program, all of which the filter must
    /// want, and those of others. What is around the program is shared by all.
    fn judge(&self, samples: Vec<Sample>, seen: &mut Seen) -> io::Result<()> {
        let own = self.program.code();
        let wanted = self.program.wanted(self.filter);
        let is_foreign = |address: u64| self.others.iter().any(|code| code.contains(&address));
        seen.samples += samples.len() as u64;
        for branch in samples.iter().flat_map(|sample| &sample.branches) {
            if is_foreign(branch.from) || is_foreign(branch.to) {
                seen.foreign += 1;
                if seen.foreign == 1 {
                    eprintln!("the first foreign one: {branch:x?}");
                }
            }
            if own.contains(&branch.from) && own.contains(&branch.to) {
                seen.own += 1;
                let mut places = wanted.iter().map(|site| (site.from, site.to));
                if !places.any(|place| place == (branch.from, branch.to)) {
                    return Err(io::Error::other(format!("not wanted: {branch:x?}")));
                }
            }
        }
        Ok(())
    }
}

/// Tasks with these filters take turns on one CPU.
fn take_turns(filters: &[u64], duration: Duration) -> Outcome {
    needs_branches()?;
    machine::pin_to(0)?;
    // All copies are in all tasks, so that no two are at the same address.
    let mut programs = Vec::new();
    let mut turnstiles = Vec::new();
    for _ in filters {
        programs.push(Program::plain().copy()?);
        turnstiles.push(Turnstile::new()?);
    }
    let mut players = Vec::new();
    for (index, &filter) in filters.iter().enumerate() {
        let others = programs.iter().enumerate().filter(|(i, _)| *i != index);
        let player = Player {
            program: &programs[index],
            others: others.map(|(_, program)| program.code()).collect(),
            filter,
            mine: &turnstiles[index],
            next: &turnstiles[(index + 1) % filters.len()],
            sleeps: index == 0,
        };
        players.push(Child::spawn(move || {
            let seen = player.play(duration)?;
            eprintln!("task {index}: {seen:?}");
            // Nobody waits for one that has ended.
            for _ in 0..2 * TURNS {
                player.next.open()?;
            }
            // Most interrupts come in the kernel, which a debug one does not leave soon.
            let enough = seen.turns > 1000 && seen.own > 500 / machine::sampled_work(1);
            match (seen.foreign, enough) {
                (0, true) => Ok(()),
                (0, false) => Err(io::Error::other("too little was seen")),
                (foreign, _) => Err(io::Error::other(format!("{foreign} foreign branches"))),
            }
        })?);
    }
    turnstiles[0].open()?;
    for player in players {
        player.wait()?;
    }
    Ok(())
}

/// The filters need different settings of the hardware.
fn two_tasks_for_a_minute() -> Outcome {
    take_turns(&[ANY_CALL, COND], MINUTE)
}

fn three_tasks() -> Outcome {
    // Few samples come in a program on a debug kernel.
    let part = if machine::is_debug_kernel() { 2 } else { 6 };
    take_turns(&[ANY, ANY_RETURN | ANY_CALL, COND], MINUTE / part)
}

/// The kernel's memory, code, mappings and page structures are from
/// 0xc000000000000000 to 0xc00fffffffffffff. Few numbers are there by chance.
fn is_of_kernel(word: u64) -> bool {
    word >> 52 == 0xc00
}

/// Makes the kernel work in the task's name, in many of its parts.
fn keep_kernel_busy() -> io::Result<()> {
    for _ in 0..machine::sampled_work(40) {
        fs::read("/proc/self/status")?;
        fs::metadata("/proc/self/exe")?;
        drop(io::pipe()?);
        // Page faults.
        let memory = vec![1_u8; 1 << 20];
        std::hint::black_box(&memory);
        Program::plain().run(20);
    }
    Ok(())
}

/// The general registers (asm/perf_regs.h).
const GENERAL: u64 = (1 << 45) - 1;

/// Registers that interrupted code may have in a sample (sample_regs_intr): as
/// many as this machine takes.
fn register_masks() -> Vec<u64> {
    let takes = |mask: &u64| {
        let attr = Attr::instructions().sampling(period(), IP).with(|raw| {
            raw.sample_type |= u64::from(sys::PERF_SAMPLE_REGS_INTR);
            raw.sample_regs_intr = *mask;
            raw.set_exclude_kernel(1);
        });
        errno_of(attr.open()) == 0
    };
    let extended = (45..64).map(|bit| 1 << bit).filter(takes).sum::<u64>();
    let mut masks = vec![GENERAL, extended, GENERAL | extended];
    masks.retain(|mask| *mask != 0);
    masks.dedup();
    masks
}

/// Samples of work for the kernel, and the words of them that could be its addresses.
fn sample_kernel_work(attr: &Attr) -> io::Result<(usize, Vec<u64>)> {
    let event = attr.open()?;
    let mut ring = Ring::map(&event, 64)?;
    event.enable()?;
    keep_kernel_busy()?;
    event.disable()?;
    let mut records = ring.take();
    records.retain(|record| record.is_sample());
    let words = records.iter().flat_map(|record| record.words.clone());
    Ok((
        records.len(),
        words.filter(|word| is_of_kernel(*word)).collect(),
    ))
}

/// What an unprivileged user may sample: user space only.
fn nothing_of_the_kernel() -> Outcome {
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")?;
    check!(
        paranoid.trim().parse().is_ok_and(|level: i32| level >= 2),
        "perf_event_paranoid is {paranoid}"
    );
    // Who may look into the kernel finds such words.
    let open = Attr::instructions().sampling(period(), IP);
    let (samples, words) = sample_kernel_work(&open)?;
    check!(
        !words.is_empty(),
        "no address of the kernel in {samples} samples"
    );
    become_nobody()?;
    let all = IP | u64::from(sys::PERF_SAMPLE_ADDR | sys::PERF_SAMPLE_DATA_SRC);
    let all = all | u64::from(sys::PERF_SAMPLE_WEIGHT | sys::PERF_SAMPLE_CALLCHAIN);
    let registers = u64::from(sys::PERF_SAMPLE_REGS_INTR | sys::PERF_SAMPLE_REGS_USER);
    let with_branches = needs_branches().is_ok();
    for mask in register_masks() {
        for code in [INSTRUCTIONS, on_pmc(4, INSTRUCTIONS)] {
            for usually in [5_003, 1009, 20_011] {
                let period = machine::period(usually);
                let mut attr = Attr::raw(code).sampling(period, all | registers);
                attr = attr.with(|raw| {
                    raw.sample_regs_intr = mask;
                    raw.sample_regs_user = GENERAL;
                    raw.set_exclude_kernel(1);
                    raw.set_exclude_callchain_kernel(1);
                });
                if with_branches {
                    attr = attr.branches(ANY | USER);
                }
                let (samples, words) = sample_kernel_work(&attr)?;
                check!(samples > 10, "{samples} samples");
                check!(
                    words.is_empty(),
                    "in {samples} samples, {} words as {:#x?}",
                    words.len(),
                    words.first()
                );
            }
        }
    }
    Ok(())
}

/// The kernel's own branches are refused, not left out.
fn kernel_branches_are_refused() -> Outcome {
    become_nobody()?;
    let attr = Attr::instructions()
        .sampling(period(), IP)
        .exclude_kernel(true);
    let kernel = u64::from(sys::PERF_SAMPLE_BRANCH_KERNEL);
    let errno = errno_of(attr.clone().branches(ANY | kernel).open());
    check!(errno == libc::EACCES, "errno {errno}");
    let errno = errno_of(attr.branches(ANY | USER).open());
    check!(errno == 0, "of user space: errno {errno}");
    Ok(())
}

fn main() {
    if let Err(error) = machine::keep_sample_rate() {
        eprintln!("perf_cpu_time_max_percent cannot be set: {error}");
    }
    if std::env::var_os("KTAP_TIMEOUT").is_none() {
        // SAFETY: there is one thread.
        unsafe { std::env::set_var("KTAP_TIMEOUT", "120") };
    }
    ktap::run(&[
        ("two_tasks_for_a_minute", two_tasks_for_a_minute),
        ("three_tasks", three_tasks),
        ("nothing_of_the_kernel", nothing_of_the_kernel),
        ("kernel_branches_are_refused", kernel_branches_are_refused),
    ])
}
