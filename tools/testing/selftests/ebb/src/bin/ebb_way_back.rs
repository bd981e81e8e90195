// SPDX-License-Identifier: GPL-2.0
//! Checks the order in which the end of an EBB writes PMU registers, on a model of the PMU.
//!
//! On hardware an exception exists as long as MMCR0\[PMAO\] is set, and sets BESCR\[PMEO\] whenever
//! BESCR\[PME\] is on; QEMU sets PMEO only at the overflow. So there is no EBB event here: the
//! entry's accesses cause SIGILL, and its handler executes them on the model.

use ebb::EbbContext;
use ebb::Rearm;
use ebb::Save;
use ebb::reg::Bescr;
use ebb_selftests::each_instruction::Entry;
use ebb_selftests::escape;
use ebb_selftests::session;
use ebb_selftests::trap;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use pmu_model::Context;
use pmu_model::Facility;
use pmu_model::Instruction;
use pmu_model::Processor;
use pmu_model::bescr;
use pmu_model::mmcr0;
use pmu_model::spr;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Addresses of the handler and of the interrupted instruction in the model.
const HANDLER: u64 = 0x5000;
const INTERRUPTED: u64 = 0x1000;

/// Model of the PMU. No thread holds the lock while instructions trap.
static MODEL: Mutex<Option<Facility>> = Mutex::new(None);
static ACCESSES: AtomicU32 = AtomicU32::new(0);
static REARM: AtomicU64 = AtomicU64::new(0);
/// Whether the model's counters count at each access.
static COUNTING: AtomicBool = AtomicBool::new(false);
/// Number of accesses until the one at which the handler jumps out; 0 for none.
static JUMP: AtomicU32 = AtomicU32::new(0);

/// Returns the PMU of a program with an EBB event whose PMC6 overflows after `instructions`.
fn before_an_alert(processor: Processor, instructions: u64) -> Facility {
    /// PMCC: problem state may read and write.
    const OPEN: u64 = 0x0008_0000;
    let mut facility = Facility::new(processor);
    facility.mtspr(spr::EBBHR, HANDLER);
    facility.mtspr(spr::PMC6, 0x8000_0000 - instructions);
    facility.mtspr(
        spr::MMCR0,
        mmcr0::PMAE | mmcr0::FCECE | mmcr0::PMCJCE | mmcr0::EBE | mmcr0::BHRBA | OPEN,
    );
    facility.context = Context::PROGRAM;
    facility
}

/// Returns the PMU of such a program right after the overflow.
fn after_an_alert(processor: Processor) -> Facility {
    let mut facility = before_an_alert(processor, 1);
    facility.mtspr(spr::BESCR, bescr::GE | bescr::PME);
    facility.execute(&Instruction::at(INTERRUPTED));
    facility
}

/// Copies BESCR to the model, as the program's writes of it do not trap.
fn take_over_bescr(model: &mut Facility) {
    let value = Bescr::read().0;
    if value != model.mfspr(spr::BESCR) {
        model.mtspr(spr::BESCR, value);
    }
}

/// Executes an mfspr or mtspr on the model; returns `false` for other instructions.
fn access(model: &mut Facility, instruction: u32, gpr: &mut u64) -> bool {
    let number = instruction >> 16 & 31 | (instruction >> 11 & 31) << 5;
    take_over_bescr(model);
    let done = match instruction & (63 << 26 | 1023 << 1) {
        0x7c00_02a6 => model.problem_mfspr(number).map(|value| *gpr = value),
        0x7c00_03a6 => model.problem_mtspr(number, *gpr),
        _ => return false,
    };
    if COUNTING.load(Relaxed) {
        model.execute(&Instruction::at(INTERRUPTED));
    }
    // SAFETY: GE is off in a handler, and no event is scheduled.
    unsafe { Bescr(model.mfspr(spr::BESCR)).write() };
    done.is_ok()
}

