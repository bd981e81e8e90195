// SPDX-License-Identifier: GPL-2.0
//! Work that spends most of its time in the kernel, much of that with interrupts
//! masked: system calls, page faults, switches between tasks, timers.

use std::io;
use std::io::Read;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use crate::check_status;
use crate::machine;
use crate::work;

/// A kind of work: its name, and what does it until the time base has a value.
pub type Kind = (&'static str, fn(u64) -> io::Result<()>);

/// All kinds.
pub const KINDS: [Kind; 6] = [
    ("system calls", system_calls),
    ("page faults", page_faults),
    ("yielding", yielding),
    ("pipe between tasks", pipe),
    ("sleeping threads", sleeping),
    ("timers", timers),
];

/// Does one kind of work for a time on the CPUs that the caller may use.
pub fn run_for(kind: &Kind, time: Duration) -> io::Result<()> {
    let ticks = time.as_nanos() as u64 * (machine::TIME_BASE_HZ / 1_000_000) / 1000;
    kind.1(machine::time_base() + ticks)
}

fn is_over(end: u64) -> bool {
    machine::time_base() >= end
}

/// Calls that do next to nothing in the kernel.
pub fn system_calls(end: u64) -> io::Result<()> {
    while !is_over(end) {
        work::system_calls(20);
    }
    Ok(())
}

/// Pages that come and go.
pub fn page_faults(end: u64) -> io::Result<()> {
    const PAGES: usize = 4;
    // SAFETY: a question without pointers.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            PAGES * page,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let mut outcome = Ok(());
    while outcome.is_ok() && !is_over(end) {
        for index in 0..PAGES {
            // SAFETY: within the mapping, which nobody else uses.
            unsafe { base.cast::<u8>().add(index * page).write_volatile(1) };
        }
        // SAFETY: the mapping's pages are forgotten, and nobody refers into it.
        outcome = check_status(unsafe { libc::madvise(base, PAGES * page, libc::MADV_DONTNEED) });
    }
    // SAFETY: the mapping is this function's own.
    unsafe { libc::munmap(base, PAGES * page) };
    outcome
}

/// Two threads that give way to each other.
pub fn yielding(end: u64) -> io::Result<()> {
    let other = thread::spawn(move || yield_until(end));
    yield_until(end);
    joined(other.join())
}

fn yield_until(end: u64) {
    while !is_over(end) {
        thread::yield_now();
    }
}

/// Two threads that wait for each other's bytes.
pub fn pipe(end: u64) -> io::Result<()> {
    let (mut there, mut back_writer) = io::pipe()?;
    let (mut back, mut there_writer) = io::pipe()?;
    let other = thread::spawn(move || {
        let mut byte = [0];
        while there.read_exact(&mut byte).is_ok() && there_writer.write_all(&byte).is_ok() {}
    });
    while !is_over(end) {
        back_writer.write_all(&[0])?;
        back.read_exact(&mut [0])?;
    }
    drop(back_writer);
    joined(other.join())
}

/// Threads that wake each other and sleep (futexes), and the idle task.
pub fn sleeping(end: u64) -> io::Result<()> {
    let done = Arc::new(AtomicBool::new(false));
    let sleeper = thread::spawn({
        let done = done.clone();
        move || {
            while !done.load(Ordering::Relaxed) {
                thread::park_timeout(Duration::from_millis(1));
            }
        }
    });
    while !is_over(end) {
        sleeper.thread().unpark();
        thread::sleep(Duration::from_micros(20));
    }
    done.store(true, Ordering::Relaxed);
    joined(sleeper.join())
}

extern "C" fn on_alarm(_signal: i32) {}

/// A timer that interrupts the program nearly as often as it can.
pub fn timers(end: u64) -> io::Result<()> {
    let handler = on_alarm as extern "C" fn(i32) as *const () as libc::sighandler_t;
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGALRM, handler) };
    set_timer(machine::sampling_time(Duration::from_micros(30)))?;
    while !is_over(end) {}
    set_timer(Duration::ZERO)
}

fn set_timer(interval: Duration) -> io::Result<()> {
    let interval = libc::timeval {
        tv_sec: 0,
        tv_usec: interval.subsec_micros().into(),
    };
    let timer = libc::itimerval {
        it_interval: interval,
        it_value: interval,
    };
    // SAFETY: `timer` outlives the call, the old value is not asked for.
    check_status(unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) })
}

fn joined<T>(result: thread::Result<T>) -> io::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(_) => Err(io::Error::other("a thread panicked")),
    }
}
