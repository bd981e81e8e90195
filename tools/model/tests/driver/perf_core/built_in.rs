// SPDX-License-Identifier: GPL-2.0

//! The driver that is built into the kernel, beside which the driver is interposed. It has the
//! callbacks of `arch/powerpc/perf/core-book3s.c` in Linux 7.3, and writes to the PMU at the same
//! places. But it programs the PMU at random, so its events count nothing useful. It records an
//! error if perf core or the driver breaks a rule that it relies on.

use super::PerfCore;
use crate::{
    machine::{Handler, ensure, execute, with_cpu, with_machine},
    perf_bindings::*,
    power::bindings::{ebb_pmu_ppc_set_pmu_inuse, release_pmc_hardware, reserve_pmc_hardware},
};
use kernel::{
    bindings::{pt_regs, task_struct},
    cpu::{CPUS, CpuId},
    ffi::{c_int, c_uint},
};
use pmu_model::{Isa, Random, mmcr0, mmcr2, mmcra, spr};
use std::cell::{Cell, RefCell};

const EAGAIN: c_int = -11;
const EBUSY: c_int = -16;
const EINVAL: c_int = -22;
const EBB: u64 = 1 << 63;

/// Number of counters, and so the largest number of events on a CPU.
const MOST: usize = 6;

/// The state of a CPU (`struct cpu_hw_events`).
#[derive(Default)]
struct Cpu {
    events: RefCell<Vec<*mut perf_event>>,
    disabled: Cell<bool>,
    added: Cell<bool>,
    txn: Cell<c_uint>,
    /// Value of MMCR0 while its events run.
    mmcr0: Cell<u64>,
    /// Value of MMCR1 for which the other driver has used the PMU.
    others_mmcr1: Cell<u64>,
    /// Another driver has used the PMU since this driver last started it.
    is_others: Cell<bool>,
}

struct State {
    cpus: [Cpu; CPUS as usize],
    users: Cell<u32>,
    random: RefCell<Random>,
}

thread_local! {
    static STATE: State = State {
        cpus: Default::default(),
        users: Cell::new(0),
        random: RefCell::new(Random::new(1)),
    };
}

/// Sets the callbacks.
pub fn fill(pmu: &mut pmu) {
    pmu.type_ = perf_type_id_PERF_TYPE_RAW as c_int;
    pmu.event_init = Some(event_init);
    pmu.pmu_enable = Some(pmu_enable);
    pmu.pmu_disable = Some(pmu_disable);
    pmu.add = Some(add);
    pmu.del = Some(del);
    pmu.start = Some(start_or_stop);
    pmu.stop = Some(start_or_stop);
    pmu.read = Some(read);
    pmu.start_txn = Some(start_txn);
    pmu.commit_txn = Some(commit_txn);
    pmu.cancel_txn = Some(cancel_txn);
    pmu.sched_task = Some(sched_task);
    pmu.event_idx = Some(event_idx);
}

/// Resets the state of all CPUs, for a boot.
pub fn restart(seed: u64) {
    STATE.with(|state| {
        (0..CPUS).for_each(prepare_cpu);
        state.users.set(0);
        *state.random.borrow_mut() = Random::new(seed);
    });
}

/// Resets the state of a CPU that comes online (`power_pmu_prepare_cpu()`).
pub fn prepare_cpu(cpu: u32) {
    STATE.with(|state| {
        let cpu = &state.cpus[cpu as usize];
        cpu.events.borrow_mut().clear();
        cpu.disabled.set(false);
        cpu.added.set(false);
        cpu.txn.set(0);
        cpu.mmcr0.set(mmcr0::FC);
        cpu.is_others.set(false);
    });
}

/// Records that an EBB event of the other driver is on the PMU of this CPU.
pub fn others_run() {
    this_cpu(|cpu| {
        cpu.is_others.set(true);
        let mmcr1 = with_cpu(|cpu| cpu.facility.mfspr(spr::MMCR1));
        cpu.others_mmcr1.set(mmcr1);
        let none = cpu.events.borrow().is_empty();
        ensure(none, || "both drivers have events on a PMU".into());
    });
}

