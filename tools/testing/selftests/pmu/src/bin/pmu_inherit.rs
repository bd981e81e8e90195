// SPDX-License-Identifier: GPL-2.0
//! Inherited events: children and threads count into their parent's event.

use std::io;
use std::thread;

use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use pmu_selftests::codes::INSTRUCTIONS;
use pmu_selftests::codes::on_pmc;
use pmu_selftests::process::Child;
use pmu_selftests::process::Turnstile;
use pmu_selftests::work;

/// Long beside what fork and exit take (some hundred thousand instructions).
const WORK: u64 = 50_000_000;

fn inherited(attr: Attr) -> Attr {
    attr.inherit(true)
}

fn works() -> io::Result<()> {
    work::run(WORK);
    Ok(())
}

/// Some count came from this many times the work, and from no more.
fn times(count: u64, times: u64) -> bool {
    count >= WORK * times && count < WORK * times + WORK / 2
}

fn child_is_added() -> Outcome {
    let event = inherited(Attr::instructions()).enabled().open()?;
    Child::spawn(works)?.wait()?;
    let count = event.read()?;
    check!(times(count.value, 1), "one child: {count:?}");
    work::run(WORK);
    let count = event.read()?;
    check!(times(count.value, 2), "a child and the parent: {count:?}");
    Ok(())
}

fn child_is_not_added_without() -> Outcome {
    let event = Attr::instructions().enabled().open()?;
    Child::spawn(works)?.wait()?;
    let count = event.read()?;
    check!(count.value < WORK / 2, "{count:?}");
    Ok(())
}

fn grandchildren_are_added() -> Outcome {
    let event = inherited(Attr::instructions()).enabled().open()?;
    Child::spawn(|| {
        work::run(WORK);
        let (first, second) = (Child::spawn(works)?, Child::spawn(works)?);
        first.wait()?;
        second.wait()
    })?
    .wait()?;
    let count = event.read()?;
    check!(times(count.value, 3), "{count:?}");
    Ok(())
}

/// A child that still runs is in the sum already.
fn running_child_counts() -> Outcome {
    let event = inherited(Attr::instructions()).enabled().open()?;
    let (done, leave) = (Turnstile::new()?, Turnstile::new()?);
    let child = Child::spawn(|| {
        work::run(WORK);
        done.open()?;
        leave.pass()
    })?;
    done.pass()?;
    let during = event.read()?;
    leave.open()?;
    child.wait()?;
    let after = event.read()?;
    check!(times(during.value, 1), "before its exit: {during:?}");
    check!(
        times(after.value, 1) && after.value >= during.value,
        "{during:?}, {after:?}"
    );
    Ok(())
}

fn times_are_added() -> Outcome {
    let event = inherited(Attr::instructions()).enabled().open()?;
    let before = event.read()?;
    Child::spawn(works)?.wait()?;
    let after = event.read()?;
    check!(after.enabled == after.running, "{after:?}");
    check!(after.enabled > before.enabled, "{before:?}, {after:?}");
    Ok(())
}

fn disable_reaches_the_child() -> Outcome {
    let event = inherited(Attr::instructions()).enabled().open()?;
    let (ready, go) = (Turnstile::new()?, Turnstile::new()?);
    let child = Child::spawn(|| {
        ready.open()?;
        go.pass()?;
        work::run(WORK);
        Ok(())
    })?;
    ready.pass()?;
    event.disable()?;
    go.open()?;
    child.wait()?;
    let count = event.read()?;
    check!(count.value < WORK / 2, "{count:?}");
    Ok(())
}

fn disabled_event_counts_no_child() -> Outcome {
    let event = inherited(Attr::instructions()).open()?;
    Child::spawn(works)?.wait()?;
    check!(event.read()?.value == 0, "{:?}", event.read()?);
    Ok(())
}

fn groups_are_inherited() -> Outcome {
    let leader = inherited(Attr::raw(on_pmc(1, INSTRUCTIONS))).open()?;
    let member = inherited(Attr::raw(on_pmc(2, INSTRUCTIONS))).open_with(&leader)?;
    leader.enable()?;
    Child::spawn(works)?.wait()?;
    leader.disable()?;
    let (leads, follows) = (leader.read()?, member.read()?);
    check!(times(leads.value, 1), "leader: {leads:?}");
    check!(times(follows.value, 1), "member: {follows:?}");
    check!(
        leads.value.abs_diff(follows.value) < 1000,
        "{leads:?}, {follows:?}"
    );
    Ok(())
}

fn threads_are_added() -> Outcome {
    let event = inherited(Attr::instructions()).enabled().open()?;
    let threads: Vec<_> = (0..4).map(|_| thread::spawn(works)).collect();
    for thread in threads {
        check!(matches!(thread.join(), Ok(Ok(()))));
    }
    // A thread is joined before it has left the kernel; its count is in anyway.
    let count = event.read()?;
    check!(times(count.value, 4), "{count:?}");
    Ok(())
}

/// The event outlives every close of the parent's descriptor by its child.
fn parent_may_close_first() -> Outcome {
    let event = inherited(Attr::instructions()).enabled().open()?;
    let go = Turnstile::new()?;
    let child = Child::spawn(|| {
        go.pass()?;
        works()
    })?;
    drop(event);
    go.open()?;
    child.wait()?;
    // The PMU is whole afterwards.
    let event = Attr::instructions().open()?;
    let mut done = 0;
    let count = event.count(|| done = work::run(WORK))?;
    check!(
        count >= done && times(count, 1),
        "{done} done, {count} counted"
    );
    Ok(())
}

fn main() {
    ktap::run(&[
        ("child_is_added", child_is_added),
        ("child_is_not_added_without", child_is_not_added_without),
        ("grandchildren_are_added", grandchildren_are_added),
        ("running_child_counts", running_child_counts),
        ("times_are_added", times_are_added),
        ("disable_reaches_the_child", disable_reaches_the_child),
        (
            "disabled_event_counts_no_child",
            disabled_event_counts_no_child,
        ),
        ("groups_are_inherited", groups_are_inherited),
        ("threads_are_added", threads_are_added),
        ("parent_may_close_first", parent_may_close_first),
    ])
}
