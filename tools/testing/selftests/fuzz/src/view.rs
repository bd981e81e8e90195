// SPDX-License-Identifier: GPL-2.0
//! What a program can see of the PMU, and whether it is its own.

use ebb::reg::Mmcr0;
use ktap::Failure;
use ktap::check;

use crate::marks;
use crate::random::Random;
use crate::registers;

/// Looks at what a program can see of the PMU, as its number; fails if it is another one's. MMCR2
/// may have bits of the kernel if `kernel_mmcr2`. Returns how many counters could be read.
pub fn look(number: u64, kernel_mmcr2: bool, random: &mut Random) -> Result<u64, Failure> {
    let first = &registers::PMCS[random.below(6) as usize];
    // Most of the time there is nothing to be seen, and each look takes a signal.
    let counters = match first.read() {
        Some(_) => &registers::PMCS[..],
        None => &registers::PMCS[..random.below(2) as usize],
    };
    let mut seen = 0;
    for pmc in counters {
        if let Some(value) = pmc.read() {
            let foreign = marks::is_foreign_counter(number, value);
            check!(!foreign, "{} is another program's: {value:#x}", pmc.name);
            seen += 1;
        }
    }
    if seen > 0 || random.once_in(16) {
        let mmcr0 = registers::MMCR0[0].read().unwrap_or(0);
        let kernels = Mmcr0(mmcr0).without(Mmcr0::FC | Mmcr0::PMAE | Mmcr0::PMAO);
        check!(
            kernels == Mmcr0(0),
            "MMCR0 has bits of the kernel: {mmcr0:#x}"
        );
        let mmcr2 = registers::MMCR2[0].read().unwrap_or(0);
        let foreign = !kernel_mmcr2 && marks::is_foreign_mmcr2(number, mmcr2);
        check!(!foreign, "MMCR2 is another program's: {mmcr2:#x}");
    }
    if random.once_in(4) {
        for register in &registers::ADDRESSES {
            let value = register.read().unwrap_or(0);
            let foreign = marks::is_foreign_address(number, value);
            check!(
                !foreign,
                "{} is another program's: {value:#x}",
                register.name
            );
        }
        let _ = registers::OTHERS[random.below(registers::OTHERS.len() as u64) as usize].read();
    }
    // All if the first can be read.
    for n in 0..registers::BHRB_ENTRIES {
        let Some(address) = registers::bhrb(n) else {
            break;
        };
        let foreign = marks::is_foreign_address(number, address) || address >> 62 != 0;
        check!(
            !foreign,
            "BHRB entry {n} is not this program's: {address:#x}"
        );
    }
    Ok(seen)
}
