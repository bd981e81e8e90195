// SPDX-License-Identifier: GPL-2.0
//! Opening, enabling, checking and closing events of the core PMU.

use crate::config;
use crate::error::Error;
use crate::rules;
use perf_event_open_sys::bindings::PERF_FLAG_FD_CLOEXEC;
use perf_event_open_sys::bindings::PERF_FORMAT_TOTAL_TIME_ENABLED;
use perf_event_open_sys::bindings::PERF_FORMAT_TOTAL_TIME_RUNNING;
use perf_event_open_sys::bindings::PERF_IOC_FLAG_GROUP;
use perf_event_open_sys::bindings::PERF_TYPE_RAW;
use perf_event_open_sys::bindings::perf_event_attr;
use perf_event_open_sys::ioctls;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;

/// A request for an event. Nothing is checked before the kernel does, so that
/// its answer is the one that counts.
#[derive(Clone)]
#[must_use]
pub struct EventBuilder {
    attr: perf_event_attr,
    pid: libc::pid_t,
    cpu: libc::c_int,
}

macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident => $set:ident;)*) => {
        $($(#[$doc])*
        pub fn $name(mut self, on: bool) -> Self {
            self.attr.$set(on.into());
            self
        })*
    };
}

impl EventBuilder {
    /// A raw event on the calling thread, on whatever CPU it runs: disabled,
    /// and counting in problem state only.
    pub fn raw(code: u64) -> Self {
        let mut attr = perf_event_attr {
            type_: PERF_TYPE_RAW,
            // CAST: the structure has far less than 4 GiB.
            size: size_of::<perf_event_attr>() as u32,
            config: code,
            ..Default::default()
        };
        attr.set_disabled(1);
        attr.set_exclude_kernel(1);
        attr.set_exclude_hv(1);
        attr.set_exclude_idle(1);
        Self {
            attr,
            pid: 0,
            cpu: -1,
        }
    }

    /// An EBB event that may lead a group: [`raw`](Self::raw) with
    /// [`config::EBB`], pinned and exclusive.
    pub fn ebb(code: u64) -> Self {
        Self::raw(code | config::EBB).pinned(true).exclusive(true)
    }

    /// An EBB event for a member of a group. Only the leader is pinned and
    /// exclusive, and only it starts disabled.
    pub fn ebb_member(code: u64) -> Self {
        Self::raw(code | config::EBB).disabled(false)
    }

    flags! {
        /// Waits for `enable`.
        disabled => set_disabled;
        /// Is always on the PMU or in error state.
        pinned => set_pinned;
        /// Its group shares the PMU with nobody.
        exclusive => set_exclusive;
        /// `sample_period` is a frequency.
        freq => set_freq;
        /// New threads and processes get a copy.
        inherit => set_inherit;
        /// An exec enables it.
        enable_on_exec => set_enable_on_exec;
        /// Does not count in problem state.
        exclude_user => set_exclude_user;
        /// Does not count in supervisor state.
        exclude_kernel => set_exclude_kernel;
        /// Does not count in hypervisor state.
        exclude_hv => set_exclude_hv;
        /// Does not count while the CPU idles.
        exclude_idle => set_exclude_idle;
    }

    /// Sets the sample period (with [`freq`](Self::freq): the frequency).
    pub fn sample_period(mut self, period: u64) -> Self {
        self.attr.sample_period = period;
        self
    }

    /// Sets what a sample contains, a set of `PERF_SAMPLE_*`.
    pub fn sample_type(mut self, sample_type: u64) -> Self {
        self.attr.sample_type = sample_type;
        self
    }

    /// Records branches in the BHRB with the Instruction Filtering Mode `ifm`,
    /// 0-3.
    pub fn bhrb(mut self, ifm: u8) -> Self {
        self.attr.config |= config::BHRB | (u64::from(ifm & 3) << config::IFM_SHIFT);
        self
    }

    /// Makes [`Event::read_times`] possible.
    pub fn times(mut self) -> Self {
        self.attr.read_format =
            u64::from(PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING);
        self
    }

    /// Follows thread `pid`; -1 is every thread, 0 the calling one.
    pub fn pid(mut self, pid: libc::pid_t) -> Self {
        self.pid = pid;
        self
    }

    /// Counts on `cpu` only; -1 is every CPU.
    pub fn cpu(mut self, cpu: libc::c_int) -> Self {
        self.cpu = cpu;
        self
    }

    /// Opens the event as the leader of a group of its own.
    ///
    /// # Errors
    ///
    /// The errno of `perf_event_open(2)`. For EINVAL of an EBB event the reason
    /// is the rule that the request breaks, if it is one that can be told by the
    /// request alone.
    pub fn open(&self) -> Result<Event, Error> {
        self.open_in(None)
    }

