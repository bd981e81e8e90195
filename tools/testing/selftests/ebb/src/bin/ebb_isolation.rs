// SPDX-License-Identifier: GPL-2.0
//! A task without an EBB event cannot read a register of the PMU: not before or after a program
//! with six EBB events, and not with counting events of its own or of the CPU.
//! Where the built-in driver keeps the PMU, the task may read registers, but it finds nothing of a
//! program with EBB events.

use ebb::Event;
use ebb::Pmc;
use ebb::reg::Mmcr2;
use ebb::spr;
use ebb_selftests::session;
use ebb_selftests::trap::traps;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use ktap::process::Peer;
use ktap::process::give_way;
use perf_event::Attr;
use pmu_selftests::machine;
use std::hint::black_box;

/// Number of turns that two programs take.
const TURNS: u32 = 50;

/// Codes of cycles and instructions, one for each counter.
const CODES: [u64; 6] = [0x1001e, 0x2001e, 0x3001e, 0x4001e, 0x500fa, 0x600f4];

/// A register with its number in problem state.
struct Register {
    name: &'static str,
    read: fn(),
    /// Value of the register.
    value: fn() -> u64,
    /// Whether QEMU lets programs read it without checking MMCR0\[PMCC\].
    never_traps_in_qemu: bool,
}

macro_rules! registers {
    ($never_traps_in_qemu:literal: $($name:ident),*) => {
        [$(Register {
            name: stringify!($name),
            read: || {
                // SAFETY: A read of it has no effect.
                black_box(unsafe { spr::read::<{ spr::$name }>() });
            },
            // SAFETY: A read of it has no effect.
            value: || unsafe { spr::read::<{ spr::$name }>() },
            never_traps_in_qemu: $never_traps_in_qemu,
        }),*]
    };
}

/// Registers that programs with an EBB event may write.
const WRITABLE: [Register; 8] = registers!(false: PMC1, PMC2, PMC3, PMC4, PMC5, PMC6, MMCR0, MMCR2);

/// Registers that programs with an EBB event may only read.
const READ_ONLY: [Register; 5] = registers!(true: MMCRA, MMCR1, SIER, SIAR, SDAR);

/// More registers that such programs may only read, from ISA v3.1 on.
const READ_ONLY_V31: [Register; 3] = registers!(true: MMCR3, SIER2, SIER3);

/// Least value that the program with EBB events leaves in its counters.
const LEFT: u32 = 0x1234_5678;

/// Returns whether a value may be one that [`fill_registers`] left.
fn is_left(register: &Register, value: u64) -> bool {
    match register.name {
        "MMCR0" => false,
        "MMCR2" => value & Mmcr2::USER.0 != 0,
        name if name.starts_with("PMC") => value >= LEFT.into(),
        _ => value != 0,
    }
}

/// Fails if this task can read one of the registers.
#[track_caller]
fn expect_closed(when: &str) -> Outcome {
    let v31 = if session::isa_v31() {
        READ_ONLY_V31.as_slice()
    } else {
        &[]
    };
    let emulated = machine::is_emulated()?;
    let is_shared = machine::is_pmu_shared();
    let mut readable = Vec::new();
    for register in WRITABLE.iter().chain(&READ_ONLY).chain(v31) {
        let open_in_qemu = emulated && register.never_traps_in_qemu;
        let is_open = !open_in_qemu && !traps(register.read)?;
        if is_open && (!is_shared || is_left(register, (register.value)())) {
            readable.push(register.name);
        }
    }
    check!(readable.is_empty(), "{when}: can read {readable:?}");
    Ok(())
}

fn without_events() -> Outcome {
    for cpu in cpu::online()? {
        cpu::pin_to(cpu)?;
        expect_closed(&format!("CPU {cpu}"))?;
    }
    Ok(())
}

/// Opens an event for each counter as a group, `leader` for the first.
fn open_six(leader: Attr, member: fn(u64) -> Attr) -> Result<Vec<Event>, Failure> {
    let leader = leader.open()?;
    let members = CODES[1..].iter();
    let members = members.map(|&code| member(code).enabled().open_with(&leader));
    let mut events = members.collect::<Result<Vec<_>, _>>()?;
    leader.enable()?;
    leader.check_scheduled()?;
    events.push(leader);
    Ok(events)
}

/// Writes each register that a program with six EBB events can write.
fn fill_registers() -> Outcome {
    let _events = open_six(ebb::event(CODES[0]), ebb::member)?;
    session::write_counters(LEFT);
    Mmcr2::USER.write();
    session::work_for(1000);
    // The task is switched out and in with its events before they are closed.
    give_way();
    check!(Pmc::Pmc1.read() >= LEFT);
    Ok(())
}

/// Runs `other` in another program on this CPU; this program checks its access while it runs, and
/// between its turns.
fn closed_beside(other: fn() -> Outcome) -> Outcome {
    cpu::pin()?;
    let mut peer = Peer::spawn(move |parent| {
        for _ in 0..TURNS {
            parent.listen()?;
            other()?;
            parent.tell()?;
        }
        Ok(())
    })?;
    for turn in 0..TURNS {
        peer.tell()?;
        // The other program gives way while it has its events, and after it has closed them.
        for _ in 0..3 {
            expect_closed(&format!("turn {turn}"))?;
            give_way();
        }
        peer.listen()?;
    }
    peer.join()
}

fn six_ebb_events_of_another() -> Outcome {
    closed_beside(fill_registers)
}

/// The task's own EBB events leave no access after they are closed.
fn after_own_ebb_events() -> Outcome {
    cpu::pin()?;
    for turn in 0..TURNS {
        fill_registers()?;
        expect_closed(&format!("turn {turn}"))?;
    }
    Ok(())
}

/// An EBB event gives access only while it is enabled.
fn own_disabled_ebb_event() -> Outcome {
    let event = ebb::event(CODES[0]).open()?;
    expect_closed("opened")?;
    event.enable()?;
    event.check_scheduled()?;
    event.disable()?;
    expect_closed("disabled by ioctl")?;
    event.enable()?;
    ebb::disable_all()?;
    expect_closed("disabled by prctl")
}

/// Events that only count give no access, running or not.
fn own_counting_events() -> Outcome {
    let events = open_six(Attr::raw(CODES[0]), Attr::raw)?;
    expect_closed("running")?;
    for event in &events {
        event.disable()?;
    }
    expect_closed("disabled")
}

fn six_counting_events_of_another() -> Outcome {
    closed_beside(|| {
        let _events = open_six(Attr::raw(CODES[0]), Attr::raw)?;
        session::work_for(1000);
        give_way();
        Ok(())
    })
}

/// The event is on the PMU while this task runs.
fn counting_event_of_the_cpu() -> Outcome {
    let cpu = cpu::pin()?;
    // CAST: The number of a CPU is far below 2^31.
    let event = Attr::raw(CODES[0]).pid(-1).cpu(cpu as libc::c_int);
    let event = session::schedule(&event)?;
    for turn in 0..TURNS {
        expect_closed(&format!("turn {turn}"))?;
        give_way();
    }
    check!(event.read()?.value > 0);
    Ok(())
}

ktap::main! {
    first: session::require_ebb;
    without_events, six_ebb_events_of_another, after_own_ebb_events, own_disabled_ebb_event,
    own_counting_events,
    six_counting_events_of_another, counting_event_of_the_cpu,
}
