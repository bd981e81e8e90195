// SPDX-License-Identifier: GPL-2.0
//! A thread with a scheduled EBB event, and work that EBBs interrupt.

use ebb::Attr;
use ebb::EbbContext;
use ebb::Event;
use ebb::Handler;
use ebb::Pmc;
use ebb::pmc;
use ebb::reg::Bescr;
use ebb::reg::Mmcr0;
use ebb::reg::Mmcr2;
use ebb::spr;
use ktap::Failure;
use ktap::OrFail;
use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use ktap::process::Peer;
use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::time::Instant;

/// Code of cycles on PMC1, the event of most tests.
pub const CYCLES: u64 = ebb::config::CYCLES_PMC1;

/// `PM_RUN_INST_CMPL` on PMC4, for events that are not EBB.
pub const INSTRUCTIONS: u64 = 0x400fa;

/// Handler that does nothing; the library counts its EBBs.
pub fn count_only(_: &mut EbbContext<'_>) {}

/// Index of this process's counter, and the number of overflows that were not only its own.
static OWN: AtomicUsize = AtomicUsize::new(0);
static FOREIGN: AtomicU64 = AtomicU64::new(0);

/// Handler of [`prepare_own`].
fn own_only(context: &mut EbbContext<'_>) {
    for pmc in Pmc::ALL {
        if context.overflowed(pmc) != (pmc.index() == OWN.load(Relaxed)) {
            FOREIGN.fetch_add(1, Relaxed);
        }
    }
}

/// Skips the test if the kernel offers no EBB.
pub fn require_ebb() -> Outcome {
    match ebb::supported() {
        true => Ok(()),
        false => ktap::skip("the kernel offers no EBB on this machine"),
    }
}

/// Returns whether the CPU has Power ISA v3.1 or later (POWER10 on).
#[must_use]
pub fn isa_v31() -> bool {
    const PPC_FEATURE2_ARCH_3_1: u64 = 0x0004_0000;
    // SAFETY: getauxval only reads the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & PPC_FEATURE2_ARCH_3_1 != 0 }
}

/// Installs a handler on this thread, which must do only what a signal handler may do.
#[track_caller]
pub fn install(handler: Handler) -> Outcome {
    // SAFETY: The handlers of the tests do only what a signal handler may do.
    Ok(unsafe { ebb::install(handler) }?)
}

/// Returns the address that [`install`] writes to EBBHR, the same in all processes of a program.
#[track_caller]
pub fn handler_address() -> Result<u64, Failure> {
    install(count_only)?;
    // SAFETY: EBBHR is always readable.
    Ok(unsafe { spr::read::<{ spr::EBBHR }>() })
}

/// Returns BESCR, EBBHR and EBBRR of this thread, which are always readable.
#[must_use]
pub fn ebb_registers() -> [u64; 3] {
    // SAFETY: A read of them has no effect.
    let [ebbhr, ebbrr] = unsafe { [spr::read::<{ spr::EBBHR }>(), spr::read::<{ spr::EBBRR }>()] };
    [Bescr::read().0, ebbhr, ebbrr]
}

/// Returns the counter of an event code.
#[track_caller]
pub fn pmc_of(code: u64) -> Result<Pmc, Failure> {
    Pmc::of_event(code).ok_or("no counter").or_fail("code")
}

/// Opens an event and enables it.
#[track_caller]
pub fn enabled(attr: &Attr) -> Result<Event, Failure> {
    let event = attr.open()?;
    event.enable()?;
    Ok(event)
}

/// Opens and enables an event of this thread; fails unless it is on the PMU.
#[track_caller]
pub fn schedule(attr: &Attr) -> Result<Event, Failure> {
    let event = enabled(attr)?;
    event.check_scheduled()?;
    Ok(event)
}

/// Opens and enables an EBB event for cycles without a handler.
#[track_caller]
pub fn without_handler() -> Result<Event, Failure> {
    schedule(&ebb::event(CYCLES))
}

/// Opens and enables an EBB event for cycles with a handler, for the thread's current CPU only.
#[track_caller]
pub fn on_this_cpu() -> Result<Event, Failure> {
    install(count_only)?;
    schedule(&ebb::event(CYCLES).cpu(cpu::current()? as libc::c_int))
}

/// Opens and enables an EBB event for cycles on the thread `id`, or on this one if it is 0.
#[track_caller]
pub fn put_on(id: libc::pid_t) -> Result<Event, Failure> {
    enabled(&ebb::event(CYCLES).pid(id))
}

/// Opens and enables an EBB event of `code` with a handler. Its counter is frozen, so no EBB comes
/// yet.
#[track_caller]
pub fn prepare(code: u64, handler: Handler) -> Result<Event, Failure> {
    let event = ebb::event(code).open()?;
    install(handler)?;
    event.enable()?;
    event.check_scheduled()?;
    pmc::freeze();
    Ok(event)
}

/// Does what [`prepare`] does, with a handler that counts for [`check_own`].
#[track_caller]
pub fn prepare_own(code: u64) -> Result<Event, Failure> {
    OWN.store(pmc_of(code)?.index(), Relaxed);
    prepare(code, own_only)
}

/// Fails if another counter than the one of [`prepare_own`] made an EBB.
#[track_caller]
pub fn check_own() -> Outcome {
    let foreign = FOREIGN.load(Relaxed);
    check!(foreign == 0, "{foreign} overflows of a counter not its own");
    Ok(())
}

/// Starts PMC1 `period` before its overflow, with EBBs and alerts on.
#[track_caller]
pub fn arm(period: u32) -> Outcome {
    Mmcr0::FC.write();
    ebb::start(Pmc::Pmc1, period.into())?;
    // PMAE makes the emulator's driver drop an alert that it has kept. Otherwise the driver would
    // make an EBB of it as soon as EBBs are on.
    (Mmcr0::FC | Mmcr0::PMAE).write();
    ebb::enable()?;
    Mmcr0::PMAE.write();
    Ok(())
}

/// Opens an event with [`prepare`], then starts an EBB every `period` counts.
#[track_caller]
pub fn begin(code: u64, period: u32, handler: Handler) -> Result<Event, Failure> {
    let event = prepare(code, handler)?;
    ebb::start(pmc_of(code)?, period.into())?;
    ebb::enable()?;
    pmc::unfreeze();
    Ok(event)
}

/// Starts EBBs every `period` cycles, which the library counts.
#[track_caller]
pub fn cycles(period: u32) -> Result<Event, Failure> {
    begin(CYCLES, period, count_only)
}

/// Turns EBBs off and closes the event. Fails if an EBB came without an exception.
#[track_caller]
pub fn end(event: Event) -> Outcome {
    ebb::disable();
    event.close();
    check!(ebb::spurious() == 0, "{} spurious EBBs", ebb::spurious());
    Ok(())
}

/// Fails unless MMCR0 and MMCR2 have the values for a program's first event.
#[track_caller]
pub fn check_fresh() -> Outcome {
    let (mmcr0, mmcr2) = (Mmcr0::read(), Mmcr2::read());
    check!(
        mmcr0 == Mmcr0::PMAE && mmcr2 == Mmcr2(0),
        "not fresh: {mmcr0:?}, {mmcr2:?}"
    );
    Ok(())
}

/// Returns a value of MMCR2 that identifies a task: the bits of `number`, one for each counter.
/// Leaves out the counters of `used`, which it would freeze.
#[must_use]
pub fn tag(number: usize, used: &[Pmc]) -> Mmcr2 {
    let free = Pmc::ALL.into_iter().filter(|pmc| !used.contains(pmc));
    let set = free.enumerate().filter(|(bit, _)| number >> bit & 1 == 1);
    set.fold(Mmcr2(0), |tag, (_, pmc)| tag | Mmcr2::freeze_problem(pmc))
}

/// Writes the same value to all counters.
pub fn write_counters(value: u32) {
    for pmc in Pmc::ALL {
        pmc.write(value);
    }
}

/// Works for about a thousand instructions.
#[inline(never)]
pub fn work() {
    for i in 0..250u32 {
        black_box(i);
    }
}

/// Works for about that many instructions, which are as many cycles in QEMU.
pub fn work_for(instructions: u64) {
    for _ in 0..instructions.div_ceil(1000) {
        work();
    }
}

/// Works for `time`.
pub fn work_during(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        work();
    }
}

