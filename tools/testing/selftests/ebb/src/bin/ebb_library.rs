// SPDX-License-Identifier: GPL-2.0
//! What the library `ebb` does where a program could lose its EBBs, its life or those of another owner
//! of EBBHR: with a foreign owner, when the PMU goes away in the middle of a handler, and of BESCR's
//! other bits; and how it decodes branches. `ebb_session` has forks, `ebb_entry` and `ebb_nesting` jumps.

use ebb::EbbContext;
use ebb::Error;
use ebb::Owner;
use ebb::Pmc;
use ebb::Rearm;
use ebb::bhrb::Branch;
use ebb::bhrb::Branches;
use ebb::config::Ifm;
use ebb::pmc;
use ebb::reg::Bescr;
use ebb::reg::Mmcr2;
use ebb::spr;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ebb_selftests::tracee::Tracee;
use ktap::Outcome;
use ktap::check;
use ktap::process::Peer;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const PERIOD: u32 = 10_000;

/// Nobody's EBBHR is overwritten, nor enabled, nor taken away.
fn foreign_owner() -> Outcome {
    const OTHER: u64 = 0x0100_0000;
    let foreign = Err(Error::Foreign { ebbhr: OTHER });
    // SAFETY: GE stays off, so nothing branches to the address.
    unsafe { spr::write::<{ spr::EBBHR }>(OTHER) };
    check!(ebb::owner() == Owner::Foreign(OTHER), "{:?}", ebb::owner());
    // SAFETY: the handler does nothing.
    let installed = unsafe { ebb::install(session::count_only) };
    check!(installed == foreign, "install: {installed:?}");
    for (what, result) in [
        ("enable", ebb::enable()),
        ("inject", ebb::inject()),
        ("uninstall", ebb::uninstall()),
    ] {
        check!(result == foreign, "{what}: {result:?}");
    }
    let [bescr, ebbhr, _] = session::ebb_registers();
    check!(bescr == 0 && ebbhr == OTHER, "{bescr:#x}, {ebbhr:#x}");
    Ok(())
}

extern "C" fn uninstall(_: libc::c_int) {
    let _ = ebb::uninstall();
}

/// A signal's handler that uninstalls just before `install` writes EBBHR has it fail.
fn uninstalled_in_install() -> Outcome {
    // mtspr 804 of any register.
    const WRITES_EBBHR: u32 = 0x7c04_cba6;
    const ANY_REGISTER: u32 = 31 << 21;
    let mut child = Peer::spawn(|parent| {
        // SAFETY: the function is a signal's handler.
        unsafe { libc::signal(libc::SIGUSR1, uninstall as *const () as usize) };
        session::install(session::count_only)?;
        parent.tell()?;
        parent.listen()?;
        // SAFETY: the handler does nothing.
        let installed = unsafe { ebb::install(session::count_only) };
        check!(installed == Err(Error::NotInstalled), "{installed:?}");
        check!(ebb::owner() == Owner::Nobody, "{:?}", ebb::owner());
        let own = session::cycles(PERIOD)?;
        session::wait_for(20, PERIOD)?;
        session::end(own)
    })?;
    child.listen()?;
    let tracee = Tracee::attach(child.pid())?;
    let memory = tracee.memory()?;
    child.tell()?;
    while memory.word(tracee.nip()?)? & !ANY_REGISTER != WRITES_EBBHR {
        tracee.step()?;
    }
    tracee.go_on(libc::SIGUSR1)?;
    child.join()
}

/// BESCR\[EE\] (bit 30) is for events that are not the PMU's, TS (32-33) the state of a
/// transaction.
fn other_bits_of_bescr() -> Outcome {
    const EE: Bescr = Bescr(1 << 33);
    const TS: Bescr = Bescr(3 << 30);
    session::install(session::count_only)?;
    // No event, so no EBB, and no rfebb that looks at TS.
    // SAFETY: GE is off.
    unsafe { (EE | TS).write() };
    let kept = Bescr::read();
    if kept == Bescr(0) {
        return ktap::skip("this CPU's BESCR has neither EE nor TS");
    }
    ebb::enable()?;
    let on = Bescr::read();
    check!(on.has(kept | Bescr::GE | Bescr::PME), "enable: {on:?}");
    ebb::disable();
    check!(Bescr::read() == kept, "disable: {:?}", Bescr::read());

    // SAFETY: GE is off.
    unsafe { EE.write() };
    let event = session::cycles(PERIOD)?;
    session::wait_for(20, PERIOD)?;
    check!(Bescr::read().has(EE), "after EBBs: {:?}", Bescr::read());
    session::end(event)
}

/// What the handlers below act on.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);
static READ: AtomicU64 = AtomicU64::new(u64::MAX);

