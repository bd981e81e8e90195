// SPDX-License-Identifier: GPL-2.0

//! Tasks and their registers.

use crate::prelude::{c_uint, c_ulong};
use std::{
    cell::{Cell, UnsafeCell},
    ptr::null_mut,
};

pub type pid_t = i32;

/// The PMU registers that the kernel keeps for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct thread_struct {
    pub regs: *mut pt_regs,
    pub used_ebb: c_uint,
    pub mmcr0: c_uint,
    pub mmcr2: c_ulong,
    pub mmcr3: c_ulong,
    pub siar: c_ulong,
    pub sdar: c_ulong,
    pub sier: c_ulong,
    pub sier2: c_ulong,
    pub sier3: c_ulong,
    pub bescr: c_ulong,
    pub ebbhr: c_ulong,
    pub ebbrr: c_ulong,
}

/// A task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct task_struct {
    pub mm: *mut mm_struct,
    pub thread: thread_struct,
    pub self_exec_id: u64,
}

impl Default for task_struct {
    /// Creates a kernel task.
    fn default() -> Self {
        let thread = thread_struct {
            regs: null_mut(),
            used_ebb: 0,
            mmcr0: 0,
            mmcr2: 0,
            mmcr3: 0,
            siar: 0,
            sdar: 0,
            sier: 0,
            sier2: 0,
            sier3: 0,
            bescr: 0,
            ebbhr: 0,
            ebbrr: 0,
        };
        Self {
            mm: null_mut(),
            thread,
            self_exec_id: 0,
        }
    }
}

/// The address space of a program.
#[derive(Clone, Copy, Debug)]
pub struct mm_struct;

/// The registers that an interrupt has saved.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct pt_regs {
    pub __bindgen_anon_1: pt_regs__bindgen_ty_1,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct pt_regs__bindgen_ty_1 {
    pub __bindgen_anon_1: pt_regs__bindgen_ty_1__bindgen_ty_1,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct pt_regs__bindgen_ty_1__bindgen_ty_1 {
    pub nip: c_ulong,
    pub msr: c_ulong,
    pub softe: c_ulong,
    pub __bindgen_anon_1: pt_regs__dar,
    pub __bindgen_anon_2: pt_regs__dsisr,
    pub result: c_ulong,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct pt_regs__dar {
    pub dar: c_ulong,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct pt_regs__dsisr {
    pub dsisr: c_ulong,
}

thread_local! {
    static CURRENT: Cell<*mut task_struct> = const { Cell::new(null_mut()) };
    static IDLE: UnsafeCell<task_struct> = UnsafeCell::default();
}

/// Returns the task that the CPU runs: the idle task, which has no program, if no other was set.
pub fn get_current() -> *mut task_struct {
    let current = CURRENT.get();
    if current.is_null() {
        IDLE.with(|idle| idle.get())
    } else {
        current
    }
}

/// Sets the task that the CPU runs. It must outlive all uses of [`get_current`].
pub fn set_current(task: *mut task_struct) {
    CURRENT.set(task);
}
