// SPDX-License-Identifier: GPL-2.0

//! CPU hotplug, and the functions of the machine.

use crate::{
    cpu::CPUS,
    prelude::{c_char, c_int, c_uint},
};
use std::cell::RefCell;

pub type cpuhp_state = c_int;
pub const cpuhp_state_CPUHP_BP_PREPARE_DYN: cpuhp_state = 1;
pub const cpuhp_state_CPUHP_AP_ONLINE_DYN: cpuhp_state = 2;
/// Number of CPUs that the kernel is built for.
pub const NR_CPUS: c_uint = CPUS;

/// A callback for one CPU.
pub type Callback = Option<unsafe extern "C" fn(c_uint) -> c_int>;

/// A hotplug state that a CPU passes on its way up.
#[derive(Clone, Copy)]
struct State {
    number: cpuhp_state,
    runs_on_cpu: bool,
    startup: Callback,
    teardown: Callback,
}

thread_local! {
    static STATES: RefCell<Vec<State>> = const { RefCell::new(Vec::new()) };
}

/// Calls a callback for a CPU, on that CPU if `on_cpu`.
fn call(callback: Callback, cpu: c_uint, on_cpu: bool) {
    let before = crate::cpu::CpuId::current().as_u32();
    if on_cpu {
        switch_to(cpu);
    }
    if let Some(callback) = callback {
        // SAFETY: The module registered the callback, and is still loaded.
        assert_eq!(unsafe { callback(cpu) }, 0);
    }
    switch_to(before);
}

thread_local! {
    static SWITCH: std::cell::Cell<Option<fn(u32)>> = const { std::cell::Cell::new(None) };
}

/// Sets the function that switches to another CPU.
pub fn set_switch(switch: fn(u32)) {
    SWITCH.set(Some(switch));
}

fn switch_to(cpu: u32) {
    match SWITCH.get() {
        Some(switch) => switch(cpu),
        None => crate::cpu::set_current(cpu),
    }
}

pub unsafe fn __cpuhp_setup_state(
    state: cpuhp_state,
    _name: *const c_char,
    invoke: bool,
    startup: Callback,
    teardown: Callback,
    _multi: bool,
) -> c_int {
    let new = STATES.with_borrow_mut(|states| {
        let new = State {
            number: states.last().map_or(100, |last| last.number + 1),
            runs_on_cpu: state == cpuhp_state_CPUHP_AP_ONLINE_DYN,
            startup,
            teardown,
        };
        states.push(new);
        new
    });
    if invoke {
        (0..CPUS).for_each(|cpu| call(startup, cpu, new.runs_on_cpu));
    }
    new.number
}

pub unsafe fn __cpuhp_remove_state(number: cpuhp_state, invoke: bool) {
    let removed = STATES.with_borrow_mut(|states| {
        let at = states.iter().position(|state| state.number == number);
        states.remove(at.expect("a state that was set up"))
    });
    if invoke {
        (0..CPUS).for_each(|cpu| call(removed.teardown, cpu, removed.runs_on_cpu));
    }
}

/// Takes a CPU offline: calls the teardown callbacks that run on it.
pub fn take_down(cpu: u32) {
    let states = STATES.with_borrow(|states| states.clone());
    for state in states.iter().rev().filter(|state| state.runs_on_cpu) {
        call(state.teardown, cpu, true);
    }
}

/// Brings a CPU online: calls the callbacks that run before it starts, `start`, and then those that
/// run on it.
pub fn bring_up(cpu: u32, start: impl FnOnce()) {
    let states = STATES.with_borrow(|states| states.clone());
    for state in states.iter().filter(|state| !state.runs_on_cpu) {
        call(state.startup, cpu, false);
    }
    start();
    for state in states.iter().filter(|state| state.runs_on_cpu) {
        call(state.startup, cpu, true);
    }
}

/// The machine's functions.
pub struct machdep_calls {
    /// Turns the PMU's registers on.
    pub enable_pmcs: Option<unsafe extern "C" fn()>,
}

/// The functions of the machine, which call the function of [`set_enable_pmcs`].
pub static mut ppc_md: machdep_calls = machdep_calls {
    enable_pmcs: Some(enable_pmcs),
};

thread_local! {
    static ENABLE_PMCS: std::cell::Cell<Option<fn()>> = const { std::cell::Cell::new(None) };
}

/// Sets the function that turns the PMU's registers on.
pub fn set_enable_pmcs(enable: fn()) {
    ENABLE_PMCS.set(Some(enable));
}

unsafe extern "C" fn enable_pmcs() {
    if let Some(enable) = ENABLE_PMCS.get() {
        enable();
    }
}
