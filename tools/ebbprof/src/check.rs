// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks whether programs can be profiled here, for `ebbprof check`, and for `record` before it
//! runs the program.

use std::fs;
use std::hint::black_box;
use std::io;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use ebb::EbbContext;
use ebb::Save;
use ebb::Session;
use ebb::bhrb::ENTRIES;
use ebb::config::Ifm;

use crate::Failure;
use crate::memory::Wanted;
use crate::record;
use crate::target;
use crate::target::SmallStacks;

/// Takes the PMU for a moment, as each thread of the program will.
pub fn try_event(wanted: &Wanted<'_>) -> Result<(), Failure> {
    let explained = |error: ebb::Error| -> Failure {
        let reason = match &error {
            ebb::Error::NoSuchEvent => format!("{}: {error}", wanted.event),
            ebb::Error::NotScheduled => format!("{error} (perhaps a perf command)"),
            _ => error.to_string(),
        };
        reason.into()
    };
    let session =
        Session::open_with(wanted.event, wanted.period, wanted.branches).map_err(explained)?;
    // SAFETY: The handler does nothing.
    unsafe { session.start(Save::Full, |_| ()) }.map_err(explained)?;
    session.close();
    match wanted.branches {
        Some(mode) if !records_branches(mode).map_err(explained)? => {
            Err("this machine cannot record branches".into())
        }
        _ => Ok(()),
    }
}

/// Returns whether the BHRB has entries after branches were taken: emulators accept the request,
/// but may not implement the BHRB.
fn records_branches(mode: Ifm) -> Result<bool, ebb::Error> {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    const SAMPLES: u64 = 4;
    let session = Session::open_with("cycles", 10_007, Some(mode))?;
    let look = |context: &mut EbbContext<'_>| {
        let mut entries = [0; ENTRIES];
        FOUND.fetch_max(context.branches(&mut entries).as_entries().len(), Relaxed);
    };
    // SAFETY: The handler only accesses an atomic and its own frame.
    unsafe { session.start(Save::Full, look) }?;
    // Calls through a pointer and a loop contain branches of all kinds.
    let call: fn(u64) -> u64 = black_box(|n| n ^ 1);
    let mut n = 0;
    while n < 100_000_000 && session.count() < SAMPLES {
        n = black_box(call(n) ^ 1) + 1;
    }
    Ok(FOUND.load(Relaxed) != 0)
}

#[derive(clap::Args)]
pub struct Options {
    /// Allow stacks that may be too small for samples (Go, OCaml 5)
    #[arg(long)]
    small_stacks: bool,

    /// Program to check
    program: Option<PathBuf>,
}

/// Prints the results. Returns the exit status.
pub fn run(options: &Options) -> io::Result<u8> {
    let mut status = 0;
    let mut text_of_all = String::new();
    let mut line = |what: &str, good: bool, text: &str| {
        let begin = if good { "ok" } else { "FAILED" };
        text_of_all += &format!("{begin:<8} {what}: {text}\n");
        status |= u8::from(!good);
    };
    let supported = ebb::supported();
    let hwcap = if supported {
        "offered"
    } else {
        "not offered by this kernel or processor"
    };
    line("EBB (HWCAP2)", supported, hwcap);
    let driver = match fs::exists("/sys/module/ebb_pmu") {
        Ok(true) => "ebb_pmu",
        _ => "the kernel's own",
    };
    line("driver of the PMU", true, driver);
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    line(
        "kernel.perf_event_paranoid",
        true,
        paranoid.as_deref().unwrap_or("not there").trim(),
    );
    let cycles = Wanted {
        event: "cycles",
        period: 1 << 31,
        callers: false,
        branches: None,
    };
    match try_event(&cycles) {
        Ok(()) => line("an EBB event", true, "available"),
        Err(error) => line("an EBB event", false, &error.to_string()),
    }
    match record::library() {
        Ok(path) => line("libebbprof.so", true, &path.to_string_lossy()),
        Err(error) => line("libebbprof.so", false, &error.to_string()),
    }
    if let Some(program) = &options.program {
        let small_stacks = SmallStacks::new(options.small_stacks);
        let refused = match target::find(program) {
            Ok(path) => target::refusal(&path, small_stacks),
            Err(error) => Some(error.to_string()),
        };
        let text = refused.as_deref().unwrap_or("can be profiled");
        line(&program.to_string_lossy(), refused.is_none(), text);
    }
    io::stdout().write_all(text_of_all.as_bytes())?;
    Ok(status)
}
