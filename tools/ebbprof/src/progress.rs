// SPDX-License-Identifier: MIT OR Apache-2.0
//! The progress line of `record` on a terminal, and the cost of the samples.

use std::fmt;
use std::io;
use std::io::IsTerminal;
use std::io::Write;
use std::mem::MaybeUninit;
use std::time::Duration;
use std::time::Instant;

use ebbprof_ring::COST_UNIT;

use crate::processes::Processes;

/// Time between updates of the line.
const AGAIN: Duration = Duration::from_millis(500);

/// The progress line.
pub struct Progress {
    /// Time of the next update; none if stderr is not a terminal.
    due: Option<Instant>,
    shown: bool,
}

impl Progress {
    pub fn new() -> Self {
        let terminal = io::stderr().is_terminal();
        Self {
            due: terminal.then(|| Instant::now() + AGAIN),
            shown: false,
        }
    }

    /// Updates the line if that is due.
    pub fn show(&mut self, processes: &Processes<'_>) {
        let now = Instant::now();
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        let (samples, lost) = (processes.writer.samples, processes.writer.lost);
        let threads = processes.threads;
        self.due = Some(now + AGAIN);
        self.shown = true;
        // An error is ignored, because the line is only for information.
        let _ = write!(
            io::stderr(),
            "\r\x1b[Kebbprof: {samples} samples of {threads} threads so far, {lost} lost"
        );
    }

    /// Clears the line.
    pub fn end(&self) {
        if self.shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// The cost of the samples.
pub struct Cost {
    sample: f64,
    caller: f64,
    all: f64,
    /// Processor time of the program and its children, including the samples, in seconds.
    program: f64,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sample,
            caller,
            all,
            program,
        } = self;
        let percent = all / program * 100.0;
        let nanoseconds = |seconds: f64| seconds * 1e9;
        write!(
            f,
            "the samples took {percent:.2}% of the program's {program:.3} s: {:.1} ns each",
            nanoseconds(*sample)
        )?;
        if *caller > 0.0 {
            write!(f, ", {:.1} ns per caller", nanoseconds(*caller))?;
        }
        write!(f, ", measured at its start")
    }
}

impl Processes<'_> {
    /// Returns the cost of the samples, if it was measured.
    pub fn cost(&self) -> Option<Cost> {
        let part = |ticks: u64| self.clock.seconds(ticks as f64 / COST_UNIT as f64);
        let (sample, caller) = self.memory.costs();
        let (sample, caller) = (part(sample), part(caller));
        let samples = (self.writer.samples + self.writer.lost) as f64;
        let program = time_of_children();
        (sample > 0.0 && program > 0.0).then_some(Cost {
            sample,
            caller,
            all: samples * sample + self.caller_words as f64 * caller,
            program,
        })
    }
}

/// Returns the processor time of all children that this process has waited for, in seconds.
fn time_of_children() -> f64 {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: `usage` is read only if getrusage() succeeds, which fills it in.
    let usage = unsafe {
        if libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) != 0 {
            return 0.0;
        }
        usage.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
