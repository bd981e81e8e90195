// SPDX-License-Identifier: GPL-2.0
//! The CPUs that a task may run on, and CPUs that go offline and online.

use std::fs;
use std::io;

use crate::Failure;
use crate::Outcome;
use crate::os_result;

/// Returns the CPUs that are online, in order.
pub fn online() -> io::Result<Vec<usize>> {
    parse_list(&fs::read_to_string("/sys/devices/system/cpu/online")?)
}

/// Parses the kernel's list format: `0-2,5`.
fn parse_list(text: &str) -> io::Result<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) => cpus.extend(first..=last),
            _ => return Err(io::Error::other(format!("not a list of CPUs: {text}"))),
        }
    }
    Ok(cpus)
}

/// Returns the CPU that the caller runs on.
pub fn current() -> io::Result<usize> {
    // SAFETY: The call takes no arguments.
    let cpu = os_result(unsafe { libc::sched_getcpu() })?;
    // CAST: The number is not negative, as `os_result` returns -1 as an error.
    Ok(cpu as usize)
}

/// Lets the task `id`, or the calling thread if it is 0, run on the given CPUs only.
pub fn set_affinity(id: libc::pid_t, cpus: impl IntoIterator<Item = usize>) -> io::Result<()> {
    // SAFETY: cpu_set_t is an array of bits, for which zero is a valid value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in cpus {
        // SAFETY: CPU_SET checks the bounds itself.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: `set` outlives the call.
    os_result(unsafe { libc::sched_setaffinity(id, size_of_val(&set), &set) })?;
    Ok(())
}

/// Keeps the calling thread, and processes that it forks later, on one CPU.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    set_affinity(0, [cpu])
}

/// Keeps the calling thread on the CPU that it runs on; returns its number.
pub fn pin() -> io::Result<usize> {
    let cpu = current()?;
    pin_to(cpu)?;
    Ok(cpu)
}

/// Returns the first and the last CPU; skips the test if there is only one.
pub fn two() -> Result<[usize; 2], Failure> {
    match online()?[..] {
        [first, .., last] => Ok([first, last]),
        _ => Err(Failure::Skip("needs two CPUs".into())),
    }
}

/// CPU that a test may take offline: the last one. It is online again at the end of the test, even
/// if the test fails.
pub struct Visitor {
    /// Number of the CPU.
    pub cpu: usize,
    /// The first CPU, on which the test runs.
    pub home: usize,
}

impl Visitor {
    /// Moves the caller to `home`; skips the test if there is only one CPU.
    pub fn find() -> Result<Visitor, Failure> {
        let [home, cpu] = two()?;
        pin_to(home)?;
        Ok(Visitor { cpu, home })
    }

    /// Takes the CPU offline.
    #[track_caller]
    pub fn away(&self) -> Outcome {
        Ok(set_online(self.cpu, false)?)
    }

    /// Brings the CPU online.
    #[track_caller]
    pub fn back(&self) -> Outcome {
        Ok(set_online(self.cpu, true)?)
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        // Writing 1 for a CPU that is online changes nothing.
        let _ = self.back();
    }
}

/// Takes a CPU offline or brings it online.
pub fn set_online(cpu: usize, online: bool) -> io::Result<()> {
    let text = if online { "1" } else { "0" };
    fs::write(format!("/sys/devices/system/cpu/cpu{cpu}/online"), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(parse_list("0-2,5\n").unwrap(), [0, 1, 2, 5]);
        assert_eq!(parse_list("7").unwrap(), [7]);
        for wrong in ["", "a", "1-", "1,,2"] {
            assert!(parse_list(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_thread_stays_where_it_is_put() {
        // /sys may be absent where these tests run, so read /proc.
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let allowed = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        for cpu in parse_list(allowed.unwrap()).unwrap() {
            pin_to(cpu).unwrap();
            assert_eq!(current().unwrap(), cpu);
            assert_eq!(pin().unwrap(), cpu);
        }
        assert!(set_affinity(0, []).is_err());
    }
}
