// SPDX-License-Identifier: GPL-2.0
//! Common parts of the selftest programs: KTAP (version 1) output, processes that work in step with
//! a test, and the choice of a CPU.
//!
//! A program consists of [`main!`] with the names of its tests. Each test runs in a forked child
//! with a time limit, so that a crash or a hang is one `not ok` line and the next tests still run.
//! The output of a test becomes KTAP diagnostic lines. [`runner`] runs several such programs and
//! nests their output.
//!
//! The format is described in the kernel's `Documentation/dev-tools/ktap.rst`,
//! the exit statuses (0, 1, 4) in `tools/testing/selftests/kselftest.h`.

mod child;
pub mod cpu;
pub mod process;
pub mod runner;

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::io::Write;
use std::panic::Location;
use std::process::exit;
use std::time::Duration;

use child::Child;
use child::describe;

/// Exit status of a program whose tests passed.
pub const EXIT_PASS: i32 = 0;
/// Exit status of a program with a failed test.
pub const EXIT_FAIL: i32 = 1;
/// Exit status of a program that had to skip every test.
pub const EXIT_SKIP: i32 = 4;

/// Exit status after wrong arguments, or wrong limits in the environment.
const EXIT_USAGE: i32 = 2;

/// Seconds that one test may take, unless `KTAP_TIMEOUT` sets another limit.
const DEFAULT_LIMIT: u64 = 30;

/// Result of a test.
pub type Outcome = Result<(), Failure>;

/// A test: its name and its body.
pub type Test<'a> = (&'a str, fn() -> Outcome);

/// Reason why a test did not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The behaviour under test is wrong.
    Fail(String),
    /// The test cannot run here; the text names what is missing.
    Skip(String),
}

/// An error that `?` returns fails the test; the text names file and line.
impl<E: Error> From<E> for Failure {
    #[track_caller]
    fn from(error: E) -> Self {
        Failure::Fail(located(Location::caller(), error))
    }
}

/// Ends a test that cannot run here: `return ktap::skip("needs two CPUs")`.
pub fn skip(why: impl Into<String>) -> Outcome {
    Err(Failure::Skip(why.into()))
}

/// Ends a test as failed, with the caller's file and line.
#[track_caller]
pub fn fail(why: impl Into<String>) -> Outcome {
    Err(Failure::Fail(located(Location::caller(), why.into())))
}

/// Converts the result of a system call: -1 becomes the errno.
pub fn os_result(status: libc::c_int) -> io::Result<libc::c_int> {
    match status {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(status),
    }
}

fn located(at: &Location<'_>, why: impl Display) -> String {
    format!("{}:{}: {why}", at.file(), at.line())
}

/// Returns from the test with a failure unless the condition holds.
///
/// The arguments after the condition are those of `format!`; without them the
/// text is the condition itself.
#[macro_export]
macro_rules! check {
    ($cond:expr $(,)?) => {
        $crate::check!($cond, "{}", stringify!($cond))
    };
    ($cond:expr, $($why:tt)+) => {
        if !$cond {
            return $crate::fail(format!($($why)+)).map(|()| unreachable!());
        }
    };
}

/// Defines the `main` of a test program, which only runs its tests:
///
/// ```
/// use ktap::Outcome;
///
/// fn counts() -> Outcome {
///     ktap::check!(1 + 1 == 2);
///     Ok(())
/// }
///
/// fn counts_to(n: u32) -> Outcome {
///     ktap::check!((0..n).count() == n as usize, "{n}");
///     Ok(())
/// }
///
/// ktap::main! {
///     counts, counts_to_3 = counts_to(3),
/// }
/// ```
///
/// `first: function;` before the names is for what all tests need: each test calls the function
/// first, and ends with its result unless that is `Ok`.
#[macro_export]
macro_rules! main {
    ($($tests:tt)+) => {
        fn main() {
            $crate::run($crate::tests!($($tests)+))
        }
    };
}

/// Lists tests as [`main!`] does, for a program that does something before it calls [`run`].
#[macro_export]
macro_rules! tests {
    (first: $first:path; $($name:ident $(= $body:expr)?),+ $(,)?) => {
        &[$((stringify!($name), || {
            $first()?;
            $crate::body!($name $(= $body)?)
        })),+]
    };
    ($($name:ident $(= $body:expr)?),+ $(,)?) => {
        &[$((stringify!($name), || $crate::body!($name $(= $body)?))),+]
    };
}

