// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiles a part of itself, in two threads: `ebbprof_parts FILE`.

use std::env;
use std::hint::black_box;
use std::thread;

use ebbprof_client::Error;
use ebbprof_client::Options;

/// The work that is profiled.
#[inline(never)]
fn wanted(n: u64) -> u64 {
    (0..n).fold(n, |sum, n| black_box(sum.rotate_left(5) ^ n))
}

/// The work that is not profiled.
#[inline(never)]
fn unwanted(n: u64) -> u64 {
    (0..n).fold(n, |sum, n| black_box(sum.rotate_left(7) ^ n))
}

fn main() -> Result<(), Error> {
    let file = env::args().nth(1).unwrap_or("perf.data".into());
    let recording = Options::default()
        .period(10_007)
        .callers(true)
        .start(file)?;
    let other = thread::spawn(|| wanted(1_000_000));
    wanted(1_000_000);
    let _ = other.join();
    recording.pause()?;
    unwanted(1_000_000);
    recording.stop()
}
