// SPDX-License-Identifier: GPL-2.0

//! Interrupt masks. A pending interrupt is taken when the last mask is turned off.

use super::{MASK_STD, handle, note, take_interrupt, with_cpu};

/// Masks interrupts.
pub fn irq_save(mask: u8) {
    with_cpu(|cpu| cpu.mask |= mask);
}

/// Restores an earlier mask. If it masks nothing, pending interrupts are taken.
pub fn irq_restore(mask: u8) {
    with_cpu(|cpu| cpu.mask = mask);
    if mask != 0 {
        return;
    }
    if with_cpu(|cpu| std::mem::take(&mut cpu.pmi_pending)) {
        with_cpu(|cpu| cpu.facility.context.ee = false);
        note(|| "the PM interrupt is replayed".into());
        handle();
    }
    with_cpu(|cpu| cpu.facility.context.ee = true);
    take_interrupt();
}

/// Runs `f` in a different interrupt, whose handler runs with MSR\[EE\] off. A PM interrupt that is
/// due or becomes due is taken afterwards.
pub fn interrupt<R>(f: impl FnOnce() -> R) -> R {
    with_cpu(|cpu| {
        cpu.facility.synchronize();
        cpu.facility.context.ee = false;
        cpu.mask = MASK_STD;
    });
    let result = f();
    if with_cpu(|cpu| std::mem::take(&mut cpu.pmi_pending)) {
        with_cpu(|cpu| cpu.mask = 0);
        note(|| "the PM interrupt is replayed".into());
        handle();
    }
    with_cpu(|cpu| {
        cpu.facility.synchronize();
        cpu.mask = 0;
        cpu.facility.context.ee = true;
    });
    result
}

/// Calls `f` with interrupts masked.
pub fn irqs_off<R>(f: impl FnOnce() -> R) -> R {
    let before = with_cpu(|cpu| cpu.mask);
    irq_save(MASK_STD);
    let result = f();
    irq_restore(before);
    result
}