/// Body of a test of [`tests!`].
#[doc(hidden)]
#[macro_export]
macro_rules! body {
    ($name:ident) => {
        $name()
    };
    ($name:ident = $body:expr) => {
        $body
    };
}

/// Turns an error into a failure that names what was tried, and where.
pub trait OrFail<T> {
    /// Returns the value, or the failure `what: error`.
    #[track_caller]
    fn or_fail(self, what: &str) -> Result<T, Failure>;
}

impl<T, E: Display> OrFail<T> for Result<T, E> {
    #[track_caller]
    fn or_fail(self, what: &str) -> Result<T, Failure> {
        let at = Location::caller();
        self.map_err(|error| Failure::Fail(located(at, format!("{what}: {error}"))))
    }
}

/// Returns whether `KTAP_LONG` is in the environment: then tests try all cases instead of some.
pub fn is_long() -> bool {
    std::env::var_os("KTAP_LONG").is_some()
}

/// Runs the tests in order, prints KTAP on stdout and exits.
///
/// The exit status is 0 when every test passed or was skipped, 1 when one
/// failed, 4 when all were skipped. `KTAP_TIMEOUT` in the environment is the
/// limit for one test in seconds.
pub fn run(tests: &[Test<'_>]) -> ! {
    let limit = limit_from_env("KTAP_TIMEOUT", DEFAULT_LIMIT).unwrap_or_else(|why| {
        eprintln!("{why}");
        exit(EXIT_USAGE)
    });
    let status = report(tests, limit, &mut |line| println!("{line}"));
    // No error can be reported if stdout is closed.
    let _ = io::stdout().flush();
    exit(status)
}

/// Returns the seconds that an environment variable holds, or `default` if it is not set.
fn limit_from_env(variable: &str, default: u64) -> Result<Duration, String> {
    match std::env::var_os(variable) {
        None => Ok(Duration::from_secs(default)),
        Some(text) => text
            .to_str()
            .and_then(seconds)
            .ok_or_else(|| format!("{variable}: {text:?} is not a number of seconds")),
    }
}

/// Parses a limit in seconds, at least 1.
fn seconds(text: &str) -> Option<Duration> {
    let seconds = text.parse().ok().filter(|&seconds| seconds > 0)?;
    Some(Duration::from_secs(seconds))
}

/// Runs the tests, passes each line of KTAP to `emit` and returns the exit status.
fn report(tests: &[Test<'_>], limit: Duration, emit: &mut dyn FnMut(&str)) -> i32 {
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);

    emit("KTAP version 1");
    emit(&format!("1..{}", tests.len()));
    for (index, (name, test)) in tests.iter().enumerate() {
        let number = index + 1;
        match run_one(*test, limit, emit) {
            Ok(()) => {
                passed += 1;
                emit(&format!("ok {number} {name}"));
            }
            Err(Failure::Skip(why)) => {
                skipped += 1;
                emit(&format!("ok {number} {name} # SKIP {}", one_line(&why)));
            }
            Err(Failure::Fail(why)) => {
                failed += 1;
                for line in why.lines() {
                    emit(&format!("# {line}"));
                }
                emit(&format!("not ok {number} {name}"));
            }
        }
    }
    emit(&format!(
        "# Totals: pass:{passed} fail:{failed} skip:{skipped}"
    ));

    exit_status(passed, failed, skipped)
}

fn exit_status(passed: usize, failed: usize, skipped: usize) -> i32 {
    if failed > 0 {
        EXIT_FAIL
    } else if passed == 0 && skipped > 0 {
        EXIT_SKIP
    } else {
        EXIT_PASS
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn run_one(test: fn() -> Outcome, limit: Duration, emit: &mut dyn FnMut(&str)) -> Outcome {
    let child = Child::fork(test)?;
    let (status, outcome) = child.wait(limit, &mut |line| emit(&format!("# {line}")))?;
    outcome.unwrap_or_else(|| {
        let end = describe(status, limit);
        Err(Failure::Fail(format!("the test did not return: {end}")))
    })
}

#[cfg(test)]
mod tests;
