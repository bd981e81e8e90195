// SPDX-License-Identifier: GPL-2.0
//! Unit tests of the crate itself; they run on the build machine.

use std::fs;
use std::io;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use std::time::Instant;

use crate::Outcome;
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

fn skips() -> Outcome {
    skip("needs a\nmachine")
}

fn fails() -> Outcome {
    let words = words("a b");
    check!(words.len() == 2);
    check!(words.len() == 3, "{} words", words.len());
    Ok(())
}

fn reason(why: &str) -> Outcome {
    fail(why)
}

fn system_error() -> Outcome {
    fs::read("/nonexistent/file")?;
    Ok(())
}

fn crashes() -> Outcome {
    // SAFETY: The signal kills the forked child only, which is the purpose.
    unsafe { libc::raise(libc::SIGKILL) };
    Ok(())
}

fn panics() -> Outcome {
    panic!("on purpose")
}

fn leaves_early() -> Outcome {
    // SAFETY: The call ends the forked child only.
    unsafe { libc::_exit(0) }
}

/// Prints without end.
fn chatters() -> Outcome {
    loop {
        io::stdout().write_all(b"still here\n")?;
        io::stdout().flush()?;
    }
}

/// Prints without println!, as the test harness would capture that.
fn prints() -> Outcome {
    io::stdout().write_all(b"first\nsecond")?;
    Ok(())
}

/// Ends while a child of its own holds the pipes open.
fn leaves_a_child() -> Outcome {
    // SAFETY: There is one thread, and the grandchild only sleeps.
    if unsafe { libc::fork() } == 0 {
        std::thread::sleep(Duration::from_secs(60));
    }
    Ok(())
}

#[test]
fn each_outcome_has_its_lines() {
    let start = Instant::now();
    let mut lines = Vec::new();
    let status = report(
        tests![
            passes,
            skips,
            prints,
            fails,
            two_lines = reason("two\nlines"),
            system_error,
            crashes,
            panics,
            leaves_early,
            chatters,
            leaves_a_child,
            long = reason(&"ä".repeat(10_000)),
            last = passes(),
        ],
        Duration::from_secs(1),
        &mut |line| lines.push(line.to_string()),
    );
    assert!(start.elapsed() < Duration::from_secs(20));
    assert_eq!(status, 1);
    assert_eq!(
        lines[..7],
        [
            "KTAP version 1",
            "1..13",
            "ok 1 passes",
            "ok 2 skips # SKIP needs a machine",
            "# first",
            "# second",
            "ok 3 prints",
        ]
    );
    assert!(
        lines[7].contains("tests.rs:") && lines[7].ends_with(": 2 words"),
        "{}",
        lines[7]
    );
    assert_eq!(lines[8], "not ok 4 fails");
    assert!(
        lines[9].starts_with("# ") && lines[9].ends_with(": two"),
        "{}",
        lines[9]
    );
    assert_eq!(lines[10..12], ["# lines", "not ok 5 two_lines"]);
    assert!(lines[12].contains("tests.rs:"), "{}", lines[12]);
    for line in [
        "# the test did not return: signal: 9 (SIGKILL)",
        "not ok 7 crashes",
        "not ok 8 panics",
        "# the test did not return: exit status: 0",
        "not ok 9 leaves_early",
        "# the test did not return: no end after 1 s, killed",
        "not ok 10 chatters",
        "ok 11 leaves_a_child",
        "not ok 12 long",
        "ok 13 last",
        "# Totals: pass:4 fail:8 skip:1",
    ] {
        assert!(lines.contains(&line.to_string()), "{line}: {lines:#?}");
    }
}

#[test]
fn all_skipped_is_status_4() {
    let status = |tests: &[_]| report(tests, Duration::from_secs(30), &mut |_| {});
    assert_eq!(status(tests![first: skips; passes, fails]), 4);
    assert_eq!(status(tests![first: passes; skips, passes]), 0);
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
    let parse = |text: &str| parse(&words(text), &known, Duration::from_secs(30));
    assert_eq!(parse(""), Ok(run("one two", 30)));
    assert_eq!(parse("--timeout 5 two"), Ok(run("two", 5)));
    assert_eq!(parse("--list"), Ok(Request::List));
    for wrong in ["three", "--timeout", "--timeout x", "--timeout 0", "--what"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
    assert_eq!(
        limit_from_env("KTAP_TEST_OF_LIMITS", 7),
        Ok(Duration::from_secs(7))
    );
}

#[test]
fn runner_nests_and_counts() {
    let folder = std::env::temp_dir().join(format!("ktap-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    for (program, text) in [
        (
            "good",
            "#!/bin/sh\necho KTAP version 1; echo 1..1; echo ok 1 x\n",
        ),
        ("skips", "#!/bin/sh\nexit 4\n"),
        ("bad", "#!/bin/sh\necho why >&2; exit 1\n"),
        ("slow", "#!/bin/sh\nsleep 60\n"),
        ("shared", "#!/no/loader\n"),
    ] {
        let path = folder.join(program);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut lines = Vec::new();
    let mut run = |programs: &str| {
        lines.clear();
        let programs = words(programs);
        let mut emit = |line: &str| lines.push(line.to_string());
        let status = run_programs(&folder, &programs, Duration::from_secs(1), &mut emit);
        (status, lines.clone())
    };
    assert_eq!(run("good skips").0, 0);
    assert_eq!(run("skips").0, 4);
    let (status, lines) = run("good skips bad slow missing shared");
    assert_eq!(status, 1);
    assert_eq!(
        lines[2..7],
        [
            "# Subtest: good",
            "  KTAP version 1",
            "  1..1",
            "  ok 1 x",
            "ok 1 good"
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
    fs::remove_dir_all(&folder).unwrap();
}
