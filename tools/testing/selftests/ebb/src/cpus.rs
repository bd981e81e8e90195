// SPDX-License-Identifier: GPL-2.0
//! Tests that need more than one CPU.

use crate::session;
use ktap::Failure;
use ktap::Outcome;
use pmu_selftests::machine;

/// The first and the last CPU.
///
/// # Errors
///
/// [`Failure::Skip`] where there are no two, or no EBBs.
pub fn two() -> Result<[usize; 2], Failure> {
    session::require_ebb()?;
    let cpus = machine::online_cpus()?;
    match (cpus.first(), cpus.last()) {
        (Some(&first), Some(&last)) if first != last => Ok([first, last]),
        _ => Err(Failure::Skip("needs two CPUs".into())),
    }
}

/// Lets another task run on `cpu` only.
///
/// # Errors
///
/// A failure of the test.
pub fn send(pid: libc::pid_t, cpu: usize) -> Outcome {
    // SAFETY: zeroes are the empty set, CPU_SET checks its bounds, and the set
    // lives through the call.
    let status = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(pid, size_of_val(&set), &set)
    };
    match status {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().into()),
    }
}

/// The CPU this process is on.
#[must_use]
pub fn at() -> Option<usize> {
    // SAFETY: takes nothing.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// A CPU that is back online at the end of the test, however that comes.
pub struct Visitor {
    /// Its number.
    pub cpu: usize,
    /// That of the CPU which the test is on.
    pub home: usize,
}

impl Visitor {
    /// The last CPU; the caller stays on the first one.
    ///
    /// # Errors
    ///
    /// As [`two`].
    pub fn find() -> Result<Self, Failure> {
        let [home, cpu] = two()?;
        machine::pin_to(home)?;
        Ok(Self { cpu, home })
    }

    /// Takes it offline.
    ///
    /// # Errors
    ///
    /// A failure of the test.
    #[track_caller]
    pub fn away(&self) -> Outcome {
        Ok(machine::set_online(self.cpu, false)?)
    }

    /// Brings it back.
    ///
    /// # Errors
    ///
    /// A failure of the test.
    #[track_caller]
    pub fn back(&self) -> Outcome {
        Ok(machine::set_online(self.cpu, true)?)
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        // Writing 1 for a CPU that is online changes nothing.
        let _ = self.back();
    }
}
