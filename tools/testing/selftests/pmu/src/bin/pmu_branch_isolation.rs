// SPDX-License-Identifier: GPL-2.0
//! No branch of somebody else's in a branch stack: tasks with different filters
//! that take turns on one CPU, for a minute if tests may take long; and no address of the kernel in any
//! part of a sample of who may not look into the kernel.

use std::fs;
use std::io;
use std::thread::sleep;
use std::time::Duration;
use std::time::Instant;

use ktap::process::NOBODY;
use ktap::process::become_user;
use pmu_selftests::branch::needs_branches;
use pmu_selftests::branching::Program;
use pmu_selftests::fields::branch::*;
use pmu_selftests::fields::sample::*;
use pmu_selftests::prelude::*;
use pmu_selftests::regs::GENERAL;

/// Turns that a task has between two times in which the CPU sleeps.
const TURNS: u64 = 20;
/// Rounds of its program in a turn: some more than fill the BHRB.
const ROUNDS: u64 = 8;
/// Much shorter than a turn with all around it, so that many samples fall right
/// behind a switch, when the BHRB would still hold the other's branches.
fn period() -> u64 {
    machine::period(5_003)
}

/// A minute where tests may take long, and on a debug kernel, where few samples come in a program.
fn minute() -> Duration {
    let whole = ktap::is_long() || machine::is_debug_kernel();
    Duration::from_secs(if whole { 60 } else { 15 })
}

/// One of the tasks that take turns.
struct Player<'a> {
    index: usize,
    filter: u64,
    /// The program of each; all are in all tasks, so that no two are at the same address.
    programs: &'a [Program],
    /// For each task, which is told by the one before it, both ends of that.
    links: &'a mut [(Link, Link)],
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
    fn tell_next(&mut self) -> Outcome {
        let next = (self.index + 1) % self.links.len();
        self.links[next].0.tell()
    }

    /// Plays until the time is up; the first to find that out tells the next as often as
    /// that may wait.
    fn play(&mut self, duration: Duration) -> Result<Seen, Failure> {
        let attr = Attr::instructions()
            .sampling(period(), IP)
            .branches(self.filter)
            .exclude_kernel(true);
        let mut recorder = Recorder::open(attr, 64)?;
        let start = Instant::now();
        let mut seen = Seen::default();
        while start.elapsed() < duration {
            recorder.event.enable()?;
            for _ in 0..TURNS {
                self.links[self.index].1.listen()?;
                self.programs[self.index].run(ROUNDS);
                self.tell_next()?;
            }
            recorder.event.disable()?;
            seen.turns += TURNS;
            self.judge(recorder.take()?, &mut seen)?;
            if self.index == 0 {
                // Passes at once in an emulator with an instruction clock.
                sleep(Duration::from_millis(100));
            }
        }
        for _ in 0..2 * TURNS {
            self.tell_next()?;
        }
        Ok(seen)
    }

    /// Counts the branches of the task's own program, all of which the filter must
    /// want, and those of others. What is around the program is shared by all.
    fn judge(&self, samples: Vec<Sample>, seen: &mut Seen) -> Outcome {
        let program = &self.programs[self.index];
        let own = program.code();
        let wanted = program.wanted(self.filter);
        let is_foreign = |address: &u64| {
            let codes = self.programs.iter().map(Program::code);
            codes
                .filter(|code| *code != own)
                .any(|code| code.contains(address))
        };
        seen.samples += samples.len() as u64;
        for branch in samples.iter().flat_map(|sample| &sample.branches) {
            if [branch.from, branch.to].iter().any(is_foreign) {
                seen.foreign += 1;
                if seen.foreign == 1 {
                    eprintln!("the first foreign one: {branch:x?}");
                }
            }
            if own.contains(&branch.from) && own.contains(&branch.to) {
                seen.own += 1;
                let mut places = wanted.iter().map(|site| (site.from, site.to));
                check!(
                    places.any(|place| place == (branch.from, branch.to)),
                    "not wanted: {branch:x?}"
                );
            }
        }
        Ok(())
    }
}