extern "C" fn on_sigill(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    ACCESSES.fetch_add(1, Relaxed);
    let jump = JUMP.load(Relaxed);
    JUMP.store(jump.saturating_sub(1), Relaxed);
    if jump == 1 {
        ebb::disable();
        // SAFETY: `jumped_out_of_resume` runs this in `call_escapable`.
        unsafe { escape::escape() };
    }
    // SAFETY: The kernel passed the context, nothing else refers to its registers, and the
    // processor has fetched the instruction at NIP.
    unsafe {
        let regs = &mut *trap::registers(context);
        let nip = regs[trap::NIP] as usize;
        let instruction = std::ptr::with_exposed_provenance::<u32>(nip).read();
        let gpr = &mut regs[(instruction >> 21 & 31) as usize];
        let mut model = MODEL.try_lock().ok();
        let model = model.as_mut().and_then(|model| model.as_mut());
        if model.is_none_or(|model| !access(model, instruction, gpr)) {
            libc::abort();
        }
        regs[trap::NIP] += 4;
    }
}

fn rearm(context: &mut EbbContext<'_>) {
    match REARM.load(Relaxed) {
        0 => {}
        1 => {
            ebb::Pmc::Pmc6.write(0);
            context.rearm(Rearm::Keep);
        }
        _ => context.rearm(Rearm::Stop),
    }
}

/// Makes SIGILL execute this process's PMU accesses on the model.
fn handle_sigill() -> Outcome {
    // SAFETY: Zeroes are a valid sigaction, and the handler takes the three arguments.
    ktap::os_result(unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigill as *const () as usize;
        // The handler may jump out, so the signal must not be blocked in it.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        libc::sigaction(libc::SIGILL, &action, std::ptr::null_mut())
    })?;
    Ok(())
}

/// Returns the model as the program has left it.
fn take_model() -> Result<Facility, Failure> {
    let model = MODEL.lock().ok().and_then(|mut model| model.take());
    model.ok_or_else(|| Failure::Fail("no model".into()))
}

/// A counter overflows while `ebb::resume` starts it: either an EBB comes, or the counter is
/// reloaded.
fn overflows_in_resume() -> Outcome {
    // SAFETY: `rearm` uses no vector or floating-point register.
    unsafe { ebb::install_saving(Save::Gprs, rearm)? };
    handle_sigill()?;
    for (processor, ahead) in Processor::ALL
        .into_iter()
        .flat_map(|p| (1..16).map(move |n| (p, n)))
    {
        if let Ok(mut model) = MODEL.lock() {
            *model = Some(before_an_alert(processor, ahead));
        }
        COUNTING.store(true, Relaxed);
        let resumed = ebb::resume();
        let real = Bescr::read().0;
        COUNTING.store(false, Relaxed);
        ebb::disable();
        resumed?;
        let mut model = take_model()?;
        model.mtspr(spr::BESCR, real);
        let ebb = (0..20).any(|_| model.execute(&Instruction::at(INTERRUPTED)).ebb);
        let counter = model.mfspr(spr::PMC6);
        check!(
            ebb || counter < 0x8000_0000,
            "{processor:?}: no EBB, {ahead} instructions ahead, PMC6 is {counter:#x}"
        );
    }
    Ok(())
}

extern "C" fn one_ebb() {
    // SAFETY: EBBHR has the library's entry.
    unsafe { ebb::branch_to_ebbhr() };
}

/// Number of the access at which the handler jumps out of `resume`.
static ACCESS: AtomicU32 = AtomicU32::new(0);

fn resume_and_jump() {
    JUMP.store(ACCESS.load(Relaxed), Relaxed);
    let _ = ebb::resume();
}

