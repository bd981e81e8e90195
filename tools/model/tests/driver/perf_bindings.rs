// SPDX-License-Identifier: GPL-2.0

//! A stand-in for bindgen's output from perf's headers: structures with the fields that `rust/perf`
//! uses. `perf_core/calls.rs` has perf core's functions.

#![allow(non_camel_case_types, non_upper_case_globals, missing_docs, dead_code)]
#![allow(clippy::missing_safety_doc, unreachable_pub)]

mod constants;

pub use crate::perf_core::calls::*;
pub use constants::*;

use kernel::{
    Zeroable,
    bindings::{attribute_group, device, list_head, pt_regs, task_struct},
    ffi::{c_char, c_int, c_uint, c_void},
    prelude::c_ulong,
    zeroed,
};

pub struct pmu {
    pub module: *mut c_void,
    pub dev: *mut device,
    pub attr_groups: *mut *const attribute_group,
    pub name: *const c_char,
    pub type_: c_int,
    pub capabilities: c_int,
    pub cpu_pmu_context: *mut c_void,
    pub event_init: Option<unsafe extern "C" fn(*mut perf_event) -> c_int>,
    pub pmu_enable: Option<unsafe extern "C" fn(*mut pmu)>,
    pub pmu_disable: Option<unsafe extern "C" fn(*mut pmu)>,
    pub add: Option<unsafe extern "C" fn(*mut perf_event, c_int) -> c_int>,
    pub del: Option<unsafe extern "C" fn(*mut perf_event, c_int)>,
    pub start: Option<unsafe extern "C" fn(*mut perf_event, c_int)>,
    pub stop: Option<unsafe extern "C" fn(*mut perf_event, c_int)>,
    pub read: Option<unsafe extern "C" fn(*mut perf_event)>,
    pub start_txn: Option<unsafe extern "C" fn(*mut pmu, c_uint)>,
    pub commit_txn: Option<unsafe extern "C" fn(*mut pmu) -> c_int>,
    pub cancel_txn: Option<unsafe extern "C" fn(*mut pmu)>,
    pub sched_task:
        Option<unsafe extern "C" fn(*mut perf_event_pmu_context, *mut task_struct, bool)>,
    pub event_idx: Option<unsafe extern "C" fn(*mut perf_event) -> c_int>,
}

pub struct perf_event_pmu_context {
    pub pmu: *mut pmu,
}

/// The context of a task or of a CPU, with its events.
pub struct perf_event_context {
    pub event_list: list_head,
}

