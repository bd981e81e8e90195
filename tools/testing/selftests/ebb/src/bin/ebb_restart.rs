// SPDX-License-Identifier: GPL-2.0
//! The kernel stops and restarts the PMU while a program runs, for its own reasons and without a
//! new event. The program must not notice it.
//!
//! In that time the counter is negative and the program has alerts off, as between an overflow and
//! the end of its handler. So no alert may arrive, neither for the program nor for the kernel.

use ebb::Attr;
use ebb::Event;
use ebb::Pmc;
use ebb::pmc;
use ebb::reg::Bescr;
use ebb::reg::Mmcr0;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ebb_selftests::session::INSTRUCTIONS;
use ebb_selftests::trap;
use ebb_selftests::trap::traps;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use std::time::Duration;

const PERIOD: u32 = 10_000;
const TIME: Duration = Duration::from_millis(50);
const NEGATIVE: u32 = pmc::OVERFLOW + 0x1234;

/// Works for a while in a state as in the middle of a handler, with and without GE, and checks that
/// the state does not change.
fn undisturbed(event: &Event) -> Outcome {
    for bescr in [Bescr(0), Bescr::PME, Bescr::GE] {
        // SAFETY: `prepare` has installed a handler.
        unsafe { bescr.write() };
        Mmcr0::FC.write();
        Pmc::Pmc1.write(NEGATIVE);
        session::work_during(TIME);
        event.check_scheduled()?;
        check!(!traps(trap::write_pmc2)?, "the program lost its access");
        let (mmcr0, value) = (Mmcr0::read(), Pmc::Pmc1.read());
        check!(
            mmcr0 == Mmcr0::FC && value == NEGATIVE,
            "with {bescr:?}: {mmcr0:?}, PMC1 is {value:#x}"
        );
        check!(ebb::count() == 0, "{} EBBs with alerts off", ebb::count());
    }
    Ok(())
}

/// Checks that the program can take EBBs afterwards.
fn goes_on(event: Event) -> Outcome {
    session::arm(PERIOD)?;
    session::wait_for(20, PERIOD)?;
    session::end(event)
}

/// Ordinary events of the CPU wait for counters in turns: perf core stops the PMU each time it
/// checks whether it can schedule one.
fn rotation() -> Outcome {
    let rival = Attr::raw(INSTRUCTIONS).user_only().on_cpu(cpu::pin()?);
    let rivals = [session::enabled(&rival)?, session::enabled(&rival)?];
    let event = session::prepare(CYCLES, session::count_only)?;
    undisturbed(&event)?;
    for rival in &rivals {
        let times = rival.read()?;
        check!(times.enabled > 0, "{times:?}");
    }
    goes_on(event)
}

/// The kernel's limit of samples in a second; restores the old one on drop.
struct Limit(String);

impl Limit {
    const FILE: &str = "/proc/sys/kernel/perf_event_max_sample_rate";

    fn set(text: &str) -> Result<Self, Failure> {
        let before = std::fs::read_to_string(Self::FILE)?;
        std::fs::write(Self::FILE, text)?;
        Ok(Self(before))
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        let _ = std::fs::write(Self::FILE, &self.0);
    }
}

/// A software event of this task samples too often: at each tick perf core lets it continue, and
/// stops all PMUs of the task to do so.
fn throttling() -> Outcome {
    let _limit = Limit::set("1000")?;
    let event = session::prepare(CYCLES, session::count_only)?;
    // PERF_COUNT_SW_CPU_CLOCK every 20 us, with PERF_SAMPLE_IP.
    let clock = Attr::software(0).sampling(20_000, 1).enabled().open()?;
    undisturbed(&event)?;
    drop(clock);
    goes_on(event)
}

ktap::main! {
    first: session::require_ebb;
    rotation, throttling,
}
