// SPDX-License-Identifier: GPL-2.0
//! Perf events for the shell tests of takeover: counts known work, holds events open, or opens and
//! closes them all the time.
//!
//! ```text
//! pmu_tool count [INSTRUCTIONS]   count them, print "instructions N cycles N"
//! pmu_tool work [INSTRUCTIONS]    do the work only
//! pmu_tool hold                   open events, print "ready", work until stdin
//!                                 ends, then print "counting" or "revoked"
//! pmu_tool hold_ebb               as hold, with an EBB event that is off the PMU
//! pmu_tool rotate                 as hold, with events that take turns on a counter
//! pmu_tool left                   as hold, with software events of groups whose hardware events
//!                                 are closed
//! pmu_tool inherit                as hold, with events that new threads inherit all the time
//! pmu_tool churn                  print "ready", open, read and close events until
//!                                 stdin ends, then print "opened N refused N"
//! pmu_tool mmcr0                  read and print MMCR0; SIGILL ends it where programs
//!                                 may not read it
//! pmu_tool remove MODULE          remove a module
//! pmu_tool insert FILE            insert a module; both print "done", or the error
//!                                 of the system call, such as EAGAIN
//! ```
//!
//! Exit status: 0 done, 1 perf events do not behave, 2 wrong arguments.

use std::arch::asm;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use pmu_selftests::fields::sample::IP;
use pmu_selftests::prelude::*;

const USAGE: &str = "usage: pmu_tool count|work [INSTRUCTIONS] | hold | hold_ebb | rotate | left | inherit \
                     | churn | mmcr0 | remove MODULE | insert FILE";
const DEFAULT_WORK: u64 = 10_000_000;
/// Short enough that the end of stdin is noticed soon.
const PIECE: u64 = 1_000_000;

/// Polls a descriptor without waiting, and returns the result.
fn poll(fd: BorrowedFd<'_>) -> io::Result<i16> {
    let mut fd = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: There is one pollfd, which lives during the call.
    match unsafe { libc::poll(&mut fd, 1, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(fd.revents),
    }
}

/// Returns whether stdin has ended. Any input counts as the end, too.
fn stdin_ended() -> io::Result<bool> {
    Ok(poll(io::stdin().as_fd())? != 0)
}

fn count(instructions: u64) -> Outcome {
    let leader = Attr::instructions().open()?;
    let member = Attr::cycles().open_with(&leader)?;
    leader.enable()?;
    let done = work::run(instructions);
    leader.disable()?;
    let (counted, cycles) = (leader.read()?, member.read()?);
    println!("instructions {} cycles {}", counted.value, cycles.value);
    check!(
        counted.value >= done && counted.running == counted.enabled && cycles.value > 0,
        "{done} instructions done: {counted:?}, cycles {cycles:?}"
    );
    Ok(())
}

/// Opens one event of each kind: of the task, inherited, sampling, of a CPU, in a group.
fn open_many() -> perf_event::Result<Vec<Event>> {
    let leader = Attr::raw(on_pmc(1, INSTRUCTIONS)).enabled();
    let mut events = open_group([leader, Attr::raw(on_pmc(2, CYCLES))])?;
    for attr in [
        Attr::cycles().inherit(true),
        Attr::instructions().sampling(100_000, IP),
        Attr::instructions().on_cpu(0),
    ] {
        events.push(attr.enabled().open()?);
    }
    Ok(events)
}

/// Opens an event that counts, beside an EBB event that does not.
fn open_beside_ebb() -> perf_event::Result<Vec<Event>> {
    const EBB: u64 = 1 << 63;
    let ebb = Attr::raw(on_pmc(1, INSTRUCTIONS) | EBB).user_only();
    let ebb = ebb.pinned(true).exclusive(true).open()?;
    // It stays open until the program ends.
    std::mem::forget(ebb);
    Ok(vec![Attr::cycles().enabled().open()?])
}

/// Opens events of the task that all need the same counter.
fn open_rotating() -> perf_event::Result<Vec<Event>> {
    let attr = Attr::raw(on_pmc(1, CYCLES)).enabled();
    (0..4).map(|_| attr.open()).collect()
}

/// Opens software events in groups whose hardware events are closed: of the task, of a CPU, with
/// the hardware event as a member, and inherited by threads that begin before the hardware event is
/// opened, while it is open, and after it is closed. perf core keeps these events in a context of
/// the hardware events' PMU, except those of the first thread.
fn open_left() -> perf_event::Result<Vec<Event>> {
    let clock = || Attr::software(sys::PERF_COUNT_SW_CPU_CLOCK).enabled();
    let cycles = || Attr::cycles().enabled();
    let beside = |change: fn(Attr) -> Attr| {
        let leader = change(cycles()).open()?;
        let left = change(clock()).open_with(&leader)?;
        perf_event::Result::Ok((leader, left))
    };
    let mut events = Vec::new();
    events.push(beside(|attr| attr)?.1);
    events.push(beside(|attr| attr.on_cpu(0))?.1);
    let leader = clock().open()?;
    cycles().open_with(&leader)?;
    events.push(leader);
    // This software event has a table that its inherited copies use.
    let switches = Attr::software(sys::PERF_COUNT_SW_CONTEXT_SWITCHES);
    let leader = switches.enabled().inherit(true).open()?;
    switch_in_a_thread();
    let member = cycles().inherit(true).open_with(&leader)?;
    switch_in_a_thread();
    drop(member);
    switch_in_a_thread();
    // The event includes the count of the first thread's copy, which continues. So it is not
    // checked, and only kept open.
    std::mem::forget(leader);
    Ok(events)
}

/// Opens events that threads inherit, in a group with software events.
fn open_inherited() -> perf_event::Result<Vec<Event>> {
    let clock = Attr::software(sys::PERF_COUNT_SW_CPU_CLOCK);
    let attrs = [Attr::cycles(), clock, Attr::instructions()];
    open_group(attrs.map(|attr| attr.enabled().inherit(true)))
}

/// Starts a thread that works a little and sleeps in turns, until the program ends.
fn switch_in_a_thread() {
    thread::spawn(|| {
        loop {
            work::run(PIECE / 100);
            thread::sleep(Duration::from_millis(1));
        }
    });
}

fn begin_threads() {
    for _ in 0..10 {
        let thread = thread::spawn(|| work::run(1_000));
        thread.join().expect("the thread's work cannot fail");
    }
}

/// Returns whether the event's PMU was unregistered: poll() reports an error, and the event must
/// not count or react to control any more.
fn is_revoked(event: &Event) -> Result<bool, Failure> {
    if poll(event.as_fd())? & libc::POLLERR == 0 {
        return Ok(false);
    }
    let before = event.read()?;
    let _ = event.disable();
    let _ = event.enable();
    work::run(PIECE);
    let after = event.read()?;
    check!(
        before.value == after.value,
        "revoked, yet {before:?}, then {after:?}"
    );
    Ok(true)
}

/// Checks that the event counts, now or when its turn comes.
fn expect_counting(event: &Event) -> Outcome {
    let before = event.read()?.value;
    for _ in 0..100 {
        work::run(PIECE);
        if event.read()?.value > before {
            return Ok(());
        }
    }
    ktap::fail(format!("stuck at {:?}", event.read()?))
}

/// Prints "ready" for the calling script. The program then continues until stdin ends.
fn ready() -> Outcome {
    println!("ready");
    Ok(io::stdout().flush()?)
}

fn hold(events: perf_event::Result<Vec<Event>>, work: fn()) -> Outcome {
    let events = events?;
    ready()?;
    while !stdin_ended()? {
        work();
    }
    let mut revoked = 0;
    for event in &events {
        if is_revoked(event)? {
            revoked += 1;
        } else {
            expect_counting(event)?;
        }
    }
    match revoked {
        0 => println!("counting"),
        all if all == events.len() => println!("revoked"),
        some => ktap::fail(format!("{some} of {} events revoked", events.len()))?,
    }
    Ok(())
}

/// Opens, reads and closes events. Opening fails while no PMU is registered.
fn churn() -> Outcome {
    ready()?;
    let (mut opened, mut refused) = (0, 0);
    while !stdin_ended()? {
        match open_many() {
            Ok(events) => {
                opened += 1;
                work::run(PIECE / 10);
                for event in &events {
                    event.read()?;
                }
            }
            // ENOENT: no PMU has the type. ENODEV: the PMU is being unregistered. EINVAL: the
            // leader's PMU was unregistered before the member was opened.
            Err(error) => match error.errno() {
                Some(libc::ENOENT | libc::ENODEV | libc::EINVAL) => refused += 1,
                _ => return Err(error.into()),
            },
        }
    }
    println!("opened {opened} refused {refused}");
    check!(opened > 0, "no open ever succeeded");
    Ok(())
}

/// Prints how a system call on modules ended. Some tests expect that it is refused.
fn tell(result: libc::c_long) {
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        _ if result == 0 => println!("done"),
        Some(libc::EAGAIN) => println!("EAGAIN"),
        Some(libc::EBUSY) => println!("EBUSY"),
        Some(libc::EEXIST) => println!("EEXIST"),
        _ => println!("{error}"),
    }
}

