// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request for an event: `struct perf_event_attr` as a builder, with task and CPU.

use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;

use crate::error::Error;
use crate::error::Result;
use crate::event::Event;
use crate::sys;
use crate::sys::perf_event_attr;

/// Function that returns why the kernel refuses a request with EINVAL, given the request and the
/// leader of its group; `None` if the reason does not follow from these alone.
pub type Explain = fn(&Attr, Option<&Attr>) -> Option<&'static str>;

/// A request for an event. Unless [`pid`](Self::pid) or [`cpu`](Self::cpu) changes that, the event
/// follows the calling task on any CPU.
///
/// A new request is disabled and includes the times in its read format; all other fields are zero.
/// Only the kernel checks it.
#[derive(Clone, Debug)]
#[must_use]
pub struct Attr {
    raw: perf_event_attr,
    pid: libc::pid_t,
    cpu: libc::c_int,
    explain: Option<Explain>,
}

macro_rules! flags {
    ($($name:ident, $set:ident;)*) => {
        $(
            #[doc = concat!("Sets `perf_event_attr.", stringify!($name), "`.")]
            pub fn $name(mut self, on: bool) -> Self {
                self.raw.$set(on.into());
                self
            }
        )*
    };
}

macro_rules! numbers {
    ($($name:ident: $type:ty;)*) => {
        $(
            #[doc = concat!("Sets `perf_event_attr.", stringify!($name), "`.")]
            pub fn $name(mut self, value: $type) -> Self {
                self.raw.$name = value;
                self
            }
        )*
    };
}

impl Attr {
    fn new(kind: u32, config: u64) -> Self {
        let times = sys::PERF_FORMAT_TOTAL_TIME_ENABLED | sys::PERF_FORMAT_TOTAL_TIME_RUNNING;
        let mut raw = perf_event_attr {
            type_: kind,
            config,
            // CAST: The structure has far less than 4 GiB.
            size: size_of::<perf_event_attr>() as u32,
            read_format: times.into(),
            ..Default::default()
        };
        raw.set_disabled(1);
        Self {
            raw,
            pid: 0,
            cpu: -1,
            explain: None,
        }
    }

    /// Requests an event of PERF_TYPE_RAW with the event code `config`.
    pub fn raw(config: u64) -> Self {
        Self::new(sys::PERF_TYPE_RAW, config)
    }

    /// Requests an event of PERF_TYPE_HARDWARE: one of the PERF_COUNT_HW_ numbers.
    pub fn hardware(id: u32) -> Self {
        Self::new(sys::PERF_TYPE_HARDWARE, id.into())
    }

    /// Requests an event of PERF_TYPE_HW_CACHE with the numbers of cache, operation and result.
    pub fn cache(cache: u64, operation: u64, result: u64) -> Self {
        let config = cache | operation << 8 | result << 16;
        Self::new(sys::PERF_TYPE_HW_CACHE, config)
    }

    /// Requests an event of PERF_TYPE_SOFTWARE: one of the PERF_COUNT_SW_ numbers.
    pub fn software(id: u32) -> Self {
        Self::new(sys::PERF_TYPE_SOFTWARE, id.into())
    }

    /// Requests PERF_COUNT_HW_CPU_CYCLES.
    pub fn cycles() -> Self {
        Self::hardware(sys::PERF_COUNT_HW_CPU_CYCLES)
    }

    /// Requests PERF_COUNT_HW_INSTRUCTIONS.
    pub fn instructions() -> Self {
        Self::hardware(sys::PERF_COUNT_HW_INSTRUCTIONS)
    }

    flags! {
        disabled, set_disabled;
        pinned, set_pinned;
        exclusive, set_exclusive;
        freq, set_freq;
        inherit, set_inherit;
        enable_on_exec, set_enable_on_exec;
        remove_on_exec, set_remove_on_exec;
        sigtrap, set_sigtrap;
        exclude_user, set_exclude_user;
        exclude_kernel, set_exclude_kernel;
        exclude_hv, set_exclude_hv;
        exclude_idle, set_exclude_idle;
        exclude_host, set_exclude_host;
        exclude_guest, set_exclude_guest;
        exclude_callchain_user, set_exclude_callchain_user;
    }

    numbers! {
        config: u64;
        sample_period: u64;
        sample_type: u64;
        read_format: u64;
        wakeup_events: u32;
        branch_sample_type: u64;
        sample_regs_user: u64;
        sample_regs_intr: u64;
        sample_stack_user: u32;
        sample_max_stack: u16;
    }