/// Tasks with these filters take turns on one CPU.
fn take_turns(filters: &[u64], duration: Duration) -> Outcome {
    needs_branches()?;
    cpu::pin_to(0)?;
    let mut programs = Vec::new();
    let mut links = Vec::new();
    for _ in filters {
        programs.push(Program::plain().copy()?);
        links.push(Link::pair()?);
    }
    let mut tasks = Vec::new();
    for (index, &filter) in filters.iter().enumerate() {
        let mut player = Player {
            index,
            filter,
            programs: &programs,
            links: &mut links,
        };
        tasks.push(Peer::spawn(move |_| {
            let seen = player.play(duration)?;
            eprintln!("task {index}: {seen:?}");
            check!(seen.foreign == 0, "{} foreign branches", seen.foreign);
            // Most interrupts come in the kernel, which a debug one does not leave soon.
            let enough = seen.turns > 1000 && seen.own > 500 / machine::sampled_work(1);
            check!(enough, "too little was seen");
            Ok(())
        })?);
    }
    links[0].0.tell()?;
    tasks.into_iter().try_for_each(Peer::join)
}

fn three_tasks() -> Outcome {
    take_turns(&[ANY, ANY_RETURN | ANY_CALL, COND], minute() / 2)
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

/// Registers that interrupted code may have in a sample (sample_regs_intr): as
/// many as this machine takes.
fn register_masks() -> Vec<u64> {
    let takes = |mask: &u64| {
        let attr = Attr::instructions().sampling(period(), IP | REGS_INTR);
        errno_of(attr.sample_regs_intr(*mask).exclude_kernel(true).open()) == 0
    };
    let extended = (45..64).map(|bit| 1 << bit).filter(takes).sum::<u64>();
    let mut masks = vec![GENERAL, extended, GENERAL | extended];
    masks.retain(|mask| *mask != 0);
    masks.dedup();
    masks
}

/// Samples of work for the kernel, and the words of them that could be its addresses.
fn sample_kernel_work(attr: Attr) -> io::Result<(usize, Vec<u64>)> {
    let mut recorder = Recorder::open(attr, 64)?;
    let mut done = Ok(());
    let mut records = recorder.records(|| done = keep_kernel_busy())?;
    done?;
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
    let (samples, words) = sample_kernel_work(open)?;
    check!(
        !words.is_empty(),
        "no address of the kernel in {samples} samples"
    );
    become_user(NOBODY)?;
    let all = IP | ADDR | DATA_SRC | WEIGHT | CALLCHAIN | REGS_INTR | REGS_USER;
    let with_branches = needs_branches().is_ok();
    for mask in register_masks() {
        for code in [INSTRUCTIONS, on_pmc(4, INSTRUCTIONS)] {
            for usually in [5_003, 1009, 20_011] {
                let period = machine::period(usually);
                let mut attr = Attr::raw(code)
                    .sampling(period, all)
                    .sample_regs_intr(mask)
                    .sample_regs_user(GENERAL)
                    .exclude_kernel(true)
                    .with(|raw| raw.set_exclude_callchain_kernel(1));
                if with_branches {
                    attr = attr.branches(ANY | USER);
                }
                let (samples, words) = sample_kernel_work(attr)?;
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
    become_user(NOBODY)?;
    let attr = Attr::instructions()
        .sampling(period(), IP)
        .exclude_kernel(true);
    let errno = errno_of(attr.clone().branches(ANY | KERNEL).open());
    check!(errno == libc::EACCES, "errno {errno}");
    let errno = errno_of(attr.branches(ANY | USER).open());
    check!(errno == 0, "of user space: errno {errno}");
    Ok(())
}

fn main() {
    if std::env::var_os("KTAP_TIMEOUT").is_none() {
        // SAFETY: there is one thread.
        unsafe { std::env::set_var("KTAP_TIMEOUT", "120") };
    }
    ktap::run(ktap::tests! {
        first: machine::keep_sample_rate;
        // The filters need different settings of the hardware.
        two_tasks = take_turns(&[ANY_CALL, COND], minute()),
        three_tasks, nothing_of_the_kernel, kernel_branches_are_refused,
    })
}
