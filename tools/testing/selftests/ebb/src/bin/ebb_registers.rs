// SPDX-License-Identifier: GPL-2.0
//! An EBB leaves the program as it was: every register, the red zone, and what
//! it is about to store conditionally.

use ebb::EbbContext;
use ebb_selftests::registers;
use ebb_selftests::registers::Registers;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ktap::Outcome;
use ktap::check;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

fn spoil(_: &mut EbbContext<'_>) {
    registers::spoil_registers();
}

/// FPSCR\[DRN\] and \[RN\].
const RN: u64 = 7 << 32 | 3;

/// The names and values of what differs.
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
    // The rest may hold what the CPU made of loading the patterns.
    compare("FPSCR".into(), before.fpscr & RN, after.fpscr & RN);
    list
}

fn all_registers() -> Outcome {
    const PERIOD: u32 = 5000;
    let pattern = Registers::pattern();
    let mut held = Registers::zero();

    // Without EBBs first: what changes then is the routine's fault.
    // SAFETY: both point at `Registers`, and there are no signal handlers.
    unsafe { registers::hold_registers(&pattern, &mut held, 100) };
    let list = differences(&pattern, &held);
    check!(list.is_empty(), "without EBB: {list:#?}");

    let event = session::begin(CYCLES, PERIOD, spoil)?;
    let before = ebb::count();
    held = Registers::zero();
    // SAFETY: as before; the EBB handler sets what it needs.
    unsafe { registers::hold_registers(&pattern, &mut held, 400_000) };
    let came = ebb::count() - before;
    session::end(event)?;
    check!(came >= 40, "only {came} EBBs came");
    let list = differences(&pattern, &held);
    check!(list.is_empty(), "after {came} EBBs: {list:#?}");
    Ok(())
}

/// Assembly that changes the accumulators, which lie over VSR 0-31.
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

/// Clears all accumulators: xxsetaccz.
fn clear_accumulators(_: &mut EbbContext<'_>) {
    // SAFETY: what changes is named.
    unsafe {
        asm_on_accumulators!(
            ".irp n, 0, 1, 2, 3, 4, 5, 6, 7",
            ".long 0x7c030162 | (\\n << 23)",
            ".endr"
        );
    }
}

/// The Matrix-Multiply Assist's accumulators, between xxmtacc and xxmfacc.
fn accumulators() -> Outcome {
    const PPC_FEATURE2_MMA: u64 = 0x0002_0000;
    const PERIOD: u32 = 5000;
    // SAFETY: only reads the auxiliary vector.
    if unsafe { libc::getauxval(libc::AT_HWCAP2) } & PPC_FEATURE2_MMA == 0 {
        return ktap::skip("this CPU has no Matrix-Multiply Assist");
    }
    let pattern: [u64; 64] = std::array::from_fn(|n| 0x0101_0101_0101_0101 * (n as u64 + 1));
    let mut held = [0_u64; 64];
    let event = session::begin(CYCLES, PERIOD, clear_accumulators)?;
    let before = ebb::count();
    // SAFETY: both arrays have 32 registers of 16 bytes; what changes is named.
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

/// A number that the program adds to by larx and stcx., the handler by a load and
/// a store.
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
    all_registers, accumulators, conditional_store,
}