/// Returns whether another driver was the last one to use the PMU of a CPU.
pub fn is_others(cpu: usize) -> bool {
    STATE.with(|state| state.cpus[cpu].is_others.get())
}

/// Records that the other driver was unloaded, so all PMUs belong to this driver.
pub fn take_back() {
    STATE.with(|state| state.cpus.iter().for_each(|cpu| cpu.is_others.set(false)));
}

fn this_cpu<R>(f: impl FnOnce(&Cpu) -> R) -> R {
    STATE.with(|state| f(&state.cpus[CpuId::current().as_u32() as usize]))
}

fn random() -> u64 {
    STATE.with(|state| state.random.borrow_mut().bits())
}

fn mfspr(number: u32) -> u64 {
    execute(|facility| facility.mfspr(number))
}

fn mtspr(number: u32, value: u64) {
    let is_usable = with_cpu(|cpu| cpu.pmcs_enabled);
    ensure(is_usable, || {
        "the built-in driver has not enabled the PMU".into()
    });
    execute(|facility| facility.mtspr_delayed(number, value));
}

fn is_v31() -> bool {
    with_machine(|machine| machine.kind.processor.isa() >= Isa::V31)
}

/// Returns whether an event asks for EBBs.
unsafe fn is_ebb(event: *mut perf_event) -> bool {
    // SAFETY: The caller passes an event of perf core, which is alive during a callback.
    unsafe { (*event).attr.config & EBB != 0 }
}

unsafe extern "C" fn event_init(event: *mut perf_event) -> c_int {
    // SAFETY: perf core opens the event, and holds its leader.
    unsafe {
        if is_ebb((*event).group_leader) != is_ebb(event) {
            return EINVAL;
        }
    }
    let is_first = STATE.with(|state| state.users.get() == 0);
    if is_first {
        // SAFETY: The handler is a function of this file.
        let errno = unsafe { reserve_pmc_hardware(Some(handle as Handler)) };
        if errno != 0 {
            return EBUSY;
        }
    }
    STATE.with(|state| state.users.set(state.users.get() + 1));
    // SAFETY: perf core opens the event, so it is alive.
    unsafe { (*event).destroy = Some(destroy) };
    0
}

unsafe extern "C" fn destroy(_event: *mut perf_event) {
    let users = STATE.with(|state| {
        state.users.set(state.users.get() - 1);
        state.users.get()
    });
    if users == 0 {
        // SAFETY: The first event has reserved the hardware.
        unsafe { release_pmc_hardware() };
    }
}

unsafe extern "C" fn pmu_disable(_pmu: *mut pmu) {
    if this_cpu(|cpu| cpu.disabled.replace(true)) {
        return;
    }
    let v31 = is_v31();
    with_cpu(|cpu| cpu.pmcs_enabled = true);
    let found = mfspr(spr::MMCR0);
    // Unless another driver had the PMU, EBE may be a value that KVM left of a guest.
    let is_programs = found & mmcr0::EBE != 0 && this_cpu(|cpu| cpu.is_others.get());
    ensure(!is_programs, || {
        "the built-in driver disables a PMU with EBBs".into()
    });
    if found & mmcr0::EBE != 0 {
        save_program_registers(found);
    }
    let access = mmcr0::EBE | mmcr0::BHRBA | mmcr0::PMCC | mmcr0::PMAO | mmcr0::PMAE;
    let value = found & !(access | mmcr0::FC56) | mmcr0::FC;
    mtspr(spr::MMCR0, value | if v31 { mmcr0::PMCCEXT } else { 0 });
    crate::power::spr::synchronize();
    with_cpu(|cpu| cpu.pmi_pending = false);
    mtspr(spr::MMCRA, if v31 { mmcra::BHRBRD } else { 0 });
    crate::power::spr::synchronize();
    mtspr(spr::SDAR, 0);
    mtspr(spr::SIAR, 0);
}

