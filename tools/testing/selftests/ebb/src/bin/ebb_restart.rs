// SPDX-License-Identifier: GPL-2.0
//! The kernel stops the PMU and starts it again under a program, for reasons of
//! its own and without a new event: the program sees nothing of that.
//!
//! Meanwhile the counter is negative and the program has alerts off, as between
//! an overflow and the end of its handler. So no alert is due, neither for the
//! program nor for the kernel.

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

/// Works for a while in the middle of what a handler does, with and without GE,
/// and looks whether that is undone.
fn undisturbed(event: &Event) -> Outcome {
    for bescr in [Bescr(0), Bescr::PME, Bescr::GE] {
        // SAFETY: the handler of `prepare` is installed.
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

/// The program takes its EBBs after that.
fn goes_on(event: Event) -> Outcome {
    session::arm(PERIOD)?;
    session::wait_for(20, PERIOD)?;
    session::end(event)
}

/// Ordinary events of the CPU that take turns in waiting for the counters: perf
/// core stops the PMU each time it looks whether one can go on.
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

/// The kernel's limit of samples a second, as it was at the end of the test.
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

/// A software event of this task that samples too often: at each tick perf core
/// lets it go on, and stops all PMUs of the task for that.
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
