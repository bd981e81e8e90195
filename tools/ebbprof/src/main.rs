// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ebbprof`: profiles programs with Event Based Branches, without a kernel entry for each sample.
//! The page ebbprof(1) describes its use.
//!
//! `record` runs a program with `libebbprof.so` preloaded (`tools/libebbprof`). The library's
//! handler writes samples to memory that both share (`ring/`), and `record` writes them to a
//! perf.data file.

/// Prints a message on standard error. Ignores errors, which could not be reported anyway.
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

/// Profile programs with Event Based Branches, without a kernel entry for each sample.
#[derive(Parser)]
#[command(name = "ebbprof", version, after_long_help = help::ALL)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program and write its samples to a perf.data file
    #[command(after_long_help = help::RECORD)]
    Record(record::Options),
    /// Write the samples of a program that records itself with libebbprof
    #[command(hide = true)]
    Collect(collect::Options),
    /// List the functions with most samples
    #[command(after_long_help = help::REPORT)]
    Report(report::Options),
    /// Write one line for each call stack, with its number of samples
    #[command(after_long_help = help::COLLAPSED)]
    Collapsed(collapsed::Options),
    /// Draw a flame graph as an SVG file
    #[command(after_long_help = help::FLAME)]
    Flame(collapsed::FlameOptions),
    /// Convert the samples to a file for pprof
    #[command(after_long_help = help::PPROF)]
    Pprof(pprof::Options),
    /// Compare two recordings, function by function
    #[command(after_long_help = help::COMPARE)]
    Compare(compare::Options),
    /// Check whether programs can be profiled on this machine
    #[command(after_long_help = help::CHECK)]
    Check(check::Options),
    /// Print the completion script of a shell
    #[command(after_long_help = help::COMPLETION)]
    Completion(completion::Options),
}

/// An error of `ebbprof` itself.
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

/// Makes a write beyond the limit for the size of files fail, as on a full disk, instead of killing
/// this process. Programs that it runs do not inherit that.
fn fail_at_limit_of_files() {
    extern "C" fn nothing(_: libc::c_int) {}
    let (signal, action) = (libc::SIGXFSZ, nothing as *const () as libc::sighandler_t);
    // SAFETY: The function does nothing, so it is a valid signal handler. If the signal was
    // ignored, it is ignored again.
    unsafe {
        if libc::signal(signal, action) == libc::SIG_IGN {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}

/// Exit status of a failure of `ebbprof` itself, which few programs use.
const FAILED: u8 = 125;
