// SPDX-License-Identifier: GPL-2.0
//! Programs that confine themselves with seccomp. EBBs need no system call, so they continue under
//! a filter that kills at the first one. If a filter forbids perf_event_open, as in containers, the
//! error names the filter.

use ebb::Event;
use ebb_selftests::session;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use ktap::process::Link;
use ktap::process::Peer;
use std::os::unix::process::ExitStatusExt;

const PERIOD: u32 = 5000;
const EBBS: u64 = 20;

/// Operations of a filter (linux/filter.h): load the word at an offset, compare it with a constant,
/// return.
const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
/// Offset of the system call's number in `struct seccomp_data`.
const NUMBER: u32 = 0;

fn statement(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

/// Skips the test if the kernel has no EBB or no seccomp.
fn require_both() -> Outcome {
    session::require_ebb()?;
    // SAFETY: The call passes no pointer.
    match unsafe { libc::prctl(libc::PR_GET_SECCOMP) } {
        0 => Ok(()),
        _ => ktap::skip("the kernel has no seccomp"),
    }
}

/// Installs a filter, irreversibly: system calls of `numbers` end with the action `listed`, others
/// with `other`.
fn confine(numbers: &[libc::c_long], listed: u32, other: u32) -> Outcome {
    let mut filter = vec![statement(LOAD, NUMBER)];
    for &number in numbers {
        filter.push(libc::sock_filter {
            jf: 1,
            // CAST: The numbers of system calls are below 2^16.
            ..statement(IF_EQUAL, number as u32)
        });
        filter.push(statement(RETURN, listed));
    }
    filter.push(statement(RETURN, other));
    let program = libc::sock_fprog {
        // CAST: A filter here has less than ten instructions.
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: The filter lives through the calls.
    let status = unsafe {
        ktap::os_result(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program)
    };
    ktap::os_result(status)?;
    Ok(())
}

/// Starts EBBs, then forbids all system calls except those that report an outcome.
fn confined() -> Result<Event, Failure> {
    let event = session::cycles(PERIOD)?;
    let needed = [libc::SYS_write, libc::SYS_exit_group];
    confine(
        &needed,
        libc::SECCOMP_RET_ALLOW,
        libc::SECCOMP_RET_KILL_PROCESS,
    )?;
    Ok(event)
}

fn more_ebbs() -> Outcome {
    session::wait_for(ebb::count() + EBBS, PERIOD)
}

fn without_system_calls() -> Outcome {
    let child = Peer::spawn(|_| {
        let event = confined()?;
        more_ebbs()?;
        // A close would be a system call.
        ebb::disable();
        std::mem::forget(event);
        check!(ebb::spurious() == 0, "{} spurious EBBs", ebb::spurious());
        Ok(())
    })?;
    child.join()
}

/// The filter does kill: this is a control of the test above.
fn a_system_call_kills() -> Outcome {
    let mut child = Peer::spawn(|_| {
        let event = confined()?;
        session::end(event)
    })?;
    let status = child.wait()?;
    check!(status.signal() == Some(libc::SIGSYS), "{status}");
    Ok(())
}

/// EBBs continue in a task whose filter runs at each of its system calls.
fn filter_that_allows() -> Outcome {
    let child = Peer::spawn(|_| {
        let event = session::cycles(PERIOD)?;
        confine(&[], libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_ALLOW)?;
        for _ in 0..EBBS {
            ktap::process::give_way();
            session::wait_for(ebb::count() + 1, PERIOD)?;
        }
        session::end(event)
    })?;
    child.join()
}

/// Children inherit the filter, and get no EBBs.
fn inherited() -> Outcome {
    let child = Peer::spawn(|_| {
        let event = session::cycles(PERIOD)?;
        confine(&[], libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_ALLOW)?;
        let grandchild = Peer::spawn(|_: &mut Link| session::expect_none(10 * u64::from(PERIOD)))?;
        grandchild.join()?;
        more_ebbs()?;
        session::end(event)
    })?;
    child.join()
}

fn perf_event_open_is_forbidden() -> Outcome {
    let child = Peer::spawn(|_| {
        // CAST: EPERM is 1.
        let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        confine(
            &[libc::SYS_perf_event_open],
            refuse,
            libc::SECCOMP_RET_ALLOW,
        )?;
        let Err(error) = ebb::Session::open("cycles", PERIOD.into()) else {
            return ktap::fail("the event was opened");
        };
        let text = error.to_string();
        check!(text.contains("seccomp filter"), "{text}");
        Ok(())
    })?;
    child.join()
}

ktap::main! {
    first: require_both;
    without_system_calls, a_system_call_kills, filter_that_allows, inherited,
    perf_event_open_is_forbidden,
}
