// SPDX-License-Identifier: GPL-2.0
//! Many processes with EBB events of their own. Each knows how many EBBs it must get, and checks in
//! its handler that each EBB is its own.
//!
//! ```text
//! ebb_stress [--processes N] [--rounds N] [--seed N] [--only WAY]
//!            [--library] [--instructions] [--lossy]
//! ```
//!
//! In a round (`task.rs`) a process loads its counter, requests a number of EBBs and passes the
//! time in one of many ways until they have come: with work, system calls, sleeps, GE turned off,
//! on another CPU, while it turns its event off and on. The program prints "ready" when all
//! processes have their events and "total" when they are done. It holds an event until its stdin
//! ends.
//!
//! With `--library` each process uses a session of the library. Instead of turning EBBs off it
//! pauses its session, and resumes it.
//!
//! `--instructions` counts instructions rather than cycles: an emulator without an instruction
//! clock raises the alerts of cycles from another thread, which soon crashes it. `--lossy` counts
//! EBBs that do not come, and continues; a foreign EBB is a failure nevertheless.
//!
//! Exit status: 0 each process had its own EBBs and no others, 1 a process had not, 2 wrong
//! arguments, 4 no EBB on this machine.

mod handler;
mod tally;
mod task;
mod ways;

use ebb::Attr;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ebb_selftests::tracee::watch;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use ktap::process::Peer;
use std::io::Write;
use std::process::exit;
use tally::Tally;
use ways::Way;

const USAGE: &str = "usage: ebb_stress [--processes N] [--rounds N] [--seed N] [--only WAY] \
                     [--library] [--instructions] [--lossy]";

/// Options of the command line.
#[derive(Clone, Copy)]
struct Options {
    processes: usize,
    rounds: u32,
    seed: u64,
    only: Option<Way>,
    library: bool,
    instructions: bool,
    lossy: bool,
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options {
        processes: 64,
        rounds: 100,
        seed: 1,
        only: None,
        library: false,
        instructions: false,
        lossy: false,
    };
    let mut arguments = arguments.iter();
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or(USAGE);
        let number = |text: &String| text.parse::<u64>().map_err(|_| USAGE);
        match name.as_str() {
            "--library" => options.library = true,
            "--instructions" => options.instructions = true,
            "--lossy" => options.lossy = true,
            "--processes" => options.processes = number(value()?)? as usize,
            "--rounds" => options.rounds = number(value()?)? as u32,
            "--seed" => options.seed = number(value()?)?,
            "--only" => {
                let way = Way::named(value()?);
                options.only = Some(way.ok_or_else(|| format!("--only takes: {:?}", Way::ALL))?);
            }
            _ => return Err(USAGE.into()),
        }
    }
    Ok(options)
}

/// Starts the processes, waits for them and prints their counts.
fn run(options: &Options) -> Outcome {
    session::require_ebb()?;
    let tally = Tally::shared(options.processes)?;
    // Held all the time, so that the module cannot be removed.
    let _holds_the_module = Attr::raw(CYCLES).user_only().open();
    let mut peers = Vec::new();
    for (number, entry) in tally.entries().iter().enumerate() {
        let options = *options;
        peers.push(Peer::spawn(move |parent| {
            task::run(number, &options, entry, parent)
        })?);
    }
    for peer in &mut peers {
        peer.listen()?;
    }
    println!("ready");
    std::io::stdout().flush()?;
    for peer in &mut peers {
        peer.tell()?;
    }

    let mut sound = watch(&peers, || tally.rounds(), |number| peers[number].pid());
    for (number, peer) in peers.into_iter().enumerate() {
        if sound && let Err(Failure::Fail(why) | Failure::Skip(why)) = peer.join() {
            println!("process {number}: {why}");
            sound = false;
        }
    }
    tally.print();
    std::io::stdout().flush()?;
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    check!(sound, "a process failed or saw a foreign EBB: see above");
    // Some ways have no EBBs. An emulator loses most EBBs of the ways Stream and Work, but almost
    // none of the ways that enter the kernel, which are more than half of all.
    let (rounds, ebbs) = (tally.rounds(), tally.ebbs());
    check!(
        options.only.is_some() || 2 * ebbs >= rounds,
        "{ebbs} EBBs in {rounds} rounds"
    );
    Ok(())
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options = parse(&arguments).unwrap_or_else(|why| {
        eprintln!("{why}");
        exit(2)
    });
    let (why, status) = match run(&options) {
        Ok(()) => return,
        Err(Failure::Skip(why)) => (why, ktap::EXIT_SKIP),
        Err(Failure::Fail(why)) => (why, ktap::EXIT_FAIL),
    };
    println!("{why}");
    exit(status)
}
