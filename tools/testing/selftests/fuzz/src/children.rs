// SPDX-License-Identifier: GPL-2.0
//! Steps of a process that take other processes and threads: its children, other programs and
//! users, threads, tracees.

use std::ffi::CString;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use ebb::reg::Mmcr2;
use ebb_selftests::tracee::Tracee;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use ktap::process::NOBODY;
use ktap::process::become_user;

use crate::marks;
use crate::marks::Page;
use crate::tally::Count;
use crate::task::Task;
use pmu_selftests::random::Random;

/// Exclusive limit of a child's steps.
const STEPS: u64 = 10;

/// Signals that end a program that has no handlers yet.
const DEADLY: [libc::c_int; 5] = [
    libc::SIGTRAP,
    libc::SIGIO,
    libc::SIGALRM,
    libc::SIGUSR1,
    libc::SIGHUP,
];

/// Makes this process end when its parent ends.
pub fn end_with_parent() {
    // SAFETY: The call takes no pointer.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Ends this process; prints and counts its failure, if it has one.
pub fn leave(task: &Task, what: &str, outcome: &Outcome) -> ! {
    if let Err(Failure::Fail(why) | Failure::Skip(why)) = outcome {
        println!("process {}{what}: {why}", task.number);
        task.tally.entry(task.number).add(Count::Failures, 1);
    }
    // SAFETY: The call ends the process, which has nothing buffered, as stdout is flushed after
    // each line.
    unsafe { libc::_exit(i32::from(outcome.is_err())) }
}

/// Forks; the child runs `body`. `what` describes the child in messages.
fn spawn(task: &mut Task, what: &str, body: impl FnOnce(&mut Task) -> Outcome) -> Option<i32> {
    // The C library blocks signals during a fork, and the step over a refused access takes one.
    task.without_ebbs();
    // SAFETY: There is one thread, so the child finds no lock taken.
    match unsafe { libc::fork() } {
        0 => {
            end_with_parent();
            task.forked();
            let outcome = task
                .check_new()
                .and_then(|()| body(task))
                .and_then(|()| task.end());
            leave(task, what, &outcome)
        }
        pid if pid > 0 => {
            task.children.push(pid);
            task.tally.entry(task.number).add(Count::Children, 1);
            Some(pid)
        }
        // There are too many processes.
        _ => None,
    }
}

/// Forks; the child does some steps, as another user if `user`.
pub fn fork(task: &mut Task, random: &mut Random, user: bool) -> Outcome {
    let (seed, steps) = (random.any(), random.below(STEPS));
    spawn(task, ", forked", |task| {
        if user {
            become_user(NOBODY)?;
            end_with_parent();
        }
        task.run(seed, steps, true)
    });
    Ok(())
}

/// Forks; the child does some steps, executes this program again and does more.
pub fn exec(task: &mut Task, random: &mut Random) -> Outcome {
    let (seed, steps, later) = (random.any(), random.below(STEPS), random.below(STEPS));
    let (options, later_seed) = (task.options, random.any());
    spawn(task, ", before execve", |task| {
        task.run(seed, steps, true)?;
        let mut words = vec!["pmu_fuzz".into(), "--exec".into(), task.number.to_string()];
        for (name, value) in [
            ("--seed", later_seed),
            ("--steps", later),
            ("--least-period", options.least_period),
            ("--least-ebb", options.least_ebb.into()),
        ] {
            words.extend([name.to_string(), value.to_string()]);
        }
        // An event whose descriptor stays open continues for the new program.
        let kernel_mmcr2 = &task.tally.entry(task.number).kernel_mmcr2;
        for (name, value) in [
            ("--unchecked", options.unchecked),
            ("--no-ebb", options.no_ebb),
            ("--had-ebb", task.events.had_ebb),
            ("--kernel-mmcr2", kernel_mmcr2.load(Relaxed)),
        ] {
            words.extend(value.then(|| name.to_string()));
        }
        let words: Vec<CString> = words
            .into_iter()
            .filter_map(|word| CString::new(word).ok())
            .collect();
        let mut pointers: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
        pointers.push(ptr::null());
        let empty = [ptr::null::<libc::c_char>()];
        block_deadly(libc::SIG_BLOCK);
        // SAFETY: The arrays end with a null pointer, and each word ends with a zero byte.
        unsafe {
            libc::syscall(
                libc::SYS_execveat,
                options.program,
                c"".as_ptr(),
                pointers.as_ptr(),
                empty.as_ptr(),
                libc::AT_EMPTY_PATH,
            );
        }
        Err(std::io::Error::last_os_error().into())
    });
    Ok(())
}

/// Blocks the signals that would end a new program before it has its handlers, or unblocks them.
pub fn block_deadly(how: libc::c_int) {
    block(&DEADLY, how);
}

/// Blocks `signals`, or unblocks them.
pub fn block(signals: &[libc::c_int], how: libc::c_int) {
    // SAFETY: The set is initialised before it is used, and lives through the calls.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        libc::sigprocmask(how, &set, ptr::null_mut());
    }
}

