// SPDX-License-Identifier: GPL-2.0

//! perf core's functions that the driver calls, and those of `rust/perf/shim.c`.

#![allow(missing_docs, clippy::missing_safety_doc)]

use super::{Event, PerfCore, Recorded, built_in, sched::call};
use crate::{
    history::oracle,
    machine::{self, Alert, MSR_PR, TIME_BASE_HZ, ensure, execute, note, with_cpu, with_machine},
    perf_bindings::*,
};
use kernel::{
    bindings::{pt_regs, task_struct},
    ffi::{c_char, c_int, c_void},
    zeroed,
};
use pmu_model::{identifying_bits, spr};
use std::{
    array::from_fn,
    cell::{Cell, RefCell, UnsafeCell},
    ptr::null_mut,
    rc::Rc,
};

const ENODEV: c_int = -19;
const ENOENT: c_int = -2;

/// The PMU of the driver that is built into the kernel, which takes every event that counts cycles.
struct BuiltIn(UnsafeCell<pmu>);

thread_local! {
    static BUILT_IN: BuiltIn = {
        let mut pmu: pmu = zeroed();
        pmu.name = c"cpu".as_ptr();
        built_in::fill(&mut pmu);
        BuiltIn(UnsafeCell::new(pmu))
    };
    static IS_REGISTERED: Cell<bool> = const { Cell::new(true) };
    /// Events that the kernel itself has opened.
    static KERNEL_EVENTS: RefCell<Vec<Rc<Event>>> = const { RefCell::new(Vec::new()) };
    /// The number of references to the module, and whether it is being removed.
    static MODULE: Cell<(u32, bool)> = const { Cell::new((0, false)) };
}

pub fn built_in() -> *mut pmu {
    BUILT_IN.with(|built_in| built_in.0.get())
}

/// Returns whether there are references to the module.
pub fn is_module_used() -> bool {
    MODULE.get().0 > 0
}

/// Sets whether the module is being removed.
pub fn set_module_going(goes: bool) {
    let (users, _) = MODULE.get();
    ensure(!goes || users == 0, || "the module is in use".into());
    MODULE.set((users, goes));
}

/// Resets the module's references, for a boot.
pub fn restart_module() {
    MODULE.set((0, false));
}

pub unsafe fn ebb_perf_module_get() -> bool {
    let (users, goes) = MODULE.get();
    if !goes {
        MODULE.set((users + 1, goes));
    }
    !goes
}

pub unsafe fn ebb_perf_module_put() {
    let (users, goes) = MODULE.get();
    ensure(users > 0, || "the module has no such reference".into());
    MODULE.set((users.saturating_sub(1), goes));
}

pub unsafe fn ebb_perf_may_disappear(pmu: *const pmu) -> bool {
    !std::ptr::eq(pmu, built_in())
}

pub unsafe fn ebb_perf_events_on_cpu(_pmu: *const pmu) -> c_int {
    PerfCore::get().cpu().active_oncpu.get() as c_int
}

/// Calls `function` on each CPU. In a history all CPUs are in the kernel then, without a task's
/// events on a PMU.
pub unsafe fn ebb_perf_stop_cpus(
    function: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    data: *mut c_void,
) -> c_int {
    let before = kernel::cpu::CpuId::current().as_u32();
    let core = PerfCore::get();
    let mut result = 0;
    for cpu in (0..kernel::cpu::CPUS).filter(|cpu| core.online[*cpu as usize].get()) {
        machine::switch_to(cpu);
        let function = function.expect("a function");
        // SAFETY: The caller guarantees that `function` accepts `data`.
        result = machine::irqs_off(|| unsafe { function(data) });
    }
    machine::switch_to(before);
    result
}

pub unsafe fn ebb_perf_synchronize_rcu_tasks() {}

pub unsafe fn perf_pmu_register(pmu: *mut pmu, name: *const c_char, kind: c_int) -> c_int {
    if pmu == built_in() {
        IS_REGISTERED.set(true);
        return 0;
    }
    // SAFETY: The caller guarantees a complete structure.
    unsafe {
        (*pmu).name = name;
        (*pmu).type_ = kind;
    }
    PerfCore::get().pmu.set(pmu);
    0
}

pub unsafe fn perf_pmu_unregister(pmu: *mut pmu) -> c_int {
    if pmu == built_in() {
        IS_REGISTERED.set(false);
    } else {
        PerfCore::get().pmu.set(null_mut());
    }
    0
}

