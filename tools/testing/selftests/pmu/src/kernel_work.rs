// SPDX-License-Identifier: GPL-2.0
//! Work that spends most of its time in the kernel, much of it with interrupts masked: system
//! calls, page faults, switches between tasks, timers.

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

/// A kind of work: its name, and the function that does it until the time base reaches a value.
pub type Kind = (&'static str, fn(u64) -> io::Result<()>);

/// All kinds of work.
pub const KINDS: [Kind; 6] = [
    ("system calls", system_calls),
    ("page faults", page_faults),
    ("yielding", yielding),
    ("pipe between tasks", pipe),
    ("sleeping threads", sleeping),
    ("timers", timers),
];

/// Does one kind of work for `time`, on the CPUs that the caller may use.
pub fn run_for(kind: &Kind, time: Duration) -> io::Result<()> {
    let ticks = time.as_nanos() as u64 * (machine::TIME_BASE_HZ / 1_000_000) / 1000;
    kind.1(machine::time_base() + ticks)
}

fn is_over(end: u64) -> bool {
    machine::time_base() >= end
}

/// Calls the kernel for almost no work.
pub fn system_calls(end: u64) -> io::Result<()> {
    while !is_over(end) {
        work::system_calls(20);
    }
    Ok(())
}

/// Touches pages that it then gives back to the kernel.
pub fn page_faults(end: u64) -> io::Result<()> {
    const PAGES: usize = 4;
    // SAFETY: The call takes a number and no pointer.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    // SAFETY: This makes a new mapping at an address that the kernel chooses.
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
            // SAFETY: The address lies in the mapping, which only this function uses.
            unsafe { base.cast::<u8>().add(index * page).write_volatile(1) };
        }
        // SAFETY: The call drops the contents of the mapping, and no reference points into it.
        outcome = check_status(unsafe { libc::madvise(base, PAGES * page, libc::MADV_DONTNEED) });
    }
    // SAFETY: The mapping belongs to this function.
    unsafe { libc::munmap(base, PAGES * page) };
    outcome
}

/// Yields the CPU between two threads.
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

/// Passes bytes back and forth between two threads.
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

/// Lets threads wake each other and sleep (futexes), which also runs the idle task.
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

/// Arms a timer that interrupts the program nearly as often as possible.
pub fn timers(end: u64) -> io::Result<()> {
    let handler = on_alarm as extern "C" fn(i32) as *const () as libc::sighandler_t;
    // SAFETY: The handler does nothing, so it may run at any instruction of the program.
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
    // SAFETY: `timer` outlives the call, and a null pointer means that the old value is not
    // returned.
    check_status(unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) })
}

fn joined<T>(result: thread::Result<T>) -> io::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(_) => Err(io::Error::other("a thread panicked")),
    }
}
