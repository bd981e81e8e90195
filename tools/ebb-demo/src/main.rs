// SPDX-License-Identifier: GPL-2.0
//! Demonstrates Event Based Branches: interrupts its own workload once per period and shows where,
//! at what cost, and what the kernel refuses.
//!
//! Exits with 0 only if as many EBBs arrived as requested, and if they are spread over the
//! functions of the workload as the counts are.

mod cost;
mod sampling;
mod symbols;
mod workload;

use clap::Parser;
use ebb::Pmc;
use ebb::Save;
use ebb::config;
use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;

/// Takes Event Based Branches in a workload of its own.
#[derive(Parser)]
#[command(name = "ebb-demo")]
struct Options {
    /// Counts between two EBBs, 1000 to 2147483647
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1000..=0x7fff_ffff))]
    period: u32,

    /// Number of EBBs to take, 100 to 1000000
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    count: u32,

    /// Event: cycles, instructions (QEMU loses their EBBs), or a raw code in hex that names its
    /// counter
    #[arg(long, default_value = "cycles", value_parser = event_code)]
    event: u64,
}

fn event_code(text: &str) -> Result<u64, String> {
    let code = match text {
        "cycles" => config::CYCLES_PMC1,
        "instructions" => config::INSTRUCTIONS_PMC2,
        _ => {
            let digits = text.strip_prefix("0x").unwrap_or(text);
            u64::from_str_radix(digits, 16)
                .map_err(|_| "neither cycles, instructions nor a hex number".to_string())?
        }
    };
    match Pmc::of_event(code) {
        Some(_) => Ok(code),
        None => Err("bits 16-19 must name a counter, 1 to 6".to_string()),
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    match demo(&options) {
        Ok(faults) if faults.is_empty() => ExitCode::SUCCESS,
        Ok(faults) => {
            for fault in faults {
                eprintln!("ebb-demo: {fault}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("ebb-demo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the demo; returns what went wrong.
fn demo(options: &Options) -> Result<Vec<String>, Box<dyn Error>> {
    // CAST: A usize has 64 bits, and so holds every u32.
    let run = sampling::run(options.event, options.period, options.count as usize)?;
    println!(
        "event {:#x}, one EBB every {} counts: {} EBBs in {} passes of the workload, {} asked for\n",
        options.event,
        options.period,
        run.addresses.len(),
        run.passes,
        options.count,
    );
    let mut faults = histogram(&run)?;
    if run.addresses.len() < options.count as usize {
        faults.push(format!(
            "{} EBBs arrived, {} were requested; counters that stand still mean that one was lost",
            run.addresses.len(),
            options.count
        ));
    }
    if run.not_noted != 0 {
        faults.push(format!(
            "{} EBBs more arrived than there was room for: the kernel takes too much of a period",
            run.not_noted
        ));
    }
    if run.spurious != 0 {
        faults.push(format!("{} EBBs arrived without a cause", run.spurious));
    }
    if !run.same_result {
        faults.push("an EBB changed a result of the workload".to_string());
    }

    let all = cost::instructions(Save::Full)?;
    let gprs = cost::instructions(Save::Gprs)?;
    let (without, with) = run.pass_time;
    let extra = with.saturating_sub(without).as_nanos() * u128::from(run.passes);
    println!(
        "\nAn EBB costs {all} instructions from the entry to rfebb, as PMC5 counts them, and {gprs}\n\
         if the handler keeps to general purpose registers;\n\
         with all that happens around it, {} ns of run time (of instructions under -icount).",
        extra / (run.addresses.len().max(1) as u128)
    );

    match ebb::event(options.event).sample_period(1000).open() {
        Ok(_) => faults.push("the kernel let an EBB event have a sample period".to_string()),
        Err(error) => println!("\nRefused, with a sample_period of 1000: {error}"),
    }
    Ok(faults)
}

/// Prints the EBBs by interrupted function; returns what is implausible.
fn histogram(run: &sampling::Run) -> Result<Vec<String>, Box<dyn Error>> {
    let first = &workload::FUNCTIONS[0];
    let symbols = symbols::Symbols::load(first.name, first.address as *const () as u64)?;
    let mut hits: BTreeMap<&str, usize> = BTreeMap::new();
    for &address in &run.addresses {
        *hits
            .entry(symbols.function(address).unwrap_or("(unknown)"))
            .or_default() += 1;
    }

    let total = run.addresses.len().max(1) as f64;
    let counts = run.expected.iter().sum::<u64>().max(1) as f64;
    let mut faults = Vec::new();
    println!("interrupted in     EBBs   share  of the counts");
    for (function, &expected) in workload::FUNCTIONS.iter().zip(&run.expected) {
        let n = hits.remove(function.name).unwrap_or(0);
        let (share, expected) = (n as f64 / total, expected as f64 / counts);
        line(function.name, n, share, Some(expected));
        // Four standard deviations of a random sample, plus 2 % for the code between the functions.
        let tolerance = 0.02 + 4.0 * (expected * (1.0 - expected) / total).sqrt();
        if (share - expected).abs() > tolerance {
            faults.push(format!(
                "{} has {:.1} % of the EBBs but {:.1} % of the counts",
                function.name,
                100.0 * share,
                100.0 * expected
            ));
        }
    }
    for (name, n) in hits {
        line(name, n, n as f64 / total, None);
    }
    Ok(faults)
}

fn line(name: &str, n: usize, share: f64, expected: Option<f64>) {
    let expected = expected.map_or("      -".to_string(), |e| format!("{:6.1}%", 100.0 * e));
    // CAST: A share is between 0 and 1, so the bar has at most 50 characters.
    let bar = "#".repeat((50.0 * share).round() as usize);
    println!(
        "  {name:<15}{n:>6}{:>7.1}%{expected:>8}  {bar}",
        100.0 * share
    );
}
