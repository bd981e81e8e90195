// SPDX-License-Identifier: GPL-2.0
//! Unit tests of the crate itself; they run on the build machine.

use std::fs;
use std::io;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;
use std::time::Instant;

use crate::Outcome;
use crate::Test;
use crate::fail;
use crate::limit_from_env;
use crate::report;
use crate::runner::Request;
use crate::runner::parse;
use crate::runner::run_programs;
use crate::skip;

fn passes() -> Outcome {
    Ok(())
}

fn fails() -> Outcome {
    let words = words("a b");
    check!(words.len() == 2);
    check!(words.len() == 3, "{} words", words.len());
    Ok(())
}

fn fails_plainly() -> Outcome {
    fail("two\nlines")
}

fn skips() -> Outcome {
    skip("needs a\nmachine")
}

fn system_error() -> Outcome {
    fs::read("/nonexistent/file")?;
    Ok(())
}

fn crashes() -> Outcome {
    // SAFETY: raising a signal in the forked child is the point.
    unsafe { libc::raise(libc::SIGKILL) };
    Ok(())
}

fn panics() -> Outcome {
    panic!("on purpose")
}

fn leaves_early() -> Outcome {
    // SAFETY: ends the forked child only.
    unsafe { libc::_exit(0) }
}

fn hangs() -> Outcome {
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn chatters_for_ever() -> Outcome {
    loop {
        io::stdout().write_all(b"still here\n")?;
        io::stdout().flush()?;
    }
}

fn prints() -> Outcome {
    // Not println!: the test harness would catch that.
    io::stdout().write_all(b"first\nsecond")?;
    Ok(())
}

fn leaves_a_child() -> Outcome {
    // SAFETY: the grandchild only sleeps, holding the pipes open.
    if unsafe { libc::fork() } == 0 {
        std::thread::sleep(Duration::from_secs(60));
    }
    Ok(())
}

fn long_reason() -> Outcome {
    fail("ä".repeat(10_000))
}

fn run(tests: &[Test<'_>], limit: Duration) -> (Vec<String>, i32) {
    let mut lines = Vec::new();
    let status = report(tests, limit, &mut |line| lines.push(line.to_string()));
    (lines, status)
}

const LONG: Duration = Duration::from_secs(30);

#[test]
fn plan_and_results() {
    let (lines, status) = run(&[("a", passes), ("b", skips), ("c", passes)], LONG);
    assert_eq!(
        lines,
        [
            "KTAP version 1",
            "1..3",
            "ok 1 a",
            "ok 2 b # SKIP needs a machine",
            "ok 3 c",
            "# Totals: pass:2 fail:0 skip:1",
        ]
    );
    assert_eq!(status, 0);
}

fn needs() -> Outcome {
    skip("first")
}

#[test]
fn rows_have_the_names_of_their_tests() {
    let (lines, _) = run(tests![passes, fine = passes(), skips], LONG);
    assert_eq!(
        lines[2..5],
        [
            "ok 1 passes",
            "ok 2 fine",
            "ok 3 skips # SKIP needs a machine"
        ]
    );
    let (lines, status) = run(tests![first: needs; passes, wrong = fails()], LONG);
    assert_eq!(
        lines[2..4],
        ["ok 1 passes # SKIP first", "ok 2 wrong # SKIP first"]
    );
    assert_eq!(status, 4);
    let (lines, _) = run(tests![first: passes; skips, fine = passes()], LONG);
    assert_eq!(lines[3], "ok 2 fine");
}

#[test]
fn failure_names_file_and_line() {
    let (lines, status) = run(
        &[("a", fails), ("b", fails_plainly), ("c", system_error)],
        LONG,
    );
    assert!(lines[2].starts_with("# ") && lines[2].ends_with("2 words"));
    assert!(lines[2].contains("tests.rs:"), "{}", lines[2]);
    assert_eq!(lines[3], "not ok 1 a");
    assert!(lines[4].ends_with(": two"));
    assert_eq!(lines[5], "# lines");
    assert_eq!(lines[6], "not ok 2 b");
    assert!(lines[7].contains("tests.rs:"), "{}", lines[7]);
    assert_eq!(lines[8], "not ok 3 c");
    assert_eq!(status, 1);
}

#[test]
fn all_skipped_is_status_4() {
    assert_eq!(run(&[("a", skips), ("b", skips)], LONG).1, 4);
    assert_eq!(run(&[("a", skips), ("b", fails)], LONG).1, 1);
}

#[test]
fn crash_panic_and_early_exit_are_failures() {
    let (lines, status) = run(
        &[
            ("a", crashes),
            ("b", leaves_early),
            ("c", panics),
            ("d", passes),
        ],
        LONG,
    );
    assert!(lines.contains(&"# the test did not return: signal: 9 (SIGKILL)".to_string()));
    assert!(
        lines
            .iter()
            .any(|line| line.contains("did not return: exit status: 0"))
    );
    assert!(lines.iter().any(|line| line.contains("signal: 6")));
    for line in ["not ok 1 a", "not ok 2 b", "not ok 3 c", "ok 4 d"] {
        assert!(lines.contains(&line.to_string()), "{line}: {lines:#?}");
    }
    assert_eq!(status, 1);
}

#[test]
fn hang_ends_at_the_limit() {
    let start = Instant::now();
    let (lines, status) = run(
        &[("a", hangs), ("b", chatters_for_ever), ("c", passes)],
        Duration::from_secs(1),
    );
    assert!(start.elapsed() < Duration::from_secs(20));
    assert!(lines.contains(&"# the test did not return: no end after 1 s, killed".to_string()));
    assert!(lines.contains(&"not ok 1 a".to_string()));
    assert!(lines.contains(&"not ok 2 b".to_string()));
    assert!(lines.contains(&"ok 3 c".to_string()));
    assert_eq!(status, 1);
}

#[test]
fn output_becomes_diagnostics() {
    let (lines, status) = run(&[("a", prints)], LONG);
    assert_eq!(lines[2..5], ["# first", "# second", "ok 1 a"]);
    assert_eq!(status, 0);
}

#[test]
fn a_forgotten_child_holds_nothing_up() {
    let start = Instant::now();
    assert_eq!(run(&[("a", leaves_a_child)], LONG).1, 0);
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_long_reason_is_cut_not_lost() {
    let (lines, _) = run(&[("a", long_reason)], LONG);
    assert!(lines[2].contains("ä"));
    assert_eq!(lines[3], "not ok 1 a");
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_string).collect()
}

#[test]
fn runner_arguments() {
    let known = ["one", "two"];
    let run = |names: &str, seconds| Request::Run {
        programs: words(names),
        limit: Duration::from_secs(seconds),
    };
    let parse = |text: &str| parse(&words(text), &known, LONG);
    assert_eq!(parse(""), Ok(run("one two", 30)));
    assert_eq!(parse("all"), Ok(run("one two", 30)));
    assert_eq!(parse("--timeout 5 two"), Ok(run("two", 5)));
    assert_eq!(parse("--list"), Ok(Request::List));
    assert_eq!(parse("--help"), Ok(Request::Help));
    for wrong in ["three", "--timeout", "--timeout x", "--timeout 0", "--what"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn limits_of_the_environment() {
    const NAME: &str = "KTAP_TEST_OF_LIMITS";
    // SAFETY: no other test reads this variable, or any of the environment's by C.
    let set = |text: &str| unsafe { std::env::set_var(NAME, text) };
    let limit = || limit_from_env(NAME, 7);
    assert_eq!(limit(), Ok(Duration::from_secs(7)));
    set("1200");
    assert_eq!(limit(), Ok(Duration::from_secs(1200)));
    for wrong in ["", "0", "-1", "many", "5s"] {
        set(wrong);
        assert!(limit().is_err_and(|why| why.contains(NAME)), "{wrong}");
    }
}

/// A folder of small shell programs, removed at the end of the test.
struct Programs(PathBuf);

impl Programs {
    fn new(name: &str, programs: &[(&str, &str)]) -> Programs {
        let folder = std::env::temp_dir().join(format!("ktap-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (program, body) in programs {
            let path = folder.join(program);
            fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Programs(folder)
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn runner_nests_and_counts() {
    let programs = Programs::new(
        "nest",
        &[
            ("good", "echo KTAP version 1; echo 1..1; echo ok 1 x"),
            ("skips", "exit 4"),
            ("bad", "echo why >&2; exit 1"),
            ("slow", "sleep 60"),
        ],
    );
    let shared = programs.0.join("shared");
    fs::write(&shared, "#!/no/loader\n").unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o755)).unwrap();
    let mut lines = Vec::new();
    let status = run_programs(
        &programs.0,
        &words("good skips bad slow missing shared"),
        Duration::from_secs(1),
        &mut |line| lines.push(line.to_string()),
    );
    assert_eq!(
        lines[..7],
        [
            "KTAP version 1",
            "1..6",
            "# Subtest: good",
            "  KTAP version 1",
            "  1..1",
            "  ok 1 x",
            "ok 1 good",
        ]
    );
    for line in [
        "ok 2 skips # SKIP all its tests were skipped",
        "  why",
        "# bad: exit status: 1",
        "not ok 3 bad",
        "# slow: no end after 1 s, killed",
        "not ok 4 slow",
        "not ok 5 missing",
        "ok 6 shared # SKIP it needs scripts/vm --libs",
        "# Totals: pass:1 fail:3 skip:2",
    ] {
        assert!(lines.contains(&line.to_string()), "{line}: {lines:#?}");
    }
    assert_eq!(status, 1);
}

#[test]
fn runner_status_when_all_pass_or_skip() {
    let programs = Programs::new("status", &[("good", "exit 0"), ("skips", "exit 4")]);
    let run = |names| run_programs(&programs.0, &words(names), LONG, &mut |_| {});
    assert_eq!(run("good skips"), 0);
    assert_eq!(run("skips"), 4);
}
