// SPDX-License-Identifier: GPL-2.0
//! Runs the test programs in the folder of the calling one and nests their KTAP output.
//!
//! ```text
//! run_x_selftests [--timeout SECONDS] [all | NAME...]
//! run_x_selftests --list
//! ```

use std::io;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::process::exit;
use std::time::Duration;

use crate::EXIT_PASS;
use crate::EXIT_SKIP;
use crate::EXIT_USAGE;
use crate::child::Child;
use crate::child::describe;
use crate::exit_status;
use crate::limit_from_env;
use crate::seconds;

/// Seconds that one program may take, unless `KTAP_PROGRAM_TIMEOUT` or `--timeout` sets another
/// limit.
const DEFAULT_LIMIT: u64 = 180;

/// Request that the arguments make.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Help,
    List,
    Run {
        programs: Vec<String>,
        limit: Duration,
    },
}

/// Implements `main` of a runner: reads the arguments, runs the programs, prints and exits.
///
/// Exit status: 0 passed, 1 a program failed, 4 every program was skipped, 2 wrong arguments.
pub fn main_with(programs: &[&str]) -> ! {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let request = limit_from_env("KTAP_PROGRAM_TIMEOUT", DEFAULT_LIMIT)
        .and_then(|limit| parse(&arguments, programs, limit));
    let status = match request {
        Err(why) => {
            eprintln!("{why} (--help shows the usage)");
            EXIT_USAGE
        }
        Ok(Request::Help) => {
            println!(
                "usage: [--timeout SECONDS] [all | NAME...]   run test programs (default: all)"
            );
            println!("       --list                               print their names");
            println!("exit: 0 passed, 1 failed, 2 usage, 4 all skipped");
            println!("KTAP_TIMEOUT: limit of a single test in seconds");
            println!("KTAP_PROGRAM_TIMEOUT: limit of a program without --timeout");
            0
        }
        Ok(Request::List) => {
            for program in programs {
                println!("{program}");
            }
            0
        }
        Ok(Request::Run { programs, limit }) => match own_folder() {
            Err(error) => {
                eprintln!("cannot find the folder of this program: {error}");
                EXIT_USAGE
            }
            Ok(folder) => run_programs(&folder, &programs, limit, &mut |line| {
                println!("{line}");
                // If the guest crashes, the lines before the crash must have reached the host.
                let _ = io::stdout().flush();
            }),
        },
    };
    exit(status)
}

fn own_folder() -> io::Result<std::path::PathBuf> {
    let mut path = std::env::current_exe()?;
    path.pop();
    Ok(path)
}

/// Reads the arguments; a program has the limit `limit` unless the arguments set another.
pub(crate) fn parse(
    arguments: &[String],
    known: &[&str],
    mut limit: Duration,
) -> Result<Request, String> {
    let mut programs = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-h" | "--help" => return Ok(Request::Help),
            "-l" | "--list" => return Ok(Request::List),
            "-t" | "--timeout" => {
                limit = arguments
                    .next()
                    .and_then(|text| seconds(text))
                    .ok_or("--timeout needs a number of seconds")?;
            }
            "all" => programs.extend(known.iter().map(|name| name.to_string())),
            name if known.contains(&name) => programs.push(name.to_string()),
            name => return Err(format!("no test program named '{name}'; see --list")),
        }
    }
    if programs.is_empty() {
        programs.extend(known.iter().map(|name| name.to_string()));
    }
    Ok(Request::Run { programs, limit })
}

/// Returns whether a program exists but the loader that it names does not.
fn lacks_loader(error: &io::Error, program: &Path) -> bool {
    error.kind() == io::ErrorKind::NotFound && program.is_file()
}

/// Runs each program, nests its output and returns the exit status.
pub(crate) fn run_programs(
    folder: &Path,
    programs: &[String],
    limit: Duration,
    emit: &mut dyn FnMut(&str),
) -> i32 {
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);

    emit("KTAP version 1");
    emit(&format!("1..{}", programs.len()));
    for (index, name) in programs.iter().enumerate() {
        let number = index + 1;
        emit(&format!("# Subtest: {name}"));
        let program = folder.join(name);
        let end = Child::spawn(Command::new(&program))
            .and_then(|child| child.wait(limit, &mut |line| emit(&format!("  {line}"))));
        let status = end.as_ref().ok().and_then(|(status, _)| *status);
        match status.and_then(|status| status.code()) {
            Some(EXIT_PASS) => {
                passed += 1;
                emit(&format!("ok {number} {name}"));
            }
            Some(EXIT_SKIP) => {
                skipped += 1;
                emit(&format!(
                    "ok {number} {name} # SKIP all its tests were skipped"
                ));
            }
            _ if end
                .as_ref()
                .is_err_and(|error| lacks_loader(error, &program)) =>
            {
                skipped += 1;
                emit(&format!(
                    "ok {number} {name} # SKIP it needs scripts/vm --libs"
                ));
            }
            _ => {
                failed += 1;
                let why = match end {
                    Ok((status, _)) => describe(status, limit),
                    Err(error) => format!("cannot run it: {error}"),
                };
                emit(&format!("# {name}: {why}"));
                emit(&format!("not ok {number} {name}"));
            }
        }
    }
    emit(&format!(
        "# Totals: pass:{passed} fail:{failed} skip:{skipped}"
    ));
    exit_status(passed, failed, skipped)
}