/// Starts a process that works until it is dropped, on the CPU on which the caller then stays.
#[track_caller]
pub fn hog() -> Result<Peer, Failure> {
    cpu::pin()?;
    Peer::spawn(|_| {
        loop {
            work();
        }
    })
}

/// Works until this thread has had `n` EBBs, or for a millisecond and twice as long as `n` periods
/// take. So the test fails instead of hanging if EBBs end.
#[track_caller]
pub fn wait_for(n: u64, period: u32) -> Outcome {
    // An EBB itself costs about 500 instructions. In QEMU the driver may deliver a pending alert
    // 640 us late.
    let rounds = 2 * n * (u64::from(period) + 500) / 1000 + 1000;
    for _ in 0..rounds {
        if ebb::count() >= n {
            return Ok(());
        }
        work();
    }
    let (came, bescr, mmcr0) = (ebb::count(), Bescr::read(), Mmcr0::read());
    check!(
        came >= n,
        "only {came} of {n} EBBs came, {} spurious; {bescr:?}, {mmcr0:?}",
        ebb::spurious()
    );
    Ok(())
}

/// Works for at least `cycles`; fails if an EBB comes in that time.
#[track_caller]
pub fn expect_none(cycles: u64) -> Outcome {
    let before = ebb::count();
    work_for(2 * cycles);
    match ebb::count() - before {
        0 => Ok(()),
        n => ktap::fail(format!("{n} EBBs came where none may come")),
    }
}
