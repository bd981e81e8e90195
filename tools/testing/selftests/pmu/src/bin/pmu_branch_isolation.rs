// SPDX-License-Identifier: GPL-2.0
//! Branch stacks hold no branch of another task: tasks with different filters take turns on one
//! CPU, for a minute if tests may take long.

use std::thread::sleep;
use std::time::Duration;
use std::time::Instant;

use pmu_selftests::branch::needs_branches;
use pmu_selftests::branching::Program;
use pmu_selftests::fields::branch::*;
use pmu_selftests::fields::sample::*;
use pmu_selftests::prelude::*;

/// Number of turns that a task has before the CPU sleeps.
const TURNS: u64 = 20;
/// Rounds of its program in a turn: a few more than fill the BHRB.
const ROUNDS: u64 = 8;
/// Returns a period that is much shorter than a turn, so that many samples come right after a
/// switch, when the BHRB could still hold branches of the other task.
fn period() -> u64 {
    machine::period(5_003)
}

/// Returns a minute if tests may take long, and on a debug kernel, where few samples hit the
/// program; else less.
fn minute() -> Duration {
    let whole = ktap::is_long() || machine::is_debug_kernel();
    Duration::from_secs(if whole { 60 } else { 15 })
}

/// One of the tasks that take turns.
struct Player<'a> {
    index: usize,
    filter: u64,
    /// The program of each task. All are mapped in all tasks, so no two have the same address.
    programs: &'a [Program],
    /// For each task, both ends of the link on which the previous task wakes it.
    links: &'a mut [(Link, Link)],
}

/// Counts of a task's turns, samples and branches.
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

    /// Plays until the time is up. Then wakes the next task as often as that task may still wait.
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
                // An emulator with an instruction clock skips this time.
                sleep(Duration::from_millis(100));
            }
        }
        for _ in 0..2 * TURNS {
            self.tell_next()?;
        }
        Ok(seen)
    }

    /// Counts the branches of the task's own program, all of which the filter must select, and the
    /// branches of other tasks' programs. The code around the programs is the same in all tasks.
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

/// Tests tasks that take turns on one CPU, with filters that need different settings of the
/// hardware.
fn tasks_take_turns() -> Outcome {
    needs_branches()?;
    cpu::pin_to(0)?;
    let filters = [ANY_CALL, COND, ANY_RETURN | ANY_CALL, ANY];
    let mut programs = Vec::new();
    let mut links = Vec::new();
    for _ in filters {
        programs.push(Program::plain().copy()?);
        links.push(Link::pair()?);
    }
    let mut tasks = Vec::new();
    for (index, filter) in filters.into_iter().enumerate() {
        let mut player = Player {
            index,
            filter,
            programs: &programs,
            links: &mut links,
        };
        tasks.push(Peer::spawn(move |_| {
            let seen = player.play(minute())?;
            eprintln!("task {index}: {seen:?}");
            check!(seen.foreign == 0, "{} foreign branches", seen.foreign);
            // Most interrupts come in the kernel, where a debug kernel spends more of its time.
            let enough = seen.turns > 1000 && seen.own > 500 / machine::sampled_work(1);
            check!(enough, "too little was seen");
            Ok(())
        })?);
    }
    links[0].0.tell()?;
    tasks.into_iter().try_for_each(Peer::join)
}

fn main() {
    if std::env::var_os("KTAP_TIMEOUT").is_none() {
        // SAFETY: The process has only one thread.
        unsafe { std::env::set_var("KTAP_TIMEOUT", "120") };
    }
    ktap::run(ktap::tests! {
        first: machine::keep_sample_rate;
        tasks_take_turns,
    })
}
