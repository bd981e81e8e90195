// SPDX-License-Identifier: GPL-2.0

//! Tests of the fields of perf's structures that `rust/perf` reads and writes.

use super::{
    Attr, CpuContexts, Event, EventType, HwMut, PerfEvent, Transaction, WeightType,
    bindings::{self, perf_event, perf_event_attr, perf_event_context},
    local64::Local64,
};
use crate::perf::CounterState;
use kernel::{bindings::list_head, zeroed};
use std::ptr::null_mut;

/// Calls `f` with an event that has these attributes.
fn with_event<R>(
    attr: perf_event_attr,
    f: impl FnOnce(&PerfEvent, &HwMut<'_>, *mut perf_event) -> R,
) -> R {
    let mut event: perf_event = zeroed();
    event.attr = attr;
    let raw = &raw mut event;
    // SAFETY: The event lives until `f` has returned, and nothing interrupts a test.
    unsafe {
        let cpus = CpuContexts::<(), (), ()>::new().expect("memory");
        let event = PerfEvent::from_raw(raw);
        cpus.with_this_cpu(|this_cpu| f(event, &event.hw_mut(this_cpu.irqs_off()), raw))
    }
}

/// Returns what `f` reads from attributes that `set` changed.
fn read<R>(set: impl FnOnce(&mut perf_event_attr), f: impl FnOnce(&Attr) -> R) -> R {
    let mut attr = perf_event_attr::default();
    set(&mut attr);
    with_event(attr, |event, _, _| f(event.attr()))
}

#[test]
fn each_flag_of_the_attributes_is_read_alone() {
    type Flag = (fn(&mut perf_event_attr, u64), fn(&Attr) -> bool);
    let flags: [Flag; 11] = [
        (perf_event_attr::set_inherit, Attr::inherit),
        (perf_event_attr::set_pinned, Attr::pinned),
        (perf_event_attr::set_exclusive, Attr::exclusive),
        (perf_event_attr::set_exclude_user, Attr::exclude_user),
        (perf_event_attr::set_exclude_kernel, Attr::exclude_kernel),
        (perf_event_attr::set_exclude_hv, Attr::exclude_hv),
        (perf_event_attr::set_exclude_idle, Attr::exclude_idle),
        (perf_event_attr::set_exclude_host, Attr::exclude_host),
        (perf_event_attr::set_freq, Attr::freq),
        (perf_event_attr::set_enable_on_exec, Attr::enable_on_exec),
        (perf_event_attr::set_sigtrap, Attr::sigtrap),
    ];
    let all = |attr: &Attr| flags.map(|(_, is_set)| is_set(attr));
    for (number, (set, _)) in flags.into_iter().enumerate() {
        let mut only = [false; 11];
        only[number] = true;
        assert_eq!(read(|attr| set(attr, 1), all), only, "flag {number}");
    }
    assert_eq!(read(|attr| attr.set_disabled(1), all), [false; 11]);
}

#[test]
fn each_word_of_the_attributes_is_read() {
    let words = |attr: &mut perf_event_attr| {
        attr.config = 1;
        attr.__bindgen_anon_3.config1 = 2;
        attr.__bindgen_anon_4.config2 = 3;
        (attr.config3, attr.config4) = (4, 5);
    };
    let seen = |attr: &Attr| (attr.config(), attr.config1(), attr.more_config());
    assert_eq!(read(words, seen), (1, 2, [3, 4, 5]));

    let kind = |type_| read(|attr| attr.type_ = type_, Attr::event_type);
    let kinds = [0, 1, 2, 3, 4, 5].map(kind);
    let [hardware, cache, raw] = [EventType::Hardware, EventType::HwCache, EventType::Raw];
    let other = EventType::Other;
    assert_eq!(kinds, [hardware, other, other, cache, raw, other]);

    // PERF_SAMPLE_WEIGHT, PERF_SAMPLE_WEIGHT_STRUCT.
    let weight = |sample_type| read(|attr| attr.sample_type = sample_type, Attr::weight_type);
    assert_eq!(weight(1 << 14), Some(WeightType::Full));
    assert_eq!(weight(1 << 24), Some(WeightType::Struct));
    assert_eq!(weight(!(1 << 14 | 1 << 24)), None);

    // PERF_SAMPLE_REGS_USER, PERF_SAMPLE_REGS_INTR.
    let registers = |sample_type| {
        let set = |attr: &mut perf_event_attr| {
            attr.sample_type = sample_type;
            (attr.sample_regs_user, attr.sample_regs_intr) = (1, 2);
        };
        read(set, Attr::sample_regs)
    };
    let sets = [0, 1 << 12, 1 << 18, 1 << 12 | 1 << 18].map(registers);
    assert_eq!(sets, [0, 1, 2, 3]);
}

#[test]
fn what_the_driver_keeps_with_an_event_is_read_back() {
    with_event(perf_event_attr::default(), |_, hw, raw| {
        hw.set_idx(7);
        hw.set_last_period(8);
        hw.set_period_left(-9);
        assert_eq!(hw.idx(), 7);
        assert_eq!((hw.last_period(), hw.period_left()), (8, -9));

        // perf core reads this field to see whether a counter is stopped.
        // SAFETY: The event lives until `f` has returned.
        let state = || unsafe { (*raw).hw.state as u32 };
        hw.set_state(CounterState::Stopped);
        let stopped = bindings::PERF_HES_STOPPED | bindings::PERF_HES_UPTODATE;
        assert_eq!((hw.state(), state()), (CounterState::Stopped, stopped));
        hw.set_state(CounterState::Running);
        assert_eq!((hw.state(), state()), (CounterState::Running, 0));
    });
}

/// A read of the event may interrupt another one and add the counter's increment. The interrupted
/// one must not add it again.
#[test]
fn a_number_is_replaced_only_if_nobody_changed_it() {
    let mut number = 5;
    // SAFETY: The number outlives `local`.
    let local = unsafe { Local64::from_raw(&raw mut number) };
    assert!(!local.replace(4, 6));
    assert_eq!(local.get(), 5);
    assert!(local.replace(5, 6));
    local.add(-7);
    assert_eq!(local.get(), -1);
}

#[test]
fn a_transaction_that_reads_adds_nothing() {
    let [add, read] = [bindings::PERF_PMU_TXN_ADD, bindings::PERF_PMU_TXN_READ];
    let both = [add, read].map(Transaction::from_raw);
    assert_eq!(both, [Transaction::Add, Transaction::Read]);
}

/// perf core holds the lock that protects groups and the context of their task only while it adds
/// events. If events remain while others are added or removed, another CPU may change both.
#[test]
fn a_group_and_its_task_are_seen_while_events_come() {
    let mut event: perf_event = zeroed();
    let raw = &raw mut event;
    let mut other: perf_event = zeroed();
    let other = &raw mut other;
    let mut context = perf_event_context {
        event_list: list_head {
            next: null_mut(),
            prev: null_mut(),
        },
    };
    let cpus = CpuContexts::<(), (), ()>::new().expect("memory");
    // SAFETY: The event lives until the end of the test, and is its own leader without siblings.
    // Nothing interrupts a test.
    unsafe {
        (*raw).group_leader = raw;
        let siblings = &raw mut (*raw).sibling_list;
        ((*siblings).next, (*siblings).prev) = (siblings, siblings);
        let (list, entry) = (&raw mut context.event_list, &raw mut (*raw).event_entry);
        ((*list).next, (*list).prev) = (entry, entry);
        ((*entry).next, (*entry).prev) = (list, list);
        (*raw).ctx = &raw mut context;
        (*raw).attach_state = bindings::PERF_ATTACH_TASK;
        // An event without data would belong to another driver.
        (*raw).pmu_private = std::ptr::dangling_mut();
        cpus.with_exclusive_cpu(|this_cpu| {
            let events = || {
                [
                    this_cpu.first_group().count(),
                    this_cpu.task_events().count(),
                ]
            };
            assert_eq!(events(), [0, 0]);
            this_cpu.slots().push(Event::from_raw(raw));
            assert_eq!(events(), [1, 1]);
            this_cpu.slots().record_enable();
            assert_eq!(events(), [0, 0]);
            this_cpu.slots().push(Event::from_raw(other));
            assert_eq!(events(), [0, 0]);
            assert!(this_cpu.slots().remove(Event::from_raw(other)));
            assert_eq!(events(), [0, 0]);
            assert!(this_cpu.slots().remove(Event::from_raw(raw)));
            assert_eq!(events(), [0, 0]);
            // Add it after an event that remains, and then once more before that one.
            this_cpu.slots().push(Event::from_raw(other));
            this_cpu.slots().record_enable();
            this_cpu.slots().push(Event::from_raw(raw));
            assert_eq!(events(), [0, 0]);
            assert!(this_cpu.slots().remove(Event::from_raw(other)));
            assert_eq!(events(), [1, 1]);
            assert!(this_cpu.slots().remove(Event::from_raw(raw)));
            // The context of a CPU may change at any time.
            (*raw).attach_state = 0;
            this_cpu.slots().push(Event::from_raw(raw));
            assert_eq!(events(), [1, 0]);
        });
    }
}
