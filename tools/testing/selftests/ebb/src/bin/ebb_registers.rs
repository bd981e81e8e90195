// SPDX-License-Identifier: GPL-2.0
//! An EBB preserves the program's state: every register, the red zone, and the value of a
//! conditional store. The handler can read the registers, and change the address at which the
//! program continues.

use ebb::EbbContext;
use ebb::Event;
use ebb::Pmc;
use ebb::Save;
use ebb::pmc;
use ebb_selftests::escape;
use ebb_selftests::registers;
use ebb_selftests::registers::Registers;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const PERIOD: u32 = 10_000;

/// Starts EBBs every [`PERIOD`] cycles with a handler and `save`.
fn begin<F>(save: Save, handler: F) -> Result<Event, Failure>
where
    F: Fn(&mut EbbContext<'_>) + Copy + 'static,
{
    let event = ebb::event(CYCLES).open()?;
    // SAFETY: The handlers below do only what a signal handler may do. Those with Save::Gprs are
    // assembly or use no other registers.
    unsafe { ebb::install_saving(save, handler)? };
    event.enable()?;
    event.check_scheduled()?;
    pmc::freeze();
    ebb::start(Pmc::Pmc1, PERIOD.into())?;
    ebb::enable()?;
    pmc::unfreeze();
    Ok(event)
}

fn spoil_all(_: &mut EbbContext<'_>) {
    registers::spoil_registers();
}

/// Handler that changes GPRs only.
fn spoil_gprs(_: &mut EbbContext<'_>) {
    escape::spoil_gprs();
}

/// FPSCR\[DRN\] and \[RN\].
const RN: u64 = 7 << 32 | 3;

/// Returns the names and values of registers that differ.
fn differences(before: &Registers, after: &Registers) -> Vec<String> {
    let mut list = Vec::new();
    let mut compare = |name: String, a: u64, b: u64| {
        if a != b {
            list.push(format!("{name}: {a:#x} became {b:#x}"));
        }
    };
    for n in 0..32 {
        compare(format!("r{n}"), before.gpr[n], after.gpr[n]);
    }
    for n in 0..64 {
        compare(format!("vs{n} left"), before.vsr[n][0], after.vsr[n][0]);
        compare(format!("vs{n} right"), before.vsr[n][1], after.vsr[n][1]);
    }
    for (offset, (a, b)) in before.zone.iter().zip(&after.zone).enumerate() {
        compare(format!("red zone, doubleword {offset}"), *a, *b);
    }
    compare("VSCR".into(), before.vscr[1], after.vscr[1]);
    compare("CR".into(), before.cr, after.cr);
    compare("LR".into(), before.lr, after.lr);
    compare("CTR".into(), before.ctr, after.ctr);
    compare("XER".into(), before.xer, after.xer);
    compare("TAR".into(), before.tar, after.tar);
    // The other bits may have changed when the patterns were loaded.
    compare("FPSCR".into(), before.fpscr & RN, after.fpscr & RN);
    list
}

fn kept(save: Save, spoil: fn(&mut EbbContext<'_>)) -> Outcome {
    let pattern = Registers::pattern();
    let mut held = Registers::zero();

    // Runs without EBBs first: a change then is a fault of `hold_registers`.
    //
    // SAFETY: Both pointers are to `Registers`, and there are no signal handlers.
    unsafe { registers::hold_registers(&pattern, &mut held, 100) };
    let list = differences(&pattern, &held);
    check!(list.is_empty(), "without EBB: {list:#?}");

    let event = begin(save, spoil)?;
    let before = ebb::count();
    held = Registers::zero();
    // SAFETY: Both pointers are to `Registers`; there are no signal handlers, and the EBB handler
    // sets the registers that it needs.
    unsafe { registers::hold_registers(&pattern, &mut held, 400_000) };
    let came = ebb::count() - before;
    session::end(event)?;
    check!(came >= 20, "only {came} EBBs came");
    let list = differences(&pattern, &held);
    check!(list.is_empty(), "after {came} EBBs: {list:#?}");
    Ok(())
}

/// EBBs at which the handler saw the pattern, and the pattern.
static MATCHES: AtomicU64 = AtomicU64::new(0);
static PATTERN: [AtomicU64; 35] = [const { AtomicU64::new(0) }; 35];

/// Counts the EBBs at which the registers have the pattern.
fn compare(context: &mut EbbContext<'_>) {
    let seen = |n: usize| match n {
        32 => context.link_register(),
        33 => context.tar(),
        34 => context.condition_register(),
        _ => context.gpr(n).unwrap_or(0),
    };
    let known = (0..35).filter(|n| ![1, 13, 31].contains(n));
    let same = known
        .clone()
        .filter(|&n| seen(n) == PATTERN[n].load(Relaxed))
        .count();
    if same == known.count() {
        MATCHES.fetch_add(1, Relaxed);
    }
}

fn registers_are_shown(save: Save) -> Outcome {
    let pattern = Registers::pattern();
    let rest = [pattern.lr, pattern.tar, pattern.cr];
    for (place, value) in PATTERN.iter().zip(pattern.gpr.iter().chain(&rest)) {
        place.store(*value, Relaxed);
    }
    let mut held = Registers::zero();
    let event = begin(save, compare)?;
    let before = ebb::count();
    // SAFETY: Both pointers are to `Registers`, and there are no signal handlers.
    unsafe { registers::hold_registers(&pattern, &mut held, 400_000) };
    let came = ebb::count() - before;
    session::end(event)?;
    let same = MATCHES.load(Relaxed);
    // One or two EBBs came outside of the loop.
    check!(came >= 20 && same + 3 >= came, "{same} of {came} EBBs");
    Ok(())
}

/// EBBs that interrupted the loop.
static IN_LOOP: AtomicU64 = AtomicU64::new(0);

/// Returns whether the interrupted code is the endless loop.
fn in_loop(context: &EbbContext<'_>) -> bool {
    // The loop is the one instruction before `loop_end`.
    context.interrupted() + 4 == escape::loop_end as *const () as u64
}

/// Ends the loop in the fifth EBB, by changing the address at which the program continues.
fn move_on(context: &mut EbbContext<'_>) {
    if !in_loop(context) {
        return;
    }
    if IN_LOOP.fetch_add(1, Relaxed) == 4 {
        let end = escape::loop_end as *const () as u64;
        // SAFETY: The loop's registers are those that the code at its end expects.
        unsafe { context.set_interrupted(end) };
    }
}

/// EBBs at which the context hid r14 and above. With the short entry these are not saved; the other
/// registers are readable.
static HIDDEN: AtomicU64 = AtomicU64::new(0);

fn moved(save: Save) -> Outcome {
    let event = begin(save, |context| {
        let argument = context.gpr(3) == Some(0x1234);
        let hidden = context.gpr(14).is_none() && context.gpr(32).is_none();
        if in_loop(context) && argument && hidden {
            HIDDEN.fetch_add(1, Relaxed);
        }
        move_on(context);
    })?;
    let n = escape::loop_until_moved(0x1234);
    session::end(event)?;
    check!(n == 0x1234, "{n:#x}");
    let (came, hidden) = (IN_LOOP.load(Relaxed), HIDDEN.load(Relaxed));
    let expected = if save == Save::Gprs { 5 } else { 0 };
    check!(came == 5, "{came} EBBs in the loop");
    check!(hidden == expected, "{hidden} EBBs, {expected} expected");
    Ok(())
}

/// A handler that is a closure uses the reference that it has captured, not the one of the handler
/// before.
fn captured_reference() -> Outcome {
    let counts = [(); 2].map(|()| &*Box::leak(Box::new(AtomicU64::new(0))));
    for seen in counts {
        let event = begin(Save::Full, move |context| {
            seen.store(context.number(), Relaxed);
        })?;
        session::wait_for(20, PERIOD)?;
        ebb::disable();
        let seen = seen.load(Relaxed);
        check!(seen == ebb::count(), "{seen} of {}", ebb::count());
        session::end(event)?;
    }
    Ok(())
}

/// Assembly that changes the accumulators, which share VSR 0-31.
macro_rules! asm_on_accumulators {
    ($($code:tt)*) => {
        std::arch::asm!(
            $($code)*,
            out("f0") _, out("f1") _, out("f2") _, out("f3") _, out("f4") _, out("f5") _,
            out("f6") _, out("f7") _, out("f8") _, out("f9") _, out("f10") _, out("f11") _,
            out("f12") _, out("f13") _, out("f14") _, out("f15") _, out("f16") _, out("f17") _,
            out("f18") _, out("f19") _, out("f20") _, out("f21") _, out("f22") _, out("f23") _,
            out("f24") _, out("f25") _, out("f26") _, out("f27") _, out("f28") _, out("f29") _,
            out("f30") _, out("f31") _,
        )
    };
}

/// Clears all accumulators with xxsetaccz.
fn clear_accumulators(_: &mut EbbContext<'_>) {
    // SAFETY: All registers that change are named.
    unsafe {
        asm_on_accumulators!(
            ".irp n, 0, 1, 2, 3, 4, 5, 6, 7",
            ".long 0x7c030162 | (\\n << 23)",
            ".endr"
        );
    }
}

/// EBBs preserve the accumulators of the Matrix-Multiply Assist, between xxmtacc and xxmfacc.
fn accumulators() -> Outcome {
    const PPC_FEATURE2_MMA: u64 = 0x0002_0000;
    // SAFETY: The call only reads the auxiliary vector.
    if unsafe { libc::getauxval(libc::AT_HWCAP2) } & PPC_FEATURE2_MMA == 0 {
        return ktap::skip("this CPU has no Matrix-Multiply Assist");
    }
    let pattern: [u64; 64] = std::array::from_fn(|n| 0x0101_0101_0101_0101 * (n as u64 + 1));
    let mut held = [0_u64; 64];
    let event = session::begin(CYCLES, PERIOD, clear_accumulators)?;
    let before = ebb::count();
    // SAFETY: Both arrays have room for 32 registers of 16 bytes; all registers that change are
    // named.
    unsafe {
        asm_on_accumulators!(
            ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
            "li {at}, 16 * \\n",
            "lxvd2x \\n, {from}, {at}",
            ".endr",
            ".irp n, 0, 1, 2, 3, 4, 5, 6, 7",
            ".long 0x7c010162 | (\\n << 23)",
            ".endr",
            "2: addi {spins}, {spins}, -1",
            "cmpdi {spins}, 0",
            "bne 2b",
            ".irp n, 0, 1, 2, 3, 4, 5, 6, 7",
            ".long 0x7c000162 | (\\n << 23)",
            ".endr",
            ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
            "li {at}, 16 * \\n",
            "stxvd2x \\n, {to}, {at}",
            ".endr",
            from = in(reg_nonzero) pattern.as_ptr(),
            to = in(reg_nonzero) held.as_mut_ptr(),
            spins = inout(reg_nonzero) 400_000_u64 => _,
            at = out(reg_nonzero) _,
            out("cr0") _
        );
    }
    let came = ebb::count() - before;
    session::end(event)?;
    check!(came >= 40, "only {came} EBBs came");
    check!(held == pattern, "after {came} EBBs: {held:x?}");
    Ok(())
}

/// A number to which the program adds with larx and stcx., the handler with a load and a store.
static SHARED: AtomicU64 = AtomicU64::new(0);

fn add_plainly(_: &mut EbbContext<'_>) {
    SHARED.store(SHARED.load(Relaxed) + 1, Relaxed);
}

fn conditional_store() -> Outcome {
    const ADDITIONS: u64 = 1_000_000;
    let event = session::begin(CYCLES, 1009, add_plainly)?;
    for _ in 0..ADDITIONS {
        SHARED.fetch_add(1, Relaxed);
    }
    session::end(event)?;
    let (sum, came) = (SHARED.load(Relaxed), ebb::count());
    check!(came > 1000, "only {came} EBBs came");
    check!(sum == ADDITIONS + came, "{sum}, not {ADDITIONS} + {came}");
    Ok(())
}

ktap::main! {
    first: session::require_ebb;
    gprs_are_kept = kept(Save::Gprs, spoil_gprs), all_are_kept = kept(Save::Full, spoil_all),
    accumulators, conditional_store,
    registers_are_shown_all_gprs = registers_are_shown(Save::AllGprs),
    registers_are_shown_full = registers_are_shown(Save::Full),
    moved_on_gprs = moved(Save::Gprs), moved_on_full = moved(Save::Full), captured_reference,
}