    /// Counts in problem state only.
    pub fn user_only(self) -> Self {
        self.exclude_kernel(true)
            .exclude_hv(true)
            .exclude_idle(true)
    }

    /// Enables the event when it is opened.
    pub fn enabled(self) -> Self {
        self.disabled(false)
    }

    /// Sets the read format for [`Event::read_group`]: a read of the leader returns all members of
    /// the group with their ids.
    pub fn grouped(self) -> Self {
        self.with(|raw| raw.read_format |= u64::from(sys::PERF_FORMAT_GROUP | sys::PERF_FORMAT_ID))
    }

    /// Requests a sample with the fields `what` (PERF_SAMPLE_ bits) after each `period` events, and
    /// a wakeup for each sample.
    pub fn sampling(self, period: u64, what: u64) -> Self {
        self.sample_period(period)
            .sample_type(what)
            .wakeup_events(1)
    }

    /// Adds a branch stack to the samples, with the branches that `filter` selects
    /// (PERF_SAMPLE_BRANCH_ bits).
    pub fn branches(self, filter: u64) -> Self {
        self.branch_sample_type(filter)
            .with(|raw| raw.sample_type |= u64::from(sys::PERF_SAMPLE_BRANCH_STACK))
    }

    /// Makes any other change, in the structure of the system call.
    pub fn with(mut self, change: impl FnOnce(&mut perf_event_attr)) -> Self {
        change(&mut self.raw);
        self
    }

    /// Makes the event follow task `pid`: 0 is the calling task, -1 every task.
    pub fn pid(mut self, pid: libc::pid_t) -> Self {
        self.pid = pid;
        self
    }

    /// Restricts the event to `cpu`; -1 is any CPU.
    pub fn cpu(mut self, cpu: libc::c_int) -> Self {
        self.cpu = cpu;
        self
    }

    /// Makes the event follow every task that runs on `cpu`.
    pub fn on_cpu(self, cpu: usize) -> Self {
        // CAST: No machine has more than 2^31 CPUs.
        self.pid(-1).cpu(cpu as libc::c_int)
    }

    /// Sets the function that explains an EINVAL of the kernel.
    pub fn explained_by(mut self, explain: Explain) -> Self {
        self.explain = Some(explain);
        self
    }

    /// Returns the structure of the system call.
    #[must_use]
    pub fn as_raw(&self) -> &perf_event_attr {
        &self.raw
    }

    /// Returns the task that the event will follow, in the form of [`pid`](Self::pid).
    #[must_use]
    pub fn target(&self) -> libc::pid_t {
        self.pid
    }

    /// Opens the event as the leader of a group of its own.
    ///
    /// # Errors
    ///
    /// The errno of `perf_event_open(2)`.
    pub fn open(&self) -> Result<Event> {
        self.open_in(None)
    }

    /// Opens the event as a member of `leader`'s group. The event is enabled, so it counts whenever
    /// its leader is enabled.
    ///
    /// # Errors
    ///
    /// The errno of `perf_event_open(2)`.
    pub fn open_with(&self, leader: &Event) -> Result<Event> {
        self.clone().enabled().open_in(Some(leader))
    }

    /// Opens the event, enabled or not, in the group of `leader`, or in a group of its own.
    pub fn open_in(&self, leader: Option<&Event>) -> Result<Event> {
        let mut raw = self.raw;
        let group = leader.map_or(-1, |leader| leader.as_raw_fd());
        let flags = sys::PERF_FLAG_FD_CLOEXEC.into();
        // SAFETY: `raw` is a complete perf_event_attr that outlives the call.
        let fd = unsafe {
            perf_event_open_sys::perf_event_open(&mut raw, self.pid, self.cpu, group, flags)
        };
        if fd < 0 {
            let mut error = Error::last("perf_event_open");
            // `explain` knows only the rules whose violation is EINVAL.
            if let Error::Os {
                errno: libc::EINVAL,
                reason,
                ..
            } = &mut error
            {
                *reason = self
                    .explain
                    .and_then(|explain| explain(self, leader.map(Event::attr)));
            }
            return Err(error);
        }
        // SAFETY: The kernel made this descriptor just now, so no other value owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Event::new(fd, self.clone()))
    }
}
