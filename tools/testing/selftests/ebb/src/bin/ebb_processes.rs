// SPDX-License-Identifier: GPL-2.0
//! Several processes with EBBs on one CPU: each gets its own and only its own.

use ebb::EbbContext;
use ebb::Pmc;
use ebb_selftests::process;
use ebb_selftests::process::Link;
use ebb_selftests::process::Peer;
use ebb_selftests::session;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;
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

/// The same work in each process, at a period of its own on a counter of its
/// own; the EBBs must be as many as the work has periods.
fn share(parent: &mut Link, number: u32) -> Outcome {
    const ROUNDS: u64 = 10_000;
    let pmc = number % 4 + 1;
    let period = 4000 + 1500 * number;
    OWN.store(pmc, Relaxed);
    parent.listen()?;
    let event = session::prepare(u64::from(pmc) << 16 | 0x1e, own_only)?;

    // How many cycles the work is when nobody interrupts it.
    let counter = Pmc::new(pmc as u8).ok_or_else(|| Failure::Fail("no counter".into()))?;
    counter.write(0);
    ebb::pmc::unfreeze();
    for _ in 0..10 {
        session::work();
    }
    let cycles = u64::from(counter.read()) * ROUNDS / 10;

    ebb::pmc::freeze();
    let started = ebb::start(counter, period).and_then(|()| ebb::enable());
    check!(started.is_ok(), "{started:?}");
    ebb::pmc::unfreeze();
    for round in 0..ROUNDS {
        session::work();
        if round % 500 == 0 {
            process::give_way();
        }
    }
    ebb::disable();
    let came = ebb::count();
    event.close();

    let expected = cycles / u64::from(period);
    println!("PMC{pmc}, period {period}: {came} EBBs, {expected} expected");
    let foreign = FOREIGN.load(Relaxed);
    check!(foreign == 0, "{foreign} overflows of a counter not its own");
    check!(ebb::spurious() == 0, "{} spurious EBBs", ebb::spurious());
    // QEMU counts the kernel's cycles in this process too.
    check!(
        came * 10 >= expected * 9 && came <= expected * 2,
        "{came} EBBs came, {expected} expected"
    );
    Ok(())
}

fn together(n: u32) -> Outcome {
    session::require_ebb()?;
    process::stay_on_cpu()?;
    let mut peers = Vec::new();
    for number in 0..n {
        peers.push(Peer::spawn(|parent| share(parent, number))?);
    }
    for peer in &mut peers {
        peer.link.tell()?;
    }
    peers.into_iter().try_for_each(Peer::join)
}

fn two() -> Outcome {
    together(2)
}

fn eight() -> Outcome {
    together(8)
}

fn main() {
    ktap::run(&[("two", two), ("eight", eight)])
}