/// A signal at `rfebb` calls `resume`. A second signal in the middle of that disables EBBs and
/// jumps out of both. `enable` then notices that the counters are frozen.
fn jumped_out_of_resume() -> Outcome {
    /// Accesses of `resume`: FC, six counters, PMAE.
    const ALL: u32 = 8;
    REARM.store(0, Relaxed);
    // SAFETY: `rearm` uses no vector or floating-point register.
    unsafe { ebb::install_saving(Save::Gprs, rearm)? };
    handle_sigill()?;
    let entry = Entry::find(0)?;
    for access in 1..=ALL {
        ACCESS.store(access, Relaxed);
        if let Ok(mut model) = MODEL.lock() {
            *model = Some(after_an_alert(Processor::Power10));
        }
        ebb::disable();
        entry.trap_at(entry.rfebb(), resume_and_jump);
        // SAFETY: `one_ebb` has nothing that must be dropped.
        let jumped = unsafe { escape::call_escapable(one_ebb) };
        let enabled = ebb::enable();
        ebb::disable();
        let model = take_model()?;
        check!(jumped == 1, "resume has fewer than {access} accesses");
        enabled?;
        let freeze = model.mfspr(spr::MMCR0) & (mmcr0::FC | mmcr0::PMAE);
        check!(
            freeze == mmcr0::PMAE,
            "left at access {access}: MMCR0 has {freeze:#x}"
        );
    }
    Ok(())
}

/// Takes one EBB on each processor. The program must continue, with `bescr` in BESCR and `mmcr0` in
/// the bits FC, PMAE and PMAO of MMCR0.
fn comes_back(save: Save, how: u64, bescr: u64, mmcr0: u64) -> Outcome {
    REARM.store(how, Relaxed);
    // SAFETY: `rearm` uses no vector or floating-point register.
    unsafe { ebb::install_saving(save, rearm)? };
    handle_sigill()?;
    for processor in Processor::ALL {
        if let Ok(mut model) = MODEL.lock() {
            *model = Some(after_an_alert(processor));
        }
        ebb::disable();
        // SAFETY: EBBHR has the library's entry.
        unsafe { ebb::branch_to_ebbhr() };
        // The real `rfebb` has set GE.
        let real = Bescr::read().without(Bescr::GE).0;
        ebb::disable();
        let mut model = take_model()?;
        if real != model.mfspr(spr::BESCR) {
            model.mtspr(spr::BESCR, real);
        }
        let Ok(next) = model.rfebb(true) else {
            return ktap::fail("rfebb traps");
        };
        let (now, freeze) = (model.mfspr(spr::BESCR), model.mfspr(spr::MMCR0));
        let seen = freeze & (mmcr0::FC | mmcr0::PMAE | mmcr0::PMAO);
        check!(
            next != HANDLER,
            "{processor:?}: the handler runs again, BESCR {now:#x}, MMCR0 {seen:#x}"
        );
        check!(now == bescr, "{processor:?}: BESCR is {now:#x}");
        check!(seen == mmcr0, "{processor:?}: MMCR0 has {seen:#x}");
        let counter = model.mfspr(spr::PMC6);
        check!(
            (counter < 0x8000_0000) == (how < 2),
            "{processor:?}: PMC6 is {counter:#x}"
        );
    }
    let accesses = ACCESSES.load(Relaxed);
    check!(accesses >= 5, "only {accesses} accesses trapped");
    Ok(())
}

/// After the handler returns GE is on, and no exception is pending.
fn goes_on(save: Save, how: u64) -> Outcome {
    comes_back(save, how, bescr::GE | bescr::PME, mmcr0::PMAE)
}

fn stops(save: Save) -> Outcome {
    comes_back(save, 2, bescr::GE, mmcr0::FC)
}

ktap::main! {
    first: session::require_ebb;
    restart_gprs = goes_on(Save::Gprs, 0), restart_full = goes_on(Save::Full, 0),
    keep_gprs = goes_on(Save::Gprs, 1), keep_full = goes_on(Save::Full, 1),
    overflows_in_resume, jumped_out_of_resume,
    stop_gprs = stops(Save::Gprs), stop_full = stops(Save::Full),
}
