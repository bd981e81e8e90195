// SPDX-License-Identifier: GPL-2.0
//! The control registers contain what an event code requests while the event is on the PMU, and
//! after every task switch.

use ebb::config;
use ebb::config::Ifm;
use ebb::spr;
use ebb_selftests::session;
use ktap::Failure;
use ktap::OrFail;
use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use ktap::process;
use ktap::process::Peer;
use std::time::Duration;

/// PMC1 counts with a source selected in MMCR3: bits 45-46 and 48-53 of a POWER10 event code, here
/// 2 and 0x13.
const WITH_SOURCE: u64 = 0x0013_4000_0001_c040;
/// That event without the source.
const WITHOUT_SOURCE: u64 = 0x1_c040;
/// A marked event on PMC1, with the sampling that it needs (bits 24-28).
const MARKED: u64 = 0x101_01e0;

/// Returns a register of `cpu` as the kernel sees it while the CPU continues its work. The file
/// exists with CONFIG_PMU_SYSFS.
fn kernels_view(cpu: usize, register: &str) -> Result<u64, Failure> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/{register}");
    let Ok(text) = std::fs::read_to_string(&path) else {
        return Err(Failure::Skip("the kernel has no CONFIG_PMU_SYSFS".into()));
    };
    u64::from_str_radix(text.trim(), 16).or_fail(&path)
}

/// Returns MMCR3 with an event of `code` on the PMU: when its task starts, and after switches.
fn mmcr3_of(code: u64) -> Result<Vec<u64>, Failure> {
    const TURNS: usize = 4;
    let [here, there] = cpu::two()?;
    cpu::pin_to(here)?;
    let mut task = Peer::spawn(|parent| {
        cpu::pin_to(there)?;
        let event = session::schedule(&ebb::event(code))?;
        for _ in 0..TURNS {
            event.check_scheduled()?;
            parent.tell()?;
            session::work_during(Duration::from_millis(20));
            // Let other tasks run, too.
            process::give_way();
        }
        Ok(())
    })?;
    let mut values = Vec::new();
    for _ in 0..TURNS {
        task.listen()?;
        values.push(kernels_view(there, "mmcr3")?);
    }
    task.join()?;
    Ok(values)
}

/// PMC1's source is in the upper 15 bits of MMCR3 (ISA v3.1).
fn source_of_mmcr3() -> Outcome {
    if !session::isa_v31() {
        return ktap::skip("MMCR3 exists from ISA v3.1 on");
    }
    let with = mmcr3_of(WITH_SOURCE)?;
    println!("MMCR3 {with:x?}");
    let same = with.iter().all(|&value| value != 0 && value == with[0]);
    check!(same, "MMCR3 with a source: {with:x?}");
    let without = mmcr3_of(WITHOUT_SOURCE)?;
    let none = without.iter().all(|&value| value == 0);
    check!(none, "MMCR3 without a source: {without:x?}");
    Ok(())
}

/// Returns MMCR1 and MMCRA, which the program may read.
fn control() -> [u64; 2] {
    // SAFETY: A read of them has no effect.
    unsafe { [spr::read::<{ spr::MMCR1 }>(), spr::read::<{ spr::MMCRA }>()] }
}

/// The BHRB's filter (MMCRA bits 32-33) and the sampling of a marked event (bit 63) are both set,
/// and survive switches to another EBB task. QEMU shows a program all of MMCRA. By the ISA a program
/// sees only the threshold counter.
fn filter_beside_sampling() -> Outcome {
    const IFM_SHIFT: u32 = 30;
    const SAMPLE_ENABLE: u64 = 1;
    const THRESHOLD_COUNTER: u64 = 0x3ff8_0000;
    cpu::pin()?;
    for ifm in (0..=3).filter_map(Ifm::new) {
        let event = session::schedule(&ebb::event(MARKED | config::bhrb(ifm)))?;
        let first = control();
        println!("MMCR1, MMCRA: {first:x?}");
        let [_, mmcra] = first;
        if mmcra & !THRESHOLD_COUNTER == 0 {
            return ktap::skip("MMCRA shows only the threshold counter");
        }
        check!(
            mmcra & SAMPLE_ENABLE != 0 && mmcra >> IFM_SHIFT & 3 == ifm as u64,
            "filter {ifm:?}: MMCRA is {mmcra:#x}"
        );
        let mut neighbour = Peer::spawn(|parent| {
            let _event = session::without_handler()?;
            for _ in 0..10 {
                parent.tell()?;
                parent.listen()?;
            }
            Ok(())
        })?;
        for turn in 0..10 {
            neighbour.listen()?;
            let now = control();
            check!(now == first, "turn {turn}: {first:x?} became {now:x?}");
            neighbour.tell()?;
        }
        neighbour.join()?;
        event.close();
    }
    Ok(())
}

ktap::main! {
    first: session::require_ebb;
    source_of_mmcr3, filter_beside_sampling,
}
