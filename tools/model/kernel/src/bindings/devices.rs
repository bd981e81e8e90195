// SPDX-License-Identifier: GPL-2.0

//! Lists, sysfs, the device tree, tracepoints and deferred work.

use super::{pid_t, task_struct};
use crate::{
    init::Zeroable,
    prelude::{c_char, c_int, c_void},
};
use std::{cell::Cell, ptr::null_mut};

#[derive(Clone, Copy, Debug)]
pub struct list_head {
    pub next: *mut list_head,
    pub prev: *mut list_head,
}

pub struct device;

pub struct attribute {
    pub name: *const c_char,
    pub mode: u16,
}

pub struct device_attribute {
    pub attr: attribute,
    pub __bindgen_anon_1: device_attribute__show,
}

/// A callback that shows a file.
pub type Show = unsafe extern "C" fn(*mut device, *mut device_attribute, *mut c_char) -> isize;

pub struct device_attribute__show {
    pub show: Option<Show>,
}

pub struct attribute_group {
    pub name: *const c_char,
    pub __bindgen_anon_2: attribute_group__attrs,
}

pub struct attribute_group__attrs {
    pub attrs: *mut *mut attribute,
}

// SAFETY: All fields may be zero.
unsafe impl Zeroable for device_attribute {}
// SAFETY: All fields may be zero.
unsafe impl Zeroable for attribute_group {}

/// Copies `text` and a newline.
pub unsafe fn sysfs_emit(page: *mut c_char, _format: *const c_char, text: *const c_char) -> c_int {
    let mut length = 0;
    // SAFETY: The caller guarantees that `text` is a string and `page` has room for it.
    unsafe {
        while *text.add(length) != 0 {
            *page.add(length) = *text.add(length);
            length += 1;
        }
        *page.add(length) = b'\n' as c_char;
        *page.add(length + 1) = 0;
    }
    length as c_int + 1
}

/// A node of the device tree, which has none for an emulator here.
pub struct device_node;

pub unsafe fn of_find_node_opts_by_path(
    _path: *const c_char,
    _options: *mut *const c_char,
) -> *mut device_node {
    null_mut()
}

pub unsafe fn of_find_node_by_type(
    _from: *mut device_node,
    _name: *const c_char,
) -> *mut device_node {
    null_mut()
}

pub unsafe fn of_find_property(
    _node: *mut device_node,
    _name: *const c_char,
    _length: *mut c_int,
) -> *mut c_void {
    null_mut()
}

pub unsafe fn of_machine_compatible_match(_names: *const *const c_char) -> bool {
    false
}

pub unsafe fn of_node_put(_node: *mut device_node) {}

pub struct tracepoint {
    pub name: *const c_char,
}

pub struct linux_binprm;

/// A probe of `sched_process_exec`.
type Probe = unsafe extern "C" fn(*mut c_void, *mut task_struct, pid_t, *mut linux_binprm);

struct Tracepoint(tracepoint);

// SAFETY: The static is only read.
unsafe impl Sync for Tracepoint {}

static EXEC: Tracepoint = Tracepoint(tracepoint {
    name: c"sched_process_exec".as_ptr(),
});

thread_local! {
    static PROBE: Cell<Option<(Probe, *mut c_void)>> = const { Cell::new(None) };
}

pub unsafe fn for_each_kernel_tracepoint(
    function: Option<unsafe extern "C" fn(*mut tracepoint, *mut c_void)>,
    data: *mut c_void,
) {
    if let Some(function) = function {
        // SAFETY: The caller guarantees that `function` accepts each tracepoint.
        unsafe { function((&raw const EXEC.0).cast_mut(), data) };
    }
}

pub unsafe fn tracepoint_probe_register(
    _tracepoint: *mut tracepoint,
    probe: *mut c_void,
    data: *mut c_void,
) -> c_int {
    // SAFETY: The caller guarantees that `probe` is a function for this tracepoint.
    PROBE.set(Some((
        unsafe { std::mem::transmute::<*mut c_void, Probe>(probe) },
        data,
    )));
    0
}

pub unsafe fn tracepoint_probe_unregister(
    _tracepoint: *mut tracepoint,
    _probe: *mut c_void,
    _data: *mut c_void,
) -> c_int {
    PROBE.set(None);
    0
}

/// Calls the probe of `execve`'s tracepoint for the current task.
pub fn trace_sched_process_exec() {
    if let Some((probe, data)) = PROBE.get() {
        // SAFETY: The probe was registered with `data`.
        unsafe { probe(data, super::get_current(), 0, null_mut()) };
    }
}

#[derive(Default)]
pub struct irq_work {
    pub func: Option<unsafe extern "C" fn(*mut irq_work)>,
    pub node: irq_work_node,
}

#[derive(Default)]
pub struct irq_work_node {
    pub __bindgen_anon_1: irq_work_flags,
}

#[derive(Default)]
pub struct irq_work_flags {
    pub u_flags: u32,
}

pub const IRQ_WORK_HARD_IRQ: u32 = 4;

pub struct hrtimer {
    pub is_queued: bool,
}

pub unsafe fn irq_work_queue(_work: *mut irq_work) -> bool {
    unreachable!("no timer runs")
}

pub unsafe fn irq_work_sync(_work: *mut irq_work) {}

pub unsafe fn hrtimer_cancel(_timer: *mut hrtimer) -> c_int {
    0
}
