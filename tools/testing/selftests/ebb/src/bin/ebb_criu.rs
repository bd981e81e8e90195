// SPDX-License-Identifier: GPL-2.0
//! CRIU, which writes processes to files and restores them. It refuses a process with an event, but
//! by then it has stopped it by ptrace and run code of its own in it, which EBBs may interrupt.
//! After that the process continues. A process whose session is closed can be restored, without EBB
//! state, and takes EBBs again.
//!
//! Needs the program criu (`scripts/vm run --kernel debian --packages criu`), and `setsid` where no
//! shell has made a session: CRIU requires that the process is in one.

use ebb::Pmc;
use ebb::Save;
use ebb::Session;
use ebb::reg::Mmcr2;
use ebb_selftests::session;
use ebb_selftests::tracee;
use ebb_selftests::tracee::PERIOD;
use ebb_selftests::tracee::Tracee;
use ebb_selftests::trap;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use ktap::process;
use ktap::process::Peer;
use pmu_selftests::expect_within;
use pmu_selftests::work;
use std::fs;
use std::path::Path;
use std::process::Command;

const TAG: Mmcr2 = Mmcr2::freeze_problem(Pmc::Pmc3);
/// Instructions between two looks for a message of the parent.
const PIECE: u64 = 100_000;

/// File that exists when the process may continue, and file for its outcome. A restored process is
/// not connected to the pipes of the test.
const GO: &str = "go";
const OUTCOME: &str = "outcome";

/// Skips the test if the kernel offers no EBB. Sets up the network, which CRIU always tries, and an
/// empty folder for CRIU's files.
fn prepare() -> Outcome {
    session::require_ebb()?;
    Command::new("ifconfig").args(["lo", "up"]).status()?;
    let folder = std::env::temp_dir().join("ebb_criu");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder)?;
    Ok(std::env::set_current_dir(&folder)?)
}

/// Runs CRIU. Returns whether it succeeded, and the errors in its log.
fn criu(action: &str, options: &[&str]) -> Result<(bool, String), Failure> {
    let mut command = Command::new("criu");
    command.args([action, "-v4", "--shell-job", "-o", "log"]);
    let succeeded = command.args(options).status()?.success();
    let log = fs::read_to_string("log")?;
    let errors: Vec<&str> = log.lines().filter(|line| line.contains("Error")).collect();
    Ok((succeeded, errors.join("\n")))
}

/// Writes the process to files, which ends it, unless CRIU refuses it.
fn dump(peer: &Peer) -> Result<(bool, String), Failure> {
    criu("dump", &["-t", &peer.pid().to_string()])
}

/// Fails unless CRIU refuses the process because of an event.
fn check_refused(peer: &Peer) -> Outcome {
    let (dumped, errors) = dump(peer)?;
    check!(!dumped && errors.contains("[perf_event]"), "{errors}");
    Ok(())
}

fn with_ebbs() -> Outcome {
    let entry = session::handler_address()?;
    let peer = tracee::busy_peer(TAG)?;
    for _ in 0..3 {
        check_refused(&peer)?;
        let tracee = Tracee::attach(peer.pid())?;
        tracee.ebb()?.check_own(entry)?;
        tracee.pmu()?.check_own(TAG)?;
        tracee.detach()?;
    }
    peer.tell_and_join()
}

/// Also passes under the built-in driver.
fn with_a_counting_event() -> Outcome {
    let mut peer = Peer::spawn(|parent| {
        let event = perf_event::Attr::instructions().enabled().open()?;
        parent.tell()?;
        let mut done = 0;
        while !parent.is_told() {
            done += work::run(PIECE);
        }
        let count = event.read()?;
        check!(count.value >= done, "{count:?} of {done}");
        check!(count.running == count.enabled, "{count:?}");
        let done = work::run(100 * PIECE);
        let more = event.read()?.value - count.value;
        expect_within("after CRIU", more, done..done * 6 / 5)
    })?;
    peer.listen()?;
    check_refused(&peer)?;
    peer.tell_and_join()
}

/// Takes EBBs in a session, then closes it.
fn take_ebbs() -> Outcome {
    let session = Session::open("cycles", PERIOD.into())?;
    // SAFETY: The handler does nothing.
    unsafe { session.start(Save::Full, session::count_only)? };
    session::wait_for(20, PERIOD)?;
    session.close();
    check!(ebb::spurious() == 0, "{} spurious EBBs", ebb::spurious());
    check!(trap::traps(trap::write_mmcr0)?, "MMCR0 is writable");
    Ok(())
}

fn restored_after_close() -> Outcome {
    let mut peer = Peer::spawn(|parent| {
        take_ebbs()?;
        parent.tell()?;
        while !Path::new(GO).exists() {
            process::give_way();
        }
        let registers = session::ebb_registers();
        let outcome = format!("{registers:x?} {:?}", take_ebbs());
        Ok(fs::write(OUTCOME, outcome)?)
    })?;
    peer.listen()?;
    let (dumped, errors) = dump(&peer)?;
    check!(dumped, "{errors}");
    peer.wait()?;
    fs::write(GO, "")?;
    let (restored, errors) = criu("restore", &["--restore-detached"])?;
    check!(restored, "{errors}");
    let outcome = loop {
        match fs::read_to_string(OUTCOME) {
            Ok(text) if !text.is_empty() => break text,
            _ => process::give_way(),
        }
    };
    check!(outcome == "[0, 0, 0] Ok(())", "{outcome}");
    Ok(())
}

ktap::main! {
    first: prepare;
    with_ebbs, with_a_counting_event, restored_after_close,
}