/// An event. `core` points to perf core's own data for it.
#[repr(C)]
pub struct perf_event {
    pub id: u64,
    pub pmu: *mut pmu,
    pub ctx: *mut perf_event_context,
    pub group_leader: *mut perf_event,
    pub parent: *mut perf_event,
    pub sibling_list: list_head,
    pub event_entry: list_head,
    pub state: c_int,
    pub attach_state: c_uint,
    pub count: i64,
    pub lost_samples: i64,
    pub rb: *mut c_void,
    pub attr: perf_event_attr,
    pub hw: hw_perf_event,
    pub destroy: Option<unsafe extern "C" fn(*mut perf_event)>,
    pub pmu_private: *mut c_void,
    pub core: *const crate::perf_core::Event,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct hw_perf_event {
    pub __bindgen_anon_1: hw_perf_event__bindgen_ty_1,
    pub state: c_int,
    pub prev_count: i64,
    pub sample_period: u64,
    pub interrupts: u64,
    pub __bindgen_anon_2: hw_perf_event__bindgen_ty_2,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub union hw_perf_event__bindgen_ty_1 {
    pub __bindgen_anon_1: hw_perf_event__bindgen_ty_1__bindgen_ty_1,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct hw_perf_event__bindgen_ty_1__bindgen_ty_1 {
    pub config: u64,
    pub config1: u64,
    pub last_tag: u64,
    pub dyn_constraint: u64,
    pub config_base: c_ulong,
    pub event_base: c_ulong,
    pub extra_reg: hw_perf_event_extra,
    pub branch_reg: hw_perf_event_extra,
    pub flags: c_int,
    pub idx: c_int,
    pub last_cpu: c_int,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct hw_perf_event_extra {
    pub config: u64,
    pub reg: c_uint,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub union hw_perf_event__bindgen_ty_2 {
    pub __bindgen_anon_1: hw_perf_event__bindgen_ty_2__bindgen_ty_1,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct hw_perf_event__bindgen_ty_2__bindgen_ty_1 {
    pub last_period: u64,
    pub period_left: i64,
}

/// The attributes of an event. The flags are an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct perf_event_attr {
    pub type_: u32,
    pub size: u32,
    pub config: u64,
    pub __bindgen_anon_1: attr_period,
    pub sample_type: u64,
    pub branch_sample_type: u64,
    pub sample_regs_user: u64,
    pub sample_regs_intr: u64,
    pub sample_max_stack: u16,
    pub __bindgen_anon_3: attr_config1,
    pub __bindgen_anon_4: attr_config2,
    pub config3: u64,
    pub config4: u64,
    pub flags: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct attr_period {
    pub sample_period: u64,
}

/// A member that is a union in C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct attr_config1 {
    pub config1: u64,
}

/// A member that is a union in C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct attr_config2 {
    pub config2: u64,
}

/// Defines the flags with their bits in the ABI.
macro_rules! flags {
    ($($raw:ident, $set:ident: $bit:expr;)+) => {
        impl perf_event_attr { $(
            pub unsafe fn $raw(this: *const Self) -> u64 {
                // SAFETY: The caller guarantees a valid pointer.
                unsafe { (*this).flags >> $bit & 1 }
            }

            pub fn $set(&mut self, value: u64) {
                self.flags = self.flags & !(1 << $bit) | (value & 1) << $bit;
            }
        )+ }
    };
}

flags! {
    disabled_raw, set_disabled: 0;
    inherit_raw, set_inherit: 1;
    pinned_raw, set_pinned: 2;
    exclusive_raw, set_exclusive: 3;
    exclude_user_raw, set_exclude_user: 4;
    exclude_kernel_raw, set_exclude_kernel: 5;
    exclude_hv_raw, set_exclude_hv: 6;
    exclude_idle_raw, set_exclude_idle: 7;
    freq_raw, set_freq: 10;
    inherit_stat_raw, set_inherit_stat: 11;
    enable_on_exec_raw, set_enable_on_exec: 12;
    exclude_host_raw, set_exclude_host: 19;
    sigtrap_raw, set_sigtrap: 37;
}

#[repr(C)]
pub struct perf_sample_data {
    pub sample_flags: u64,
    pub period: u64,
    pub dyn_size: u64,
    pub addr: u64,
    pub ip: u64,
    pub data_src: perf_mem_data_src,
    pub weight: perf_sample_weight,
    pub br_stack: *mut perf_branch_stack,
    pub br_stack_cntr: *mut u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub union perf_mem_data_src {
    pub val: u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub union perf_sample_weight {
    pub full: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct perf_branch_entry {
    pub from: u64,
    pub to: u64,
    pub fields: u64,
}

#[repr(C)]
pub struct perf_branch_stack {
    pub nr: u64,
    pub hw_idx: u64,
    pub entries: [perf_branch_entry; 0],
}

// SAFETY: All fields may be zero.
unsafe impl Zeroable for pmu {}
// SAFETY: All fields may be zero.
unsafe impl Zeroable for perf_event {}
// SAFETY: All fields may be zero.
unsafe impl Zeroable for perf_event_attr {}

impl Default for perf_event_attr {
    fn default() -> Self {
        zeroed()
    }
}

/// Does nothing: there are no user pages here.
pub unsafe fn perf_event_update_userpage(_event: *mut perf_event) {}

/// The state that an overflow interrupted.
pub type Regs = pt_regs;
