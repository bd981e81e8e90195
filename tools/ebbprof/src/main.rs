// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ebbprof`: profiles programs by Event Based Branches, without a kernel entry for each sample.
//! The page ebbprof(1) says how it is used.
//!
//! `record` runs a program with `libebbprof.so` preloaded (`tools/libebbprof`), whose handler
//! writes samples to memory that both share (`ring/`), and writes them to a perf.data file.

/// Tells people something. Where stderr cannot be written, nobody is there to hear it.
macro_rules! say {
    ($($text:tt)*) => {{
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("ebbprof: {}\n", format_args!($($text)*)),
        );
    }};
}

mod alive;
mod branches;
mod callers;
mod check;
mod clock;
mod collapsed;
mod collect;
mod compare;
mod completion;
mod eviction;
mod files;
mod help;
mod image;
mod instruction;
mod mappings;
mod memory;
mod names;
mod perfdata;
mod pprof;
mod processes;
mod profile;
mod program;
mod progress;
mod record;
mod regular;
mod report;
mod samples;
mod sound;
mod stacks;
mod symbols;
mod system;
mod target;

use std::error::Error;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::Parser;
use clap::Subcommand;

/// Profiles programs by Event Based Branches, without a kernel entry for each sample.
#[derive(Parser)]
#[command(name = "ebbprof", version, after_long_help = help::ALL)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program and write its samples to a file that perf reads too
    #[command(after_long_help = help::RECORD)]
    Record(record::Options),
    /// Write the samples of a program that records itself, by libebbprof
    #[command(hide = true)]
    Collect(collect::Options),
    /// Show where the samples are
    #[command(after_long_help = help::REPORT)]
    Report(report::Options),
    /// Write a line for each stack: its functions, and how many samples it has
    #[command(after_long_help = help::COLLAPSED)]
    Collapsed(collapsed::Options),
    /// Draw a flame graph, as an SVG file for a browser
    #[command(after_long_help = help::FLAME)]
    Flame(collapsed::FlameOptions),
    /// Write the samples as a file for pprof
    #[command(after_long_help = help::PPROF)]
    Pprof(pprof::Options),
    /// Show what a run took more or less than another, and where
    #[command(after_long_help = help::COMPARE)]
    Compare(compare::Options),
    /// Say whether programs, or this one, can be profiled here
    #[command(after_long_help = help::CHECK)]
    Check(check::Options),
    /// Write what a shell needs to complete these commands
    #[command(after_long_help = help::COMPLETION)]
    Completion(completion::Options),
}

/// What `ebbprof` itself failed on.
type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    fail_at_limit_of_files();
    let done = match Options::parse().command {
        Command::Record(options) => record::run(&options),
        Command::Collect(options) => collect::run(&options).map(|()| 0),
        Command::Report(options) => report::run(&options).map(|()| 0),
        Command::Collapsed(options) => collapsed::run(&options).map(|()| 0),
        Command::Flame(options) => collapsed::flame(&options).map(|()| 0),
        Command::Pprof(options) => pprof::run(&options).map(|()| 0),
        Command::Compare(options) => compare::run(&options).map(|()| 0),
        Command::Check(options) => check::run(&options).map_err(Failure::from),
        Command::Completion(options) => completion::run(&options, Options::command()).map(|()| 0),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            say!("{error}");
            ExitCode::from(FAILED)
        }
    }
}

/// Has a write beyond the limit of a file's size fail as on a full disk, and not end this process; the
/// programs that it runs do not inherit that.
fn fail_at_limit_of_files() {
    extern "C" fn nothing(_: libc::c_int) {}
    let (signal, action) = (libc::SIGXFSZ, nothing as *const () as libc::sighandler_t);
    // SAFETY: the function does nothing, as a signal's handler may. What was ignored is so again.
    unsafe {
        if libc::signal(signal, action) == libc::SIG_IGN {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}

/// Exit status where `ebbprof` itself fails: that of no usual program.
const FAILED: u8 = 125;