pub unsafe fn perf_event_create_kernel_counter(
    attr: *mut perf_event_attr,
    _cpu: c_int,
    _task: *mut task_struct,
    _handler: Option<unsafe extern "C" fn()>,
    _context: *mut c_void,
) -> *mut perf_event {
    if !IS_REGISTERED.get() {
        return ENOENT as isize as *mut perf_event;
    }
    // SAFETY: The caller guarantees the attributes.
    let event = Event::new(usize::MAX, built_in(), unsafe { *attr }, (None, None), None);
    let raw = event.raw();
    let core = PerfCore::get();
    if core.pmu() == built_in() {
        let errno = call!(built_in(), event_init(raw));
        if errno != 0 {
            return errno as isize as *mut perf_event;
        }
    }
    KERNEL_EVENTS.with_borrow_mut(|events| events.push(event));
    raw
}

pub unsafe fn perf_event_release_kernel(event: *mut perf_event) -> c_int {
    // SAFETY: The caller guarantees an open event.
    if let Some(destroy) = unsafe { (*event).destroy } {
        // SAFETY: The event is on no CPU, and `destroy` is called once.
        unsafe { destroy(event) };
    }
    KERNEL_EVENTS.with_borrow_mut(|events| events.retain(|other| other.raw() != event));
    0
}

pub unsafe fn ebb_perf_prepare_unregister(event: *mut perf_event) -> c_int {
    // SAFETY: The caller guarantees an open event.
    if unsafe { (*event).pmu } == built_in() && IS_REGISTERED.get() {
        0
    } else {
        ENODEV
    }
}

pub unsafe fn ebb_perf_stop_rotation(_pmu: *mut pmu) {}

pub unsafe fn perf_sample_event_took(nanoseconds: u64) {
    let core = PerfCore::get();
    let took = core.cpu().pmi_time.end() * 1000 / (TIME_BASE_HZ / 1_000_000);
    ensure(nanoseconds == took, || {
        format!("a PM interrupt took {took} ns, not {nanoseconds}")
    });
    core.untimed.set(false);
}

pub unsafe fn perf_sched_cb_inc(_pmu: *mut pmu) {
    let core = PerfCore::get();
    let usage = &core.cpu().sched_cb_usage;
    usage.set(usage.get() + 1);
}

pub unsafe fn perf_sched_cb_dec(_pmu: *mut pmu) {
    let core = PerfCore::get();
    let usage = &core.cpu().sched_cb_usage;
    let users = usage.get();
    ensure(users > 0, || "no user of sched_task".into());
    usage.set(users.saturating_sub(1));
}

/// `__perf_event_overflow()`: throttles the group if there are too many samples, and records one.
pub unsafe fn perf_event_overflow(
    event: *mut perf_event,
    data: *mut perf_sample_data,
    regs: *mut pt_regs,
) -> c_int {
    // SAFETY: The caller guarantees an event that is on this CPU.
    let event = unsafe { Event::from_raw(event) };
    let core = PerfCore::get();
    ensure(event.is_active(), || {
        format!("overflow of event {}, which is on no CPU", event.id)
    });
    // SAFETY: The caller guarantees a sample, initialised as far as its flags say.
    let (data, named) = unsafe { (&*data, (*regs).__bindgen_anon_1.__bindgen_anon_1) };
    // SAFETY: The event's structure is there.
    if unsafe { (*event.raw()).hw.sample_period } == 0 {
        return 0;
    }
    let interrupts = event.interrupts();
    if interrupts != u64::MAX {
        event.set_interrupts(interrupts + 1);
        if interrupts + 1 >= core.max_samples_per_tick.get().into() {
            core.perf_event_throttle_group(event);
        }
    }
    let has = |format: u32| data.sample_flags & u64::from(format) != 0;
    let recorded = Recorded {
        ip: data.ip,
        period: data.period,
        nip: named.nip as u64,
        user: named.msr as u64 & MSR_PR != 0,
        addr: has(perf_event_sample_format_PERF_SAMPLE_ADDR).then_some(data.addr),
        data_src: match has(perf_event_sample_format_PERF_SAMPLE_DATA_SRC) {
            // SAFETY: The union is one number, and set if the flag is.
            true => Some(unsafe { data.data_src.val }),
            false => None,
        },
        weight: match has(perf_event_sample_format_PERF_SAMPLE_WEIGHT) {
            // SAFETY: This member of the union is set if the flag is.
            true => Some(unsafe { data.weight.full }),
            false => None,
        },
    };
    note(|| format!("event {}: sample {recorded:x?}", event.id));
    let counted = event.last_period();
    ensure(counted == recorded.period, || {
        format!(
            "event {}: perf core takes it for {counted} counts",
            event.id
        )
    });
    event.samples.borrow_mut().push(recorded);
    check_sample(event, &recorded);
    let time = &core.cpu().pmi_time;
    let (now, took) = time.pass();
    if time.is_overloaded() {
        event.throttle(recorded.period, now, took);
    }
    core.untimed.set(true);
    core.check_extended_regs(event);
    if has(perf_event_sample_format_PERF_SAMPLE_BRANCH_STACK) {
        // SAFETY: The caller guarantees a stack with as many entries as it says.
        let stack = unsafe {
            let stack = data.br_stack;
            std::slice::from_raw_parts((&raw const (*stack).entries).cast(), (*stack).nr as usize)
        };
        event.branches.set(Some(stack.to_vec()));
    }
    0
}