/// Saves registers in the current task, as if its EBB group were on the PMU (`ebb_switch_out()`).
fn save_program_registers(mmcr0: u64) {
    const USER: u64 = mmcr0::FC | mmcr0::PMAE | mmcr0::PMAO;
    let [mmcr2, siar, sdar, sier] = [spr::MMCR2, spr::SIAR, spr::SDAR, spr::SIER].map(mfspr);
    // SAFETY: There always is a current task, and this is the only thread.
    let thread = unsafe { &mut (*crate::power::spr::current_task()).thread };
    thread.mmcr0 = (mmcr0 & USER) as _;
    thread.mmcr2 = (mmcr2 & mmcr2::FREEZE) as _;
    (thread.siar, thread.sdar, thread.sier) = (siar as _, sdar as _, sier as _);
}

unsafe extern "C" fn pmu_enable(_pmu: *mut pmu) {
    let (disabled, none) = this_cpu(|cpu| (cpu.disabled.get(), cpu.events.borrow().is_empty()));
    if !disabled {
        return;
    }
    if none {
        // SAFETY: The function only writes the lppaca of this CPU.
        return unsafe { ebb_pmu_ppc_set_pmu_inuse(false) };
    }
    ensure(!this_cpu(|cpu| cpu.is_others.get()), || {
        "the built-in driver enables a PMU that another one has".into()
    });
    this_cpu(|cpu| cpu.disabled.set(false));
    if this_cpu(|cpu| cpu.added.replace(false)) {
        // SAFETY: The function only writes the lppaca of this CPU.
        unsafe { ebb_pmu_ppc_set_pmu_inuse(true) };
        // Its events may be the ones that the other driver counted.
        let mmcr1 = if random() & 1 == 0 {
            random()
        } else {
            this_cpu(|cpu| cpu.others_mmcr1.get())
        };
        mtspr(spr::MMCR1, mmcr1);
        mtspr(spr::MMCR2, random() & !mmcr2::FREEZE);
        if is_v31() {
            mtspr(spr::MMCR3, random());
        }
        for number in spr::PMC1..=spr::PMC6 {
            // The driver does not write counters that it does not use.
            if random() & 1 != 0 {
                mtspr(number, random() & 0x7fff_ffff);
            }
        }
        let alerts = mmcr0::PMAE | mmcr0::FCECE | mmcr0::PMC1CE | mmcr0::PMCJCE;
        this_cpu(|cpu| cpu.mmcr0.set(if random() & 1 == 0 { alerts } else { 0 }));
    }
    mtspr(spr::MMCR0, this_cpu(|cpu| cpu.mmcr0.get()));
}

unsafe extern "C" fn add(event: *mut perf_event, _flags: c_int) -> c_int {
    let core = PerfCore::get();
    core.perf_pmu_disable();
    let result = this_cpu(|cpu| {
        let mut events = cpu.events.borrow_mut();
        ensure(cpu.disabled.get(), || {
            "the built-in driver has not disabled the PMU".into()
        });
        if events.len() >= MOST || random().is_multiple_of(16) {
            return EAGAIN;
        }
        events.push(event);
        cpu.added.set(true);
        0
    });
    if this_cpu(|cpu| cpu.is_others.replace(false)) {
        check_given_back();
    }
    core.perf_pmu_enable();
    result
}

/// Checks a PMU that the other driver has given back, which programs may read from now on.
fn check_given_back() {
    let others = [spr::MMCR2, spr::SIAR, spr::SDAR, spr::SIER];
    let v31 = is_v31()
        .then_some([spr::SIER2, spr::SIER3])
        .into_iter()
        .flatten();
    for number in (spr::PMC1..=spr::PMC6).chain(others).chain(v31) {
        let left = with_cpu(|cpu| cpu.facility.mfspr(number));
        // The kernel may have stepped over a probe since.
        let is_probe = [spr::SIAR, spr::SDAR].contains(&number) && left >> 63 != 0;
        ensure(left == 0 || is_probe, || {
            format!("SPR {number} is {left:#x} as the built-in driver gets it")
        });
    }
    let found = with_cpu(|cpu| cpu.facility.mfspr(spr::MMCR0));
    ensure(found & mmcr0::FC != 0, || {
        "the built-in driver gets a PMU that runs".into()
    });
}

