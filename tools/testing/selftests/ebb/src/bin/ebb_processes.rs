// SPDX-License-Identifier: GPL-2.0
//! Several processes with EBBs on one CPU: each gets its own and only its own.

use ebb::EbbContext;
use ebb::Pmc;
use ebb::config;
use ebb::pmc;
use ebb_selftests::session;
use ktap::OrFail;
use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use ktap::process::Link;
use ktap::process::Peer;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The counter of this process, and EBBs in which it was not the cause.
static OWN: AtomicU32 = AtomicU32::new(0);
static FOREIGN: AtomicU64 = AtomicU64::new(0);

fn own_only(context: &mut EbbContext<'_>) {
    for pmc in Pmc::ALL {
        let own = pmc as u32 == OWN.load(Relaxed);
        if context.overflowed(pmc) != own {
            FOREIGN.fetch_add(1, Relaxed);
        }
    }
}

/// Turns that each process gets, and what it does in one.
const TURNS: u64 = 20;
const ROUNDS: u64 = 500;

/// The same work in each process, at a period of its own on a counter of its
/// own; the EBBs must be as many as the work has periods.
fn share(parent: &mut Link, number: u32) -> Outcome {
    let pmc = Pmc::ALL[number as usize % 4];
    let code = (pmc as u64) << config::PMC_SHIFT | 0x1e;
    let period = 4000 + 1500 * number;
    OWN.store(pmc as u32, Relaxed);
    let event = session::prepare(code, own_only)?;

    // How many cycles the work is when nobody interrupts it: the least of several
    // tries, as a tick of the kernel's counts as well.
    let mut least = u32::MAX;
    for _ in 0..8 {
        pmc.write(0);
        pmc::unfreeze();
        for _ in 0..100 {
            session::work();
        }
        pmc::freeze();
        least = least.min(pmc.read());
    }
    let cycles = u64::from(least) * TURNS * ROUNDS / 100;

    ebb::start(pmc, period).or_fail("start")?;
    ebb::enable().or_fail("enable EBBs")?;
    pmc::unfreeze();
    for _ in 0..TURNS {
        parent.listen()?;
        for _ in 0..ROUNDS {
            session::work();
        }
        parent.tell()?;
    }
    session::end(event);

    let (came, expected) = (ebb::count(), cycles / u64::from(period));
    println!("{pmc:?}, period {period}: {came} EBBs, {expected} expected");
    let foreign = FOREIGN.load(Relaxed);
    check!(foreign == 0, "{foreign} overflows of a counter not its own");
    check!(ebb::spurious() == 0, "{} spurious EBBs", ebb::spurious());
    // QEMU counts what the kernel does in this process too, in a switch say.
    check!(
        came * 10 >= expected * 9 && came * 10 <= expected * 15,
        "{came} EBBs came, {expected} expected"
    );
    Ok(())
}

/// `n` processes take turns on one CPU, so that each of them meets the PMU of
/// another at each turn.
fn together(n: u32) -> Outcome {
    cpu::pin()?;
    let mut peers = Vec::new();
    for number in 0..n {
        peers.push(Peer::spawn(|parent| share(parent, number))?);
    }
    for _ in 0..TURNS {
        for peer in &mut peers {
            peer.tell()?;
            peer.listen()?;
        }
    }
    peers.into_iter().try_for_each(Peer::join)
}

fn two() -> Outcome {
    together(2)
}

fn eight() -> Outcome {
    together(8)
}

ktap::main! {
    first: session::require_ebb;
    two, eight,
}