/// Uses the PMU as handlers do.
fn use_the_pmu(context: &mut EbbContext<'_>) {
    READ.store(context.value(Pmc::Pmc1).into(), Relaxed);
    Pmc::Pmc2.write(0);
    pmc::freeze();
    let _ = pmc::siar();
    let _ = pmc::bhrb_entry::<0>();
}

/// Takes the event off the PMU, as the kernel does with a group that has lost it.
fn lose_the_pmu(context: &mut EbbContext<'_>) {
    if context.number() == 3 {
        // SAFETY: an ioctl without a pointer (PERF_EVENT_IOC_DISABLE).
        unsafe { libc::ioctl(DESCRIPTOR.load(Relaxed), 0x2000_2401) };
        use_the_pmu(context);
    }
}

fn evicted_in_handler() -> Outcome {
    let event = session::prepare(CYCLES, lose_the_pmu)?;
    DESCRIPTOR.store(event.as_raw_fd(), Relaxed);
    ebb::start(Pmc::Pmc1, PERIOD.into())?;
    ebb::enable()?;
    pmc::unfreeze();
    session::wait_for(3, PERIOD)?;
    check!(ebb::evicted(), "nothing was noticed");
    check!(!ebb::evicted(), "noticed twice");
    let read = READ.load(Relaxed);
    check!(!session::isa_v31() || read == 0, "PMC1 was {read:#x}");
    session::expect_none(5 * u64::from(PERIOD))?;

    event.enable()?;
    event.check_scheduled()?;
    session::arm(PERIOD)?;
    session::wait_for(20, PERIOD)?;
    check!(!ebb::evicted(), "with the event there");
    session::end(event)
}

/// With EBBs off and no jump, `enable` leaves a negative counter alone: its EBB comes.
fn enable_without_jump() -> Outcome {
    let event = session::prepare(CYCLES, |context| context.rearm(Rearm::Stop))?;
    ebb::start(Pmc::Pmc1, 100)?;
    ebb::disable();
    pmc::unfreeze();
    session::work_for(50_000);
    ebb::enable()?;
    session::wait_for(1, PERIOD)?;
    session::end(event)
}

/// What `read` gives of a group is longer than of one event.
fn scheduled_with_grouped_leader() -> Outcome {
    let leader = ebb::event(CYCLES).grouped().open()?;
    let _member = ebb::member(ebb::config::INSTRUCTIONS_PMC2).open_with(&leader)?;
    leader.enable()?;
    check!(leader.is_scheduled()?);
    leader.disable()?;
    Ok(())
}

/// Filters and counters that do not exist cannot be asked for.
fn no_silent_masks() -> Outcome {
    check!(Ifm::new(3) == Some(Ifm::Conditional));
    check!(Ifm::new(4).is_none() && Pmc::new(0).is_none() && Pmc::new(7).is_none());
    let all = Pmc::ALL
        .into_iter()
        .fold(Mmcr2(0), |all, pmc| all | Mmcr2::freeze_problem(pmc));
    check!(all == Mmcr2::USER, "{all:?}");
    Ok(())
}

/// Entries of the BHRB as the ISA has them: bit 62 marks the target of the branch in the next, bit
/// 63 what was mispredicted.
fn decoded_branches() -> Outcome {
    let branch = |from, to, mispredicted| Branch {
        from,
        to,
        mispredicted,
    };
    let cases: [(&[u64], &[Branch]); 9] = [
        (
            &[0x1000, 0x2001, 0, 0x3000],
            &[branch(0x1000, None, false), branch(0x2000, None, true)],
        ),
        (&[0x3002, 0x1000], &[branch(0x1000, Some(0x3000), false)]),
        // Its target, its direction.
        (&[0x3003, 0x1000], &[branch(0x1000, Some(0x3000), true)]),
        (&[0x3002, 0x1001], &[branch(0x1000, Some(0x3000), true)]),
        // The buffer has lost the branch, or ends.
        (
            &[0x3003, 0x4002, 0x1000],
            &[
                branch(0, Some(0x3000), true),
                branch(0x1000, Some(0x4000), false),
            ],
        ),
        (&[0x3002], &[branch(0, Some(0x3000), false)]),
        (&[0x3002, 0, 0x1000], &[branch(0, Some(0x3000), false)]),
        // No address, no branch.
        (&[1, 2, 3, 0x1000], &[branch(0x1000, None, false)]),
        (
            &[0x3002, 1, 0x1000],
            &[branch(0, Some(0x3000), false), branch(0x1000, None, false)],
        ),
    ];
    for (entries, branches) in cases {
        let decoded: Vec<Branch> = Branches::decode(entries).collect();
        check!(decoded == branches, "{entries:x?}: {decoded:x?}");
    }
    Ok(())
}

ktap::main! {
    first: session::require_ebb;
    foreign_owner, uninstalled_in_install, other_bits_of_bescr, evicted_in_handler, enable_without_jump,
    scheduled_with_grouped_leader, no_silent_masks, decoded_branches,
}
