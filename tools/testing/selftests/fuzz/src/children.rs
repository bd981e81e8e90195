// SPDX-License-Identifier: GPL-2.0
//! What a process does by other processes and threads: its children, other programs and users,
//! threads, tracees.

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

/// Steps of a child, and one more.
const STEPS: u64 = 10;

/// Signals that end a program which has no handlers yet.
const DEADLY: [libc::c_int; 5] = [
    libc::SIGTRAP,
    libc::SIGIO,
    libc::SIGALRM,
    libc::SIGUSR1,
    libc::SIGHUP,
];

/// Has this process end with its parent.
pub fn end_with_parent() {
    // SAFETY: takes no pointer.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Ends this process: says what it has found, if anything.
pub fn leave(task: &Task, what: &str, outcome: &Outcome) -> ! {
    if let Err(Failure::Fail(why) | Failure::Skip(why)) = outcome {
        println!("process {}{what}: {why}", task.number);
        task.tally.entry(task.number).add(Count::Failures, 1);
    }
    // SAFETY: ends the process; it has nothing buffered, as lines are written when they end.
    unsafe { libc::_exit(i32::from(outcome.is_err())) }
}

/// Forks. The child runs `body`, `what` it is.
fn spawn(task: &mut Task, what: &str, body: impl FnOnce(&mut Task) -> Outcome) -> Option<i32> {
    // The C library blocks signals meanwhile.
    task.without_ebbs();
    // SAFETY: there is one thread, so the child finds no lock taken.
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
        // Too many processes.
        _ => None,
    }
}

/// Forks; the child does some steps, with `user` as another user.
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

/// Forks; the child does some steps, executes this program anew and does more.
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
        // An event whose descriptor stays open goes on for the new program.
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
        // SAFETY: the arrays end with a null pointer, as does each word with a 0.
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

/// Blocks the signals that end a new program before it has its handlers, or no more.
pub fn block_deadly(how: libc::c_int) {
    block(&DEADLY, how);
}

/// Blocks `signals`, or no more.
pub fn block(signals: &[libc::c_int], how: libc::c_int) {
    // SAFETY: the set is initialised before it is used, and lives through the calls.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        libc::sigprocmask(how, &set, ptr::null_mut());
    }
}

/// Another thread does some steps, and this one as well.
pub fn thread(task: &mut Task, random: &mut Random) -> Outcome {
    let (seed, steps) = (random.any(), random.below(STEPS));
    let (other_seed, other_steps) = (random.any(), random.below(STEPS));
    task.without_ebbs();
    let beside = task.thread();
    // The other one's EBBs are counted with this one's.
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

/// Forks a child that does some steps, looks at its registers and changes them.
pub fn trace(task: &mut Task, random: &mut Random) -> Outcome {
    let (seed, steps) = (random.any(), STEPS + random.below(STEPS));
    let Some(pid) = spawn(task, ", traced", |task| task.run(seed, steps, true)) else {
        return Ok(());
    };
    for _ in 0..random.below(3) {
        // It may have ended meanwhile; if it went wrong it has said so itself.
        if meddle(pid, task.number, task.page, random).is_ok() {
            task.tally.entry(task.number).add(Count::Traced, 1);
        }
        ktap::process::give_way();
    }
    Ok(())
}

/// Gives a tracee other registers, none with another program's mark, and no EBBs that it has not
/// turned on.
fn meddle(pid: libc::pid_t, number: u64, page: Page, random: &mut Random) -> Outcome {
    let tracee = Tracee::attach(pid)?;
    // A task that never had an EBB event has no such registers.
    if let Ok(mut ebb) = tracee.ebb() {
        ebb.bescr &= random.any();
        let _ = tracee.set_ebb(&ebb);
    }
    if let Ok(mut pmu) = tracee.pmu() {
        // As if sampled at its branches, which is a mark.
        pmu.siar = page.any(random);
        pmu.sdar = page.any(random);
        pmu.sier = random.any();
        pmu.mmcr2 = random.any() & !Mmcr2::USER.0 | marks::mmcr2(number);
        pmu.mmcr0 = random.any() as u32;
        let _ = tracee.set_pmu(&pmu);
    }
    tracee.detach()
}

/// Waits for all children, each of which has to end by itself and well.
pub fn wait(task: &mut Task) -> Outcome {
    for pid in std::mem::take(&mut task.children) {
        loop {
            let mut status = 0;
            // SAFETY: `status` lives through the call.
            let waited = unsafe { libc::waitpid(pid, &mut status, libc::WUNTRACED | libc::__WALL) };
            if waited == pid && libc::WIFSTOPPED(status) {
                // A tracer stops it by a signal that may come after the tracer has gone.
                // SAFETY: our own child, and not yet waited for.
                unsafe { libc::kill(pid, libc::SIGCONT) };
                continue;
            }
            // A tracer may have waited for its end.
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

/// How a process ended, by what waitpid gave.
pub fn describe(status: libc::c_int) -> String {
    match libc::WIFSIGNALED(status) {
        true => format!("killed by signal {}", libc::WTERMSIG(status)),
        false => format!("exit status {}", libc::WEXITSTATUS(status)),
    }
}

/// Says for which process others may open events.
pub fn publish(task: &Task) {
    // SAFETY: asks for a number.
    let pid = unsafe { libc::getpid() };
    task.tally.entry(task.number).pid.store(pid, Relaxed);
}
