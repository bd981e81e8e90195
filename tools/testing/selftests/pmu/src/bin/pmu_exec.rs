// SPDX-License-Identifier: GPL-2.0
//! Events across execve: enable_on_exec, remove_on_exec, and plain ones.
//!
//! The program executes itself, with the work to do as its argument.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use perf_event::Count;
use pmu_selftests::codes::RUN_INSTRUCTIONS;
use pmu_selftests::process::Child;
use pmu_selftests::process::Turnstile;
use pmu_selftests::work;

/// Work before and after execve. What execve takes is far below the latter.
const BEFORE: u64 = 200_000_000;
const AFTER: u64 = 50_000_000;

/// Counts a child that works, executes this program anew, and works again.
fn count_across_exec(attr: Attr) -> io::Result<Count> {
    let go = Turnstile::new()?;
    let child = Child::spawn(|| {
        go.pass()?;
        work::run(BEFORE);
        let error = Command::new("/proc/self/exe").arg(AFTER.to_string()).exec();
        Err(error)
    })?;
    let event = attr.pid(child.pid()).open()?;
    go.open()?;
    child.wait()?;
    Ok(event.read()?)
}

fn enable_on_exec() -> Outcome {
    for attr in [Attr::instructions(), Attr::raw(RUN_INSTRUCTIONS)] {
        let count = count_across_exec(attr.enable_on_exec(true))?;
        check!(
            count.value >= AFTER && count.value < 2 * AFTER,
            "{BEFORE} before, {AFTER} after: {count:?}"
        );
        check!(
            count.enabled > 0 && count.enabled == count.running,
            "{count:?}"
        );
    }
    Ok(())
}

fn disabled_stays_disabled() -> Outcome {
    let count = count_across_exec(Attr::instructions())?;
    check!(count.value == 0 && count.enabled == 0, "{count:?}");
    Ok(())
}

fn enabled_goes_on() -> Outcome {
    let count = count_across_exec(Attr::instructions().enabled())?;
    check!(count.value >= BEFORE + AFTER, "{count:?}");
    Ok(())
}

fn remove_on_exec() -> Outcome {
    let attr = Attr::instructions().enabled().remove_on_exec(true);
    let count = count_across_exec(attr)?;
    check!(
        count.value >= BEFORE && count.value < BEFORE + AFTER,
        "{count:?}"
    );
    Ok(())
}

fn enable_on_exec_of_a_group() -> Outcome {
    let go = Turnstile::new()?;
    let child = Child::spawn(|| {
        go.pass()?;
        work::run(BEFORE);
        let error = Command::new("/proc/self/exe").arg(AFTER.to_string()).exec();
        Err(error)
    })?;
    let leader = Attr::instructions()
        .enable_on_exec(true)
        .pid(child.pid())
        .open()?;
    let member = Attr::cycles().pid(child.pid()).open_with(&leader)?;
    go.open()?;
    child.wait()?;
    let (leads, follows) = (leader.read()?, member.read()?);
    check!(leads.value >= AFTER && leads.value < 2 * AFTER, "{leads:?}");
    check!(
        follows.value > 0 && follows.running == leads.running,
        "{leads:?}, {follows:?}"
    );
    Ok(())
}

fn main() {
    if let Some(instructions) = std::env::args().nth(1) {
        match instructions.parse() {
            Ok(instructions) => {
                work::run(instructions);
            }
            Err(_) => {
                eprintln!("usage: pmu_exec [INSTRUCTIONS]");
                std::process::exit(2);
            }
        }
        return;
    }
    ktap::run(&[
        ("enable_on_exec", enable_on_exec),
        ("disabled_stays_disabled", disabled_stays_disabled),
        ("enabled_goes_on", enabled_goes_on),
        ("remove_on_exec", remove_on_exec),
        ("enable_on_exec_of_a_group", enable_on_exec_of_a_group),
    ])
}
