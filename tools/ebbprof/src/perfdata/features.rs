// SPDX-License-Identifier: MIT OR Apache-2.0
//! The feature sections of a perf.data file, which describe the machine, the command and the event.

use std::fs;

use super::ID;
use super::attr::Event;
use super::put;
use super::put_half;

const HOSTNAME: u32 = 3;
const OSRELEASE: u32 = 4;
const ARCH: u32 = 6;
const NRCPUS: u32 = 7;
const CPUDESC: u32 = 8;
const CMDLINE: u32 = 11;
const EVENT_DESC: u32 = 12;
const BRANCH_STACK: u32 = 15;
const SAMPLE_TIME: u32 = 21;

/// Returns each feature's bit and contents, in the order of the bits.
pub fn all(event: &Event, command: &[String], first: u64, last: u64) -> Vec<(u32, Vec<u8>)> {
    let of_kernel = |name: &str| {
        let path = format!("/proc/sys/kernel/{name}");
        string(fs::read_to_string(path).unwrap_or_default().trim())
    };
    let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = information.lines().find(|line| line.starts_with("cpu"));
    let processor = line
        .and_then(|line| line.split(':').nth(1))
        .unwrap_or_default();

    let mut cpus = Vec::new();
    for which in [libc::_SC_NPROCESSORS_CONF, libc::_SC_NPROCESSORS_ONLN] {
        // SAFETY: The call takes no pointers.
        let count = unsafe { libc::sysconf(which) };
        put_half(&mut cpus, u32::try_from(count).unwrap_or(1));
    }
    let mut words = Vec::new();
    put_half(&mut words, command.len() as u32);
    words.extend(command.iter().flat_map(|word| string(word)));

    let mut description = Vec::new();
    let attr = event.attr();
    put_half(&mut description, 1);
    put_half(&mut description, attr.len() as u32);
    description.extend(&attr);
    put_half(&mut description, 1);
    description.extend(string(&event.name));
    put(&mut description, ID);

    let mut times = Vec::new();
    put(&mut times, first);
    put(&mut times, last);
    let mut all = vec![
        (HOSTNAME, of_kernel("hostname")),
        (OSRELEASE, of_kernel("osrelease")),
        (ARCH, string("ppc64le")),
        (NRCPUS, cpus),
        (CPUDESC, string(processor.trim())),
        (CMDLINE, words),
        (EVENT_DESC, description),
    ];
    // The section is empty: its bit indicates that there are branches.
    all.extend(event.branches.map(|_| (BRANCH_STACK, Vec::new())));
    all.push((SAMPLE_TIME, times));
    all
}

/// Encodes a string for a feature section: its length, and the text padded to a multiple of 64.
fn string(text: &str) -> Vec<u8> {
    let length = (text.len() + 1).next_multiple_of(64);
    let mut string = Vec::new();
    // CAST: An argument has at most 128 KiB.
    put_half(&mut string, length as u32);
    string.extend_from_slice(text.as_bytes());
    string.resize(4 + length, 0);
    string
}
