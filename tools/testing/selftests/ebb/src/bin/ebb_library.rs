// SPDX-License-Identifier: GPL-2.0
//! Tests that the library `ebb` keeps the program alive and its EBBs working: when EBBHR has
//! another owner, when the PMU is lost in the middle of a handler, and when other bits of BESCR are
//! set. Also the decoding of branches. `ebb_session` tests forks, `ebb_entry` and `ebb_nesting`
//! jumps.

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

/// The library does not overwrite, enable or clear the EBBHR of another owner.
fn foreign_owner() -> Outcome {
    const OTHER: u64 = 0x0100_0000;
    let foreign = Err(Error::Foreign { ebbhr: OTHER });
    // SAFETY: GE stays off, so nothing branches to the address.
    unsafe { spr::write::<{ spr::EBBHR }>(OTHER) };
    check!(ebb::owner() == Owner::Foreign(OTHER), "{:?}", ebb::owner());
    // SAFETY: The handler does nothing.
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

/// If a signal's handler uninstalls just before `install` writes EBBHR, `install` fails.
fn uninstalled_in_install() -> Outcome {
    // The instruction mtspr 804, without its register field.
    const WRITES_EBBHR: u32 = 0x7c04_cba6;
    const ANY_REGISTER: u32 = 31 << 21;
    let mut child = Peer::spawn(|parent| {
        // SAFETY: The function has the signature of a signal's handler.
        unsafe { libc::signal(libc::SIGUSR1, uninstall as *const () as usize) };
        session::install(session::count_only)?;
        parent.tell()?;
        parent.listen()?;
        // SAFETY: The handler does nothing.
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

/// BESCR\[EE\] (bit 30) enables events that do not come from the PMU; TS (bits 32-33) is the state
/// of a transaction.
fn other_bits_of_bescr() -> Outcome {
    const EE: Bescr = Bescr(1 << 33);
    const TS: Bescr = Bescr(3 << 30);
    session::install(session::count_only)?;
    // Without an event there is no EBB, and no rfebb that interprets TS.
    //
    // SAFETY: GE is off, so nothing branches to a handler.
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

    // SAFETY: GE is off, so nothing branches to a handler.
    unsafe { EE.write() };
    let event = session::cycles(PERIOD)?;
    session::wait_for(20, PERIOD)?;
    check!(Bescr::read().has(EE), "after EBBs: {:?}", Bescr::read());
    session::end(event)
}

/// Descriptor of the event that the handlers below disable, and the value that they read.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);
static READ: AtomicU64 = AtomicU64::new(u64::MAX);

/// Accesses the PMU as handlers do.
fn use_the_pmu(context: &mut EbbContext<'_>) {
    READ.store(context.value(Pmc::Pmc1).into(), Relaxed);
    Pmc::Pmc2.write(0);
    pmc::freeze();
    let _ = pmc::siar();
    let _ = pmc::bhrb_entry::<0>();
}

/// Disables the event, which takes it off the PMU as if the group had lost it, and uses the PMU.
fn lose_the_pmu(context: &mut EbbContext<'_>) {
    if context.number() == 3 {
        // SAFETY: The ioctl takes no pointer (PERF_EVENT_IOC_DISABLE).
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
    check!(ebb::evicted(), "the loss went unnoticed");
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

/// With EBBs off and without a jump, `enable` does not change a negative counter, so its EBB comes.
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

/// `is_scheduled` works although `read` returns more for a group than for one event.
fn scheduled_with_grouped_leader() -> Outcome {
    let leader = ebb::event(CYCLES).grouped().open()?;
    let _member = ebb::member(ebb::config::INSTRUCTIONS_PMC2).open_with(&leader)?;
    leader.enable()?;
    check!(leader.is_scheduled()?);
    leader.disable()?;
    Ok(())
}

/// The constructors refuse filters and counters that do not exist.
fn no_silent_masks() -> Outcome {
    check!(Ifm::new(3) == Some(Ifm::Conditional));
    check!(Ifm::new(4).is_none() && Pmc::new(0).is_none() && Pmc::new(7).is_none());
    let all = Pmc::ALL
        .into_iter()
        .fold(Mmcr2(0), |all, pmc| all | Mmcr2::freeze_problem(pmc));
    check!(all == Mmcr2::USER, "{all:?}");
    Ok(())
}

/// Decodes entries of the BHRB as the ISA defines them: bit 62 marks the target of the branch in
/// the next entry, bit 63 a wrong prediction.
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
        // The target was predicted wrong; then the direction was.
        (&[0x3003, 0x1000], &[branch(0x1000, Some(0x3000), true)]),
        (&[0x3002, 0x1001], &[branch(0x1000, Some(0x3000), true)]),
        // The buffer has lost the branch of a target, or ends before it.
        (
            &[0x3003, 0x4002, 0x1000],
            &[
                branch(0, Some(0x3000), true),
                branch(0x1000, Some(0x4000), false),
            ],
        ),
        (&[0x3002], &[branch(0, Some(0x3000), false)]),
        (&[0x3002, 0, 0x1000], &[branch(0, Some(0x3000), false)]),
        // An entry without an address is no branch.
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
