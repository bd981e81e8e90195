// SPDX-License-Identifier: GPL-2.0
//! Events across execve: enable_on_exec, remove_on_exec, and plain ones.
//!
//! The program executes itself, with the work to do as its argument.

use std::os::unix::process::CommandExt;
use std::process::Command;

use perf_event::Count;
use pmu_selftests::prelude::*;

/// Work before and after execve. What execve takes is far below the latter.
const BEFORE: u64 = 200_000_000;
const AFTER: u64 = 50_000_000;

/// Counts with a group while a child works, executes this program anew, and works again.
fn count_across_exec<const N: usize>(group: [Attr; N]) -> Result<[Count; N], Failure> {
    let mut child = Peer::spawn(|parent| {
        parent.listen()?;
        work::run(BEFORE);
        Err(Command::new("/proc/self/exe")
            .arg(AFTER.to_string())
            .exec()
            .into())
    })?;
    let group = open_group(group.map(|attr| attr.pid(child.pid())))?;
    child.tell()?;
    child.join()?;
    let counts: Vec<Count> = group.iter().map(Event::read).collect::<Result<_, _>>()?;
    Ok(std::array::from_fn(|index| counts[index]))
}

fn enable_on_exec() -> Outcome {
    for attr in [Attr::instructions(), Attr::raw(RUN_INSTRUCTIONS)] {
        let [count] = count_across_exec([attr.enable_on_exec(true)])?;
        expect_within(count, count.value, AFTER..2 * AFTER)?;
        check!(
            count.enabled > 0 && count.enabled == count.running,
            "{count:?}"
        );
    }
    Ok(())
}

fn disabled_stays_disabled() -> Outcome {
    let [count] = count_across_exec([Attr::instructions()])?;
    check!(count.value == 0 && count.enabled == 0, "{count:?}");
    Ok(())
}

fn enabled_goes_on() -> Outcome {
    let [count] = count_across_exec([Attr::instructions().enabled()])?;
    check!(count.value >= BEFORE + AFTER, "{count:?}");
    Ok(())
}

fn remove_on_exec() -> Outcome {
    let [count] = count_across_exec([Attr::instructions().enabled().remove_on_exec(true)])?;
    expect_within(count, count.value, BEFORE..BEFORE + AFTER)
}

fn enable_on_exec_of_a_group() -> Outcome {
    let leader = Attr::instructions().enable_on_exec(true);
    let [leads, follows] = count_across_exec([leader, Attr::cycles()])?;
    expect_within(leads, leads.value, AFTER..2 * AFTER)?;
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
    ktap::run(ktap::tests! {
        enable_on_exec, disabled_stays_disabled, enabled_goes_on, remove_on_exec,
        enable_on_exec_of_a_group,
    })
}
