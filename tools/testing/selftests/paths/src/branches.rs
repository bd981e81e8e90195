// SPDX-License-Identifier: GPL-2.0
//! Event Based Branches, from one overflow to the next.

use ebb::EbbContext;
use ebb::Pmc;
use ebb::Save;
use ktap::Failure;
use pmu_selftests::prelude::*;

use crate::Path;
use crate::Run;
use crate::Walk;
use crate::samples::PERIOD;
use crate::section;

pub fn paths() -> Vec<Path> {
    vec![
        Path::new("EBB", 30, || ebbs(Save::Full)),
        Path::new("EBB, GPRs only", 30, || ebbs(Save::Gprs)),
    ]
}

/// Does nothing. The library counts the EBBs.
pub fn ebb_bench_handler(_: &mut EbbContext<'_>) {}

fn ebbs(save: Save) -> Result<Walk, Failure> {
    if !ebb::supported() {
        ktap::skip("the kernel offers no EBB on this machine")?;
    }
    let event = ebb::event(ebb::config::CYCLES_PMC1).open()?;
    // SAFETY: The handler does nothing, so it is sound whatever code an EBB interrupts.
    unsafe { ebb::install_saving(save, ebb_bench_handler) }?;
    event.enable()?;
    event.check_scheduled()?;
    Ok(Box::new(move |rounds| {
        let _held = &event;
        ebb::pmc::freeze();
        let work = |rounds| {
            work::run(section::instructions(rounds * PERIOD));
            Ok(())
        };
        let less = section::measure_rest(|| work(rounds))?;
        ebb::start(Pmc::Pmc1, PERIOD)?;
        ebb::enable()?;
        let before = ebb::count();
        ebb::pmc::unfreeze();
        let ticks = section::measure(|| work(rounds))?;
        ebb::pmc::freeze();
        ebb::disable();
        let came = ebb::count() - before;
        if came < rounds / 2 {
            ktap::skip(format!("EBBs are lost: {came} of {rounds} arrived"))?;
        }
        Ok(Run {
            rounds: came,
            ticks,
            less,
        })
    }))
}
