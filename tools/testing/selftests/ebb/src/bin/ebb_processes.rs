// SPDX-License-Identifier: GPL-2.0
//! Several processes with EBBs on one CPU: each gets its own and only its own.

use ebb::Pmc;
use ebb::config;
use ebb::pmc;
use ebb_selftests::session;
use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use ktap::process::Link;
use ktap::process::Peer;
use pmu_selftests::machine;

/// Turns that each process gets, and what it does in one.
const TURNS: u64 = 20;
const ROUNDS: u64 = 500;

/// The same work in each process, at a period of its own on a counter of its
/// own; the EBBs must be as many as the work has periods.
fn share(parent: &mut Link, number: u32) -> Outcome {
    let pmc = Pmc::ALL[number as usize % 4];
    let code = (pmc as u64) << config::PMC_SHIFT | 0x1e;
    let period = 4000 + 1500 * number;
    let event = session::prepare_own(code)?;

    // How many cycles the work is when nobody interrupts it: the least of several
    // tries, as a tick of the kernel's counts as well.
    let mut least = u32::MAX;
    for _ in 0..8 {
        pmc.write(0);
        pmc::unfreeze();
        session::work_for(100_000);
        pmc::freeze();
        least = least.min(pmc.read());
    }
    let cycles = u64::from(least) * TURNS * ROUNDS / 100;

    ebb::start(pmc, period.into())?;
    ebb::enable()?;
    pmc::unfreeze();
    for _ in 0..TURNS {
        parent.listen()?;
        session::work_for(1000 * ROUNDS);
        parent.tell()?;
    }
    session::end(event)?;

    let (came, expected) = (ebb::count(), cycles / u64::from(period));
    println!("{pmc:?}, period {period}: {came} EBBs, {expected} expected");
    session::check_own()?;
    // QEMU counts what the kernel does in this process too, in a switch say: 4 to 17 % from
    // POWER9 on, up to 25 % on POWER8, and up to 79 % on a debug kernel.
    check!(
        came + 1 >= expected && came * 100 <= expected * (100 + machine::kernel_share(35)),
        "{came} EBBs came, {expected} expected"
    );
    Ok(())
}

/// Eight processes take turns on one CPU, so that each of them meets the PMU of
/// another at each turn.
fn eight() -> Outcome {
    cpu::pin()?;
    let peers = (0..8).map(|number| Peer::spawn(|parent| share(parent, number)));
    let mut peers: Vec<_> = peers.collect::<Result<_, _>>()?;
    for _ in 0..TURNS {
        for peer in &mut peers {
            peer.tell()?;
            peer.listen()?;
        }
    }
    peers.into_iter().try_for_each(Peer::join)
}

ktap::main! {
    first: session::require_ebb;
    eight,
}