/// Calls delete_module(2). The usual programs print different messages, and some check whether the
/// module is in use instead of trying.
fn remove(module: &str) -> Outcome {
    let module = CString::new(module)?;
    // SAFETY: The name lives during the call.
    tell(unsafe { libc::syscall(libc::SYS_delete_module, module.as_ptr(), libc::O_NONBLOCK) });
    Ok(())
}

/// Calls finit_module(2) without parameters.
fn insert(path: &str) -> Outcome {
    let file = File::open(path)?;
    // SAFETY: The parameters live during the call, and the file is open.
    let result =
        unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) };
    tell(result);
    Ok(())
}

/// Prints MMCR0, read under its register number for problem state.
fn mmcr0() -> Outcome {
    let value: u64;
    // SAFETY: The instruction only reads a register.
    unsafe { asm!("mfspr {}, 779", out(reg) value, options(nomem, nostack)) };
    println!("{value:#x}");
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let instructions = match arguments[..] {
        [_, text] => text.parse().ok(),
        _ => Some(DEFAULT_WORK),
    };
    let work = || {
        work::run(PIECE);
    };
    let result = match (&arguments[..], instructions) {
        (["count"] | ["count", _], Some(instructions)) => count(instructions),
        (["work"] | ["work", _], Some(instructions)) => {
            work::run(instructions);
            Ok(())
        }
        (["hold"], _) => hold(open_many(), work),
        (["hold_ebb"], _) => hold(open_beside_ebb(), work),
        (["rotate"], _) => hold(open_rotating(), work),
        (["left"], _) => hold(open_left(), work),
        (["inherit"], _) => hold(open_inherited(), begin_threads),
        (["churn"], _) => churn(),
        (["mmcr0"], _) => mmcr0(),
        (["remove", module], _) => remove(module),
        (["insert", file], _) => insert(file),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Fail(why) | Failure::Skip(why)) => {
            eprintln!("pmu_tool {}: {why}", arguments.join(" "));
            ExitCode::FAILURE
        }
    }
}