    /// Opens the event as a member of `leader`'s group.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with(&self, leader: &Event) -> Result<Event, Error> {
        self.open_in(Some(leader))
    }

    fn open_in(&self, leader: Option<&Event>) -> Result<Event, Error> {
        let mut attr = self.attr;
        let group = leader.map_or(-1, |leader| leader.fd.as_raw_fd());
        // SAFETY: `attr` lives through the call, and the kernel copies it.
        let fd = unsafe {
            perf_event_open_sys::perf_event_open(
                &mut attr,
                self.pid,
                self.cpu,
                group,
                PERF_FLAG_FD_CLOEXEC.into(),
            )
        };
        if fd < 0 {
            let invalid = io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
            // Of other errnos the rules are not the reason, should one be broken too.
            let reason = invalid
                .then(|| rules::broken(&self.attr, self.pid, leader.map(|leader| &leader.attr)));
            return Err(Error::last("perf_event_open", reason.flatten()));
        }
        Ok(Event {
            // SAFETY: the kernel has just given this descriptor to us alone.
            fd: unsafe { OwnedFd::from_raw_fd(fd) },
            attr: self.attr,
        })
    }
}

/// Value and times of a counting event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The count.
    pub value: u64,
    /// Nanoseconds the event was enabled.
    pub enabled: u64,
    /// Nanoseconds the event was on the PMU.
    pub running: u64,
}

/// An open event. Closed when dropped; closing a thread's last EBB event takes
/// its access to the PMU registers away. Call [`disable`](crate::disable) before.
#[derive(Debug)]
pub struct Event {
    fd: OwnedFd,
    attr: perf_event_attr,
}

impl Event {
    /// Enables the event (of a leader: its group).
    ///
    /// # Errors
    ///
    /// The errno of `ioctl(2)`.
    pub fn enable(&self) -> Result<(), Error> {
        // SAFETY: the ioctl takes no pointer.
        check("PERF_EVENT_IOC_ENABLE", unsafe {
            ioctls::ENABLE(self.fd.as_raw_fd(), 0)
        })
    }

    /// Disables the event.
    ///
    /// # Errors
    ///
    /// The errno of `ioctl(2)`.
    pub fn disable(&self) -> Result<(), Error> {
        // SAFETY: the ioctl takes no pointer.
        check("PERF_EVENT_IOC_DISABLE", unsafe {
            ioctls::DISABLE(self.fd.as_raw_fd(), 0)
        })
    }

    /// Enables every event of this one's group.
    ///
    /// # Errors
    ///
    /// The errno of `ioctl(2)`.
    pub fn enable_group(&self) -> Result<(), Error> {
        // SAFETY: the ioctl takes no pointer.
        check("PERF_EVENT_IOC_ENABLE", unsafe {
            ioctls::ENABLE(self.fd.as_raw_fd(), PERF_IOC_FLAG_GROUP)
        })
    }

    /// `read(2)` as it is: the number of bytes the kernel gave.
    ///
    /// # Errors
    ///
    /// The errno of `read(2)`.
    pub fn read_bytes(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        // SAFETY: the buffer is ours for its whole length.
        let n = unsafe {
            libc::read(
                self.fd.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
            )
        };
        usize::try_from(n).map_err(|_| Error::last("read", None))
    }

    /// Whether the event is on the PMU when its thread runs; false once its
    /// group is in error state. Meant for a pinned event, after `enable`.
    ///
    /// # Errors
    ///
    /// The errno of `read(2)`.
    pub fn is_scheduled(&self) -> Result<bool, Error> {
        Ok(self.read_bytes(&mut [0; 24])? != 0)
    }

    /// Fails with [`Error::NotScheduled`] unless [`is_scheduled`](Self::is_scheduled).
    ///
    /// # Errors
    ///
    /// Also the errno of `read(2)`.
    pub fn check_scheduled(&self) -> Result<(), Error> {
        match self.is_scheduled()? {
            true => Ok(()),
            false => Err(Error::NotScheduled),
        }
    }

    /// Value and times of an event built with [`EventBuilder::times`].
    ///
    /// # Errors
    ///
    /// [`Error::NotScheduled`] at end of file, else the errno of `read(2)`.
    pub fn read_times(&self) -> Result<Times, Error> {
        let mut buffer = [[0; 8]; 3];
        if self.read_bytes(buffer.as_flattened_mut())? == 0 {
            return Err(Error::NotScheduled);
        }
        let [value, enabled, running] = buffer.map(u64::from_ne_bytes);
        Ok(Times {
            value,
            enabled,
            running,
        })
    }

    /// Closes the event; the same as dropping it, but visible.
    pub fn close(self) {
        drop(self);
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Enables every event that the calling thread has opened
/// (`PR_TASK_PERF_EVENTS_ENABLE`).
///
/// # Errors
///
/// The errno of `prctl(2)`.
pub fn enable_all() -> Result<(), Error> {
    // SAFETY: the call takes no pointer.
    check("PR_TASK_PERF_EVENTS_ENABLE", unsafe {
        libc::prctl(libc::PR_TASK_PERF_EVENTS_ENABLE)
    })
}

/// Disables every event that the calling thread has opened
/// (`PR_TASK_PERF_EVENTS_DISABLE`).
///
/// # Errors
///
/// The errno of `prctl(2)`.
pub fn disable_all() -> Result<(), Error> {
    // SAFETY: the call takes no pointer.
    check("PR_TASK_PERF_EVENTS_DISABLE", unsafe {
        libc::prctl(libc::PR_TASK_PERF_EVENTS_DISABLE)
    })
}

fn check(what: &'static str, status: libc::c_int) -> Result<(), Error> {
    match status {
        0 => Ok(()),
        _ => Err(Error::last(what, None)),
    }
}
