// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether programs can be profiled here: what `ebbprof check` says, and `record` before it runs
//! anything.

use std::fs;
use std::path::Path;

use ebb::Save;
use ebb::Session;

use crate::Failure;
use crate::record;
use crate::target;

/// Takes the PMU for a moment, as each thread of a program would.
pub fn try_event(event: &str, period: u64) -> Result<(), Failure> {
    let explained = |error: ebb::Error| -> Failure {
        let reason = match &error {
            ebb::Error::NoSuchEvent => format!("{event}: {error}"),
            ebb::Error::NotScheduled => format!("{error}, of somebody's perf perhaps"),
            _ => error.to_string(),
        };
        reason.into()
    };
    let session = Session::open(event, period).map_err(explained)?;
    // SAFETY: the handler does nothing.
    unsafe { session.start(Save::Full, |_| ()) }.map_err(explained)
}

/// Prints what there is; the exit status.
pub fn run(program: Option<&Path>) -> u8 {
    let mut status = 0;
    let mut line = |what: &str, good: bool, text: &str| {
        println!("{:<8} {what}: {text}", if good { "ok" } else { "FAILED" });
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
    match try_event("cycles", 1 << 31) {
        Ok(()) => line("an EBB event", true, "can be had"),
        Err(error) => line("an EBB event", false, &error.to_string()),
    }
    match record::library() {
        Ok(path) => line("libebbprof.so", true, &path.to_string_lossy()),
        Err(error) => line("libebbprof.so", false, &error.to_string()),
    }
    if let Some(program) = program {
        let refused = match target::find(program) {
            Ok(path) => target::refusal(&path),
            Err(error) => Some(error.to_string()),
        };
        let text = refused.as_deref().unwrap_or("can be profiled");
        line(&program.to_string_lossy(), refused.is_none(), text);
    }
    status
}