/// Starts another thread; both threads do some steps.
pub fn thread(task: &mut Task, random: &mut Random) -> Outcome {
    let (seed, steps) = (random.any(), random.below(STEPS));
    let (other_seed, other_steps) = (random.any(), random.below(STEPS));
    task.without_ebbs();
    let beside = task.thread();
    // EBBs of the other thread are counted with those of this one.
    task.events.had_ebb = true;
    let other = std::thread::spawn(move || {
        let mut task = beside.task();
        task.check_new()?;
        task.run(other_seed, other_steps, true)?;
        task.end()
    });
    let outcome = task.run(seed, steps, true);
    task.without_ebbs();
    let other = other
        .join()
        .unwrap_or_else(|_| ktap::fail("the thread panicked"));
    outcome.and(other)
}

/// Forks a child that does some steps, and reads and changes its registers as a tracer.
pub fn trace(task: &mut Task, random: &mut Random) -> Outcome {
    let (seed, steps) = (random.any(), STEPS + random.below(STEPS));
    let Some(pid) = spawn(task, ", traced", |task| task.run(seed, steps, true)) else {
        return Ok(());
    };
    for _ in 0..random.below(3) {
        // The child may have ended before; if it failed it has printed that itself.
        if meddle(pid, task.number, task.page, random).is_ok() {
            task.tally.entry(task.number).add(Count::Traced, 1);
        }
        ktap::process::give_way();
    }
    Ok(())
}

/// Gives a tracee other registers, but no mark of another program, and no EBBs unless the tracee
/// has turned them on.
fn meddle(pid: libc::pid_t, number: u64, page: Page, random: &mut Random) -> Outcome {
    let tracee = Tracee::attach(pid)?;
    // A task that never had an EBB event has no such registers.
    if let Ok(mut ebb) = tracee.ebb() {
        ebb.bescr &= random.any();
        let _ = tracee.set_ebb(&ebb);
    }
    if let Ok(mut pmu) = tracee.pmu() {
        // Addresses as if sampled at the branches of this page, which are this process's mark.
        pmu.siar = page.any(random);
        pmu.sdar = page.any(random);
        pmu.sier = random.any();
        pmu.mmcr2 = random.any() & !Mmcr2::USER.0 | marks::mmcr2(number);
        pmu.mmcr0 = random.any() as u32;
        let _ = tracee.set_pmu(&pmu);
    }
    tracee.detach()
}

/// Waits for all children, each of which must end by itself with success.
pub fn wait(task: &mut Task) -> Outcome {
    for pid in std::mem::take(&mut task.children) {
        loop {
            let mut status = 0;
            // SAFETY: `status` lives through the call.
            let waited = unsafe { libc::waitpid(pid, &mut status, libc::WUNTRACED | libc::__WALL) };
            if waited == pid && libc::WIFSTOPPED(status) {
                // A tracer stops the child with a signal, which may arrive after the tracer has
                // detached.
                //
                // SAFETY: The process is our own child, and has not been waited for.
                unsafe { libc::kill(pid, libc::SIGCONT) };
                continue;
            }
            // If it differs, a tracer may have waited for the child's end.
            check!(
                waited != pid || status == 0,
                "a child's end: {}",
                describe(status)
            );
            break;
        }
    }
    Ok(())
}

/// Describes how a process ended, from the status of waitpid().
pub fn describe(status: libc::c_int) -> String {
    match libc::WIFSIGNALED(status) {
        true => format!("killed by signal {}", libc::WTERMSIG(status)),
        false => format!("exit status {}", libc::WEXITSTATUS(status)),
    }
}

/// Publishes this process, so that others may open events for it.
pub fn publish(task: &Task) {
    // SAFETY: The call takes no arguments.
    let pid = unsafe { libc::getpid() };
    task.tally.entry(task.number).pid.store(pid, Relaxed);
}