unsafe extern "C" fn del(event: *mut perf_event, _flags: c_int) {
    let core = PerfCore::get();
    core.perf_pmu_disable();
    this_cpu(|cpu| {
        let mut events = cpu.events.borrow_mut();
        let before = events.len();
        events.retain(|other| *other != event);
        ensure(events.len() + 1 == before, || {
            "an event that the built-in driver does not have is deleted".into()
        });
    });
    core.perf_pmu_enable();
}

/// Does nothing, because the counter of an event without a period is never restarted.
unsafe extern "C" fn start_or_stop(_event: *mut perf_event, _flags: c_int) {}

/// Stores the value of an EBB event's counter as its count, for the next time that it is on a PMU.
unsafe extern "C" fn read(event: *mut perf_event) {
    // SAFETY: perf core passes an event that is alive during the callback.
    unsafe {
        let idx = (*event).hw.__bindgen_anon_1.__bindgen_anon_1.idx;
        if is_ebb(event) && (*event).hw.state == 0 && idx > 0 {
            (*event).hw.prev_count = mfspr(spr::PMC1 + idx as u32 - 1) as i64;
        }
    }
}

unsafe extern "C" fn start_txn(_pmu: *mut pmu, flags: c_uint) {
    let before = this_cpu(|cpu| cpu.txn.replace(flags));
    ensure(before == 0, || {
        "a transaction of the built-in driver is open".into()
    });
    if flags == PERF_PMU_TXN_ADD {
        PerfCore::get().perf_pmu_disable();
    }
}

unsafe extern "C" fn cancel_txn(_pmu: *mut pmu) {
    let flags = this_cpu(|cpu| cpu.txn.take());
    ensure(flags != 0, || {
        "no transaction of the built-in driver is open".into()
    });
    if flags == PERF_PMU_TXN_ADD {
        PerfCore::get().perf_pmu_enable();
    }
}

unsafe extern "C" fn commit_txn(_pmu: *mut pmu) -> c_int {
    let flags = this_cpu(|cpu| cpu.txn.get());
    ensure(flags != 0, || {
        "no transaction of the built-in driver is open".into()
    });
    if flags == PERF_PMU_TXN_ADD {
        if random().is_multiple_of(16) {
            return EAGAIN;
        }
        PerfCore::get().perf_pmu_enable();
    }
    this_cpu(|cpu| cpu.txn.set(0));
    0
}

unsafe extern "C" fn sched_task(
    _context: *mut perf_event_pmu_context,
    _task: *mut task_struct,
    _sched_in: bool,
) {
}

unsafe extern "C" fn event_idx(event: *mut perf_event) -> c_int {
    // SAFETY: perf core passes an event that is alive during the callback.
    unsafe { (*event).hw.__bindgen_anon_1.__bindgen_anon_1.idx }
}

/// Handles a PM interrupt. An alert of a guest that KVM ran may come while the PMU is not enabled.
unsafe extern "C" fn handle(_regs: *mut pt_regs) {
    with_cpu(|cpu| cpu.pmcs_enabled = true);
    for number in spr::PMC1..=spr::PMC6 {
        if mfspr(number) >= 1 << 31 {
            mtspr(number, 0);
        }
    }
    let is_others = this_cpu(|cpu| cpu.is_others.get() && cpu.disabled.get());
    ensure(!is_others, || {
        "a PM interrupt of another driver's PMU".into()
    });
    // If the PMU was disabled after the alert, the handler does not start it again.
    let runs = this_cpu(|cpu| {
        if cpu.disabled.get() {
            mmcr0::FC
        } else {
            cpu.mmcr0.get()
        }
    });
    mtspr(spr::MMCR0, runs);
}
