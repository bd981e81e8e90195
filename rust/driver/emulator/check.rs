// SPDX-License-Identifier: GPL-2.0

//! The check of an alert that its program could not take at once, made in the timer's interrupt.

use super::{
    super::cpu_state::ThisCpu,
    alert_state::{
        Alert,
        EBBRR_UNCHANGED, //
    },
    latch::{
        clear_latch,
        latch_ebb,
        takes_ebbs, //
    }, //
};
use crate::power::regs::{
    Bescr,
    Ebbrr,
    Mmcr0, //
};

/// Checks the alert of the current program. The timer interrupted the program or the kernel.
/// Returns the pause before the next check in nanoseconds; `None` if no check is needed.
pub(super) fn check(this_cpu: &ThisCpu, in_program: bool) -> Option<u64> {
    let mmcr0 = Mmcr0::read();
    if mmcr0.ebe() == 0 || mmcr0.pmao() == 1 {
        // The program's events are off the PMU, or a PMI is due, whose handler will handle the
        // alert.
        return None;
    }
    let state = &this_cpu.alert;
    let bescr = Bescr::read();
    let branched = state.get() == Alert::Latched && Ebbrr::read() != EBBRR_UNCHANGED;
    let enabled_again = mmcr0.pmae() == 1 && state.get() != Alert::NoneWatched;
    if branched || enabled_again {
        state.set(Alert::None);
    }
    match state.get() {
        Alert::NoneWatched => return None,
        Alert::None if takes_ebbs(bescr) => {
            clear_latch(bescr);
            state.set(Alert::NoneWatched);
            return None;
        }
        Alert::Latched | Alert::Waiting if takes_ebbs(bescr) => {
            latch_ebb(this_cpu);
            mmcr0.write();
        }
        _ => {}
    }
    Some(state.next_pause_ns(in_program))
}
