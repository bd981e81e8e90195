// SPDX-License-Identifier: GPL-2.0
//! What to open: `struct perf_event_attr` as a builder, and the event codes
//! that every POWER since ISA v2.07 knows.

use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;

use perf_event_open_sys as sys;
use sys::bindings::PERF_FORMAT_GROUP;
use sys::bindings::PERF_FORMAT_ID;
use sys::bindings::PERF_FORMAT_TOTAL_TIME_ENABLED;
use sys::bindings::PERF_FORMAT_TOTAL_TIME_RUNNING;
use sys::bindings::perf_event_attr;

use crate::event::Event;

/// PM_RUN_INST_CMPL on PMC5, its only place.
pub const RUN_INSTRUCTIONS: u64 = 0x500fa;
/// PM_RUN_CYC on PMC6, its only place.
pub const RUN_CYCLES: u64 = 0x600f4;
/// PM_INST_CMPL on whichever of PMC1 to PMC4 is free.
pub const INSTRUCTIONS: u64 = 0x2;
/// PM_CYC on whichever of PMC1 to PMC4 is free.
pub const CYCLES: u64 = 0x1e;

/// The event code that counts `event` (such as [`CYCLES`]) on one given PMC.
pub const fn on_pmc(pmc: u64, event: u64) -> u64 {
    pmc << 16 | event
}

/// Whose events are counted, and where: `pid` and `cpu` of perf_event_open(2).
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Task: 0 is the caller, -1 every task.
    pub pid: libc::pid_t,
    /// CPU number, -1 any.
    pub cpu: i32,
}

impl Target {
    /// The calling task on any CPU.
    pub const SELF: Target = Target { pid: 0, cpu: -1 };

    /// Every task that runs on `cpu`.
    pub const fn cpu(cpu: i32) -> Target {
        Target { pid: -1, cpu }
    }

    /// Another task on any CPU.
    pub const fn task(pid: libc::pid_t) -> Target {
        Target { pid, cpu: -1 }
    }
}

/// An event to be opened. A new one is disabled and reads its times.
#[derive(Clone)]
pub struct Attr {
    raw: perf_event_attr,
}

impl Attr {
    fn new(kind: u32, config: u64) -> Attr {
        let mut raw = perf_event_attr {
            type_: kind,
            config,
            size: size_of::<perf_event_attr>() as u32,
            read_format: (PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING).into(),
            ..Default::default()
        };
        raw.set_disabled(1);
        Attr { raw }
    }

    /// PERF_TYPE_RAW with the POWER event code `config`.
    pub fn raw(config: u64) -> Attr {
        Attr::new(sys::bindings::PERF_TYPE_RAW, config)
    }

    /// PERF_TYPE_HARDWARE, one of the PERF_COUNT_HW_ numbers.
    pub fn hardware(id: u32) -> Attr {
        Attr::new(sys::bindings::PERF_TYPE_HARDWARE, id.into())
    }

    /// PERF_TYPE_HW_CACHE with cache, operation and result numbers.
    pub fn cache(cache: u64, operation: u64, result: u64) -> Attr {
        Attr::new(
            sys::bindings::PERF_TYPE_HW_CACHE,
            cache | operation << 8 | result << 16,
        )
    }

    /// PERF_TYPE_SOFTWARE, one of the PERF_COUNT_SW_ numbers.
    pub fn software(id: u32) -> Attr {
        Attr::new(sys::bindings::PERF_TYPE_SOFTWARE, id.into())
    }

    /// Generic cycles.
    pub fn cycles() -> Attr {
        Attr::hardware(sys::bindings::PERF_COUNT_HW_CPU_CYCLES)
    }

    /// Generic instructions.
    pub fn instructions() -> Attr {
        Attr::hardware(sys::bindings::PERF_COUNT_HW_INSTRUCTIONS)
    }

    /// Starts counting at open.
    pub fn enabled(self) -> Attr {
        self.with(|raw| raw.set_disabled(0))
    }

    /// read() of the leader gives the whole group, with ids.
    pub fn grouped(self) -> Attr {
        self.with(|raw| raw.read_format |= u64::from(PERF_FORMAT_GROUP | PERF_FORMAT_ID))
    }

    /// Samples each `period` events and records `what` (PERF_SAMPLE_ bits).
    pub fn sampling(self, period: u64, what: u64) -> Attr {
        self.with(|raw| {
            raw.sample_period = period;
            raw.sample_type = what;
            raw.wakeup_events = 1;
        })
    }

    /// Adds a branch stack to the samples, of what `filter` says
    /// (PERF_SAMPLE_BRANCH_ bits).
    pub fn branches(self, filter: u64) -> Attr {
        self.with(|raw| {
            raw.sample_type |= u64::from(sys::bindings::PERF_SAMPLE_BRANCH_STACK);
            raw.branch_sample_type = filter;
        })
    }

    /// Any other field, through the structure of the system call.
    pub fn with(mut self, change: impl FnOnce(&mut perf_event_attr)) -> Attr {
        change(&mut self.raw);
        self
    }

    /// The structure of the system call.
    pub fn as_raw(&self) -> &perf_event_attr {
        &self.raw
    }

    /// Opens the event as a group of its own.
    pub fn open(&self, target: Target) -> io::Result<Event> {
        self.open_in(target, None)
    }

    /// Opens the event for the calling task.
    pub fn open_self(&self) -> io::Result<Event> {
        self.open(Target::SELF)
    }

    /// Opens the event as a member of `leader`'s group.
    ///
    /// Members follow their leader's enable and disable, so unlike a leader
    /// they are opened enabled.
    pub fn open_member(&self, target: Target, leader: &Event) -> io::Result<Event> {
        self.clone().enabled().open_in(target, Some(leader))
    }

    fn open_in(&self, target: Target, leader: Option<&Event>) -> io::Result<Event> {
        let mut raw = self.raw;
        let group = leader.map_or(-1, |leader| leader.fd().as_raw_fd());
        // SAFETY: `raw` is a whole perf_event_attr and outlives the call; no
        // event opened here gives the kernel an address of this process.
        let fd = unsafe {
            sys::perf_event_open(
                &mut raw,
                target.pid,
                target.cpu,
                group,
                sys::bindings::PERF_FLAG_FD_CLOEXEC.into(),
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just made this descriptor; nobody else owns it.
        Ok(Event::new(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The errno with which opening fails for the calling task, 0 if it does not.
    pub fn open_errno(&self) -> i32 {
        errno_of(self.open_self())
    }
}

/// The errno of a failed call, 0 of one that succeeded.
pub fn errno_of<T>(result: io::Result<T>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(error) => error.raw_os_error().unwrap_or(-1),
    }
}
