// SPDX-License-Identifier: GPL-2.0
//! An EBB event with an attribute that makes no sense for it is refused with
//! EINVAL.
//!
//! Each refusal has two controls: the same request without the fault opens, and
//! the fault alone, on an event that is not EBB, opens too. So the refusal is of
//! the combination.

use ebb::Attr;
use ebb::Event;
use ebb::config;
use ebb_selftests::session::CYCLES;
use ebb_selftests::session::require_ebb;
use ktap::OrFail;
use ktap::Outcome;

/// Fails unless the kernel said EINVAL.
#[track_caller]
fn expect_einval(result: perf_event::Result<Event>) -> Outcome {
    match result {
        Ok(_) => ktap::fail("the kernel accepted it"),
        Err(error) if error.errno() == Some(libc::EINVAL) => Ok(()),
        Err(error) => ktap::fail(format!("EINVAL expected: {error}")),
    }
}

/// A fault on an EBB event that is right otherwise.
#[track_caller]
fn refused(fault: fn(Attr) -> Attr) -> Outcome {
    let good = ebb::event(CYCLES);
    good.open().or_fail("EBB event without the fault")?;
    let plain = Attr::raw(CYCLES).user_only().pinned(true).exclusive(true);
    fault(plain).open().or_fail("fault without EBB")?;
    expect_einval(fault(good.clone()).open())?;
    good.open().or_fail("EBB event after the refusal")?;
    Ok(())
}

fn cpu_attached() -> Outcome {
    let on_cpu = ebb::event(CYCLES).cpu(0);
    on_cpu.open().or_fail("EBB event of a thread on a CPU")?;
    refused(|event| event.pid(-1).cpu(0))
}

fn not_pinned() -> Outcome {
    refused(|event| event.pinned(false))
}

fn not_exclusive() -> Outcome {
    refused(|event| event.exclusive(false))
}

fn freq() -> Outcome {
    refused(|event| event.freq(true))
}

fn inherit() -> Outcome {
    refused(|event| event.inherit(true))
}

fn sample_period() -> Outcome {
    refused(|event| event.sample_period(1_000_000))
}

fn sample_type() -> Outcome {
    // PERF_SAMPLE_IP
    refused(|event| event.sample_type(1))
}

fn enable_on_exec() -> Outcome {
    refused(|event| event.enable_on_exec(true))
}

fn no_pmc() -> Outcome {
    let without_pmc = CYCLES & 0xffff;
    Attr::raw(without_pmc)
        .user_only()
        .open()
        .or_fail("code without a counter, not EBB")?;
    ebb::event(CYCLES).open().or_fail("code with one")?;
    expect_einval(ebb::event(without_pmc).open())
}

fn bhrb_without_ebb() -> Outcome {
    ebb::event(CYCLES | config::bhrb(0))
        .open()
        .or_fail("EBB with BHRB")?;
    Attr::raw(CYCLES).user_only().open().or_fail("neither")?;
    expect_einval(Attr::raw(CYCLES | config::BHRB).user_only().open())
}

fn member_not_ebb() -> Outcome {
    let leader = ebb::event(CYCLES).open().or_fail("leader")?;
    ebb::member(0x2001e)
        .open_with(&leader)
        .or_fail("member with EBB")?;
    let member = Attr::raw(0x2001e).user_only().disabled(false);
    expect_einval(member.open_with(&leader))
}

fn leader_not_ebb() -> Outcome {
    let leader = Attr::raw(CYCLES)
        .user_only()
        .pinned(true)
        .exclusive(true)
        .open()
        .or_fail("leader")?;
    Attr::raw(0x2001e)
        .user_only()
        .disabled(false)
        .open_with(&leader)
        .or_fail("member without EBB")?;
    expect_einval(ebb::member(0x2001e).open_with(&leader))
}

fn member_with_sample_period() -> Outcome {
    let leader = ebb::event(CYCLES).open().or_fail("leader")?;
    let member = ebb::member(0x2001e);
    member.open_with(&leader).or_fail("member")?;
    expect_einval(member.sample_period(1_000_000).open_with(&leader))
}

ktap::main! {
    first: require_ebb;
    cpu_attached, not_pinned, not_exclusive, freq, inherit, sample_period, sample_type,
    enable_on_exec, no_pmc, bhrb_without_ebb, member_not_ebb, leader_not_ebb,
    member_with_sample_period,
}