/// Checks SIER2 and SIER3, which from v3.1 on describe the sampled instruction, or are 0.
fn check_sier2_sier3(event: &Event, alert: Option<Alert>) {
    let (found, is_v31) = with_cpu(|cpu| {
        let found = [spr::SIER2, spr::SIER3].map(|number| cpu.facility.mfspr(number));
        (found, cpu.facility.has_spr(spr::SIER2))
    });
    let Some(alert) = alert.filter(|_| is_v31) else {
        return;
    };
    let is_hidden = event.excludes_kernel() && alert.siar >> 63 != 0;
    let described = alert
        .sampled
        .map_or(alert.siar, |sampled| sampled.described);
    let bits = if is_hidden {
        0
    } else {
        identifying_bits(described)
    };
    // For a marked instruction they have more bits.
    let is_known = alert.is_sier_known && !alert.is_marking || is_hidden;
    // The driver clears them in an interrupt without an alert, and one may occur then.
    let is_cleared = alert.is_late && found == [0; 2];
    ensure(!is_known || is_cleared || found == [bits; 2], || {
        let id = event.id;
        format!("event {id}: a sample shows SIER2, SIER3 {found:x?}, not {bits:x}")
    });
}

/// Checks a sample as it is recorded.
fn check_sample(event: &Event, sample: &Recorded) {
    let processor = with_cpu(|cpu| cpu.facility.processor());
    let alert = with_machine(|machine| machine.alert).expect("a PM interrupt");
    if let Err(why) = oracle::check_sample(processor, event, sample, alert) {
        let id = event.id;
        kernel::complain(format_args!("event {id}: {sample:x?}: {why}; {alert:x?}"));
    }
}

/// Checks of the PMU's registers in a sample, if the event requests them (`get_ext_regs_value()`,
/// which reads them as the sample is written).
impl PerfCore {
    fn check_extended_regs(&self, event: &Event) {
        let intr = u64::from(perf_event_sample_format_PERF_SAMPLE_REGS_INTR);
        if event.attr().sample_type & intr == 0 {
            return;
        }
        // perf core does some work of its own before it reads them.
        (0..4).for_each(|_| execute(|_| ()));
        let (shown, addresses) = with_cpu(|cpu| {
            let addresses = [spr::SIAR, spr::SDAR].map(|number| cpu.facility.mfspr(number));
            (cpu.ext_regs, addresses)
        });
        let id = event.id;
        ensure(event.may_show(addresses[1]), || {
            format!("event {id}: a sample shows {addresses:x?}")
        });
        let alert = with_machine(|machine| machine.alert);
        let hides = event.excludes_kernel();
        if hides {
            let kernel = addresses.iter().any(|address| address >> 63 != 0);
            // The owner of the event sees the instruction of the program.
            let own = alert.filter(|at| at.is_siar_known && !at.is_marking && at.siar >> 63 == 0);
            let is_shown = own.is_none_or(|at| at.siar == addresses[0]);
            ensure(!kernel && is_shown, || {
                format!("event {id}: a sample shows {addresses:x?}; {alert:x?}")
            });
        } else {
            let is_sampled = alert.is_some_and(|at| {
                (!at.is_siar_known || at.siar == addresses[0])
                    && (!at.is_sdar_known || at.sdar == addresses[1])
            });
            ensure(is_sampled, || {
                format!("event {id}: a sample shows {addresses:x?}; {alert:x?}")
            });
        }
        check_sier2_sier3(event, alert);
        // An event that may see the kernel of a whole CPU may see every counter.
        let sees_all = !hides && event.task.get().is_none();
        let here = kernel::cpu::CpuId::current().as_u32() as usize;
        let all = self.all.borrow();
        let sees = |pmc: usize| {
            let shares = |other: &Rc<Event>| {
                other.oncpu.get() == Some(here)
                    && other.idx() == pmc + 1
                    && other.task.get() == event.task.get()
                    && (other.excludes_kernel() || !hides)
            };
            sees_all || all.iter().any(shares)
        };
        let values = alert.map_or([0; 6], |at| at.counters);
        let expected: [_; 6] = from_fn(|pmc| if sees(pmc) { values[pmc] as usize } else { 0 });
        ensure(shown == expected, || {
            format!("event {id}: a sample shows PMC1 to PMC6 as {shown:x?}, not {expected:x?}")
        });
    }
}
