// SPDX-License-Identifier: GPL-2.0
//! Runs the EBB selftests that lie beside it: all, or those named; `--list`
//! prints their names.

fn main() {
    ktap::runner::main_with(&[
        "ebb_attributes",
        "ebb_scheduling",
        "ebb_enable",
        "ebb_close",
        "ebb_registers",
        "ebb_context",
        "ebb_library",
        "ebb_session",
        "ebb_cost",
        "ebb_way_back",
        "ebb_nesting",
        "ebb_sigill",
        "ebb_counting",
        "ebb_pending",
        "ebb_pending_tasks",
        "ebb_long_run",
        "ebb_fork",
        "ebb_processes",
        "ebb_switch",
        "ebb_restart",
        "ebb_exec",
        "ebb_foreign",
        "ebb_hotplug",
        "ebb_races",
        "ebb_ptrace",
        "ebb_core",
        "ebb_no_handler",
        "ebb_first_event",
        "ebb_uapi",
        "libebb_calls",
        "libebb_clients",
        "ebb_event_code",
        "ebb_bhrb",
    ])
}
