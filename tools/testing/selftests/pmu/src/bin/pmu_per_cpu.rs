// SPDX-License-Identifier: GPL-2.0
//! Events of a CPU: they count all tasks that run on it, and nothing that runs on other CPUs.

use pmu_selftests::least_count;
use pmu_selftests::prelude::*;

/// Long enough that the system's own work is small compared to it.
const WORK: u64 = 50_000_000;

/// Checks a count. The CPU's other work (ticks, the test's system calls) may add a tenth.
fn expect(count: u64, done: u64) -> Outcome {
    expect_within(done, count, done..done + machine::kernel_share(done / 10))
}

fn counts_the_caller() -> Outcome {
    cpu::pin_to(0)?;
    for attr in [Attr::instructions(), Attr::raw(RUN_INSTRUCTIONS)] {
        let (count, done) = count_work(&attr.on_cpu(0).open()?, WORK)?;
        expect(count, done)?;
    }
    Ok(())
}

/// Checks that the events of `cpus` count the work of three children on each of these CPUs.
fn counts_children(cpus: &[usize]) -> Outcome {
    let mut events = Vec::new();
    let mut children = Vec::new();
    for &cpu in cpus {
        events.push(Attr::instructions().on_cpu(cpu).enabled().open()?);
        for _ in 0..3 {
            children.push(Peer::spawn(|_| {
                cpu::pin_to(cpu)?;
                work::run(WORK);
                Ok(())
            })?);
        }
    }
    for child in children {
        child.join()?;
    }
    let mut total = 0;
    for event in &events {
        event.disable()?;
        let count = event.read()?;
        check!(count.value >= 3 * WORK, "one CPU's share: {count:?}");
        check!(count.enabled == count.running, "{count:?}");
        total += count.value;
    }
    expect(total, 3 * WORK * cpus.len() as u64)
}

fn ignores_other_cpus() -> Outcome {
    let [home, other] = cpu::two()?;
    cpu::pin_to(home)?;
    let event = Attr::instructions().on_cpu(other).open()?;
    // The kernel may run a kernel thread there in one of the tries.
    let enough = machine::kernel_share(WORK / 50);
    let least = least_count(&event, 5, enough, || {
        work::run(WORK);
    })?;
    check!(least <= enough, "an idle CPU counted {least}");
    Ok(())
}

ktap::main! {
    counts_the_caller,
    counts_every_task = counts_children(&[0]),
    ignores_other_cpus,
    system_wide = counts_children(&cpu::online()?),
}
