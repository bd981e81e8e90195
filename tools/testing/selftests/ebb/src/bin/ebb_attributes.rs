// SPDX-License-Identifier: GPL-2.0
//! Requests for an EBB event with an attribute that contradicts EBB are refused with EINVAL.
//!
//! Each refusal has two controls: the same request without the fault opens, and the fault alone, on
//! an event that is not EBB, opens too. So the kernel refuses the combination.

use ebb::Attr;
use ebb::Event;
use ebb::config;
use ebb::config::Ifm;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ktap::Outcome;
use ktap::check;
use perf_event::sys::PERF_COUNT_SW_TASK_CLOCK;
use pmu_selftests::errno_of;

/// Code of cycles on PMC2, for members.
const MEMBER: u64 = 0x2001e;

/// Fails unless the kernel returned EINVAL.
#[track_caller]
fn expect_einval(result: perf_event::Result<Event>) -> Outcome {
    let errno = errno_of(result);
    check!(errno == libc::EINVAL, "errno {errno}, not EINVAL");
    Ok(())
}

/// Returns a request that could lead an EBB group, except that it is not EBB.
fn plain() -> Attr {
    Attr::raw(CYCLES).user_only().pinned(true).exclusive(true)
}

/// Returns a request for a member that is not EBB.
fn plain_member() -> Attr {
    Attr::raw(MEMBER).user_only()
}

/// Checks that a fault is refused on an EBB event that is otherwise valid.
#[track_caller]
fn refused(fault: fn(Attr) -> Attr) -> Outcome {
    let good = ebb::event(CYCLES);
    good.open()?;
    fault(plain()).open()?;
    expect_einval(fault(good.clone()).open())?;
    good.open()?;
    Ok(())
}

fn cpu_attached() -> Outcome {
    ebb::event(CYCLES).cpu(0).open()?;
    refused(|event| event.on_cpu(0))
}

/// Checks that a fault in the event code is refused. `good` lacks the fault; `plain` has it without
/// EBB.
fn code_refused(good: Attr, plain: Attr, fault: Attr) -> Outcome {
    good.open()?;
    plain.user_only().open()?;
    expect_einval(fault.open())
}

fn no_pmc() -> Outcome {
    let code = CYCLES & 0xffff;
    code_refused(ebb::event(CYCLES), Attr::raw(code), ebb::event(code))
}

fn bhrb_without_ebb() -> Outcome {
    let fault = Attr::raw(CYCLES | config::BHRB).user_only();
    code_refused(
        ebb::event(CYCLES | config::bhrb(Ifm::All)),
        Attr::raw(CYCLES),
        fault,
    )
}

/// Checks that in the group of `leader` the member `good` opens and `fault` does not.
fn member_refused(leader: Attr, good: Attr, fault: Attr) -> Outcome {
    let leader = leader.open()?;
    good.open_with(&leader)?;
    expect_einval(fault.open_with(&leader))
}

/// Returns a software event of this task, which may lead events of any PMU.
fn software() -> Attr {
    Attr::software(PERF_COUNT_SW_TASK_CLOCK)
        .pinned(true)
        .exclusive(true)
}

ktap::main! {
    first: session::require_ebb;
    cpu_attached,
    not_pinned = refused(|event| event.pinned(false)),
    not_exclusive = refused(|event| event.exclusive(false)),
    freq = refused(|event| event.freq(true)),
    inherit = refused(|event| event.inherit(true)),
    sample_period = refused(|event| event.sample_period(1_000_000)),
    sample_type = refused(|event| event.sample_type(perf_event::sys::PERF_SAMPLE_IP.into())),
    enable_on_exec = refused(|event| event.enable_on_exec(true)),
    exclude_host = refused(|event| event.exclude_host(true)),
    no_pmc,
    bhrb_without_ebb,
    member_not_ebb =
        member_refused(ebb::event(CYCLES), ebb::member(MEMBER), plain_member()),
    leader_not_ebb = member_refused(plain(), plain_member(), ebb::member(MEMBER)),
    leader_software = member_refused(software(), plain_member(), ebb::member(MEMBER)),
    member_with_sample_period = member_refused(
        ebb::event(CYCLES), ebb::member(MEMBER), ebb::member(MEMBER).sample_period(1_000_000)),
    pinned_member =
        member_refused(ebb::event(CYCLES), ebb::member(MEMBER), ebb::member(MEMBER).pinned(true)),
    exclusive_member =
        member_refused(ebb::event(CYCLES), ebb::member(MEMBER), ebb::member(MEMBER).exclusive(true)),
}
