// SPDX-License-Identifier: GPL-2.0
//! Runs the EBB selftests in its folder: all, or those that the arguments name; `--list` prints the
//! names.

fn main() {
    ktap::runner::main_with(&[
        "ebb_attributes",
        "ebb_scheduling",
        "ebb_close",
        "ebb_registers",
        "ebb_library",
        "ebb_session",
        "ebb_examples",
        "ebb_way_back",
        "ebb_entry",
        "ebb_calls",
        "ebb_periods",
        "ebb_stack",
        "ebb_sequences",
        "ebb_nesting",
        "ebb_sigill",
        "ebb_counting",
        "ebb_pending",
        "ebb_pending_tasks",
        "ebb_switch",
        "ebb_restart",
        "ebb_exec",
        "ebb_foreign",
        "ebb_hotplug",
        "ebb_races",
        "ebb_ptrace",
        "ebb_first_event",
        "ebb_uapi",
        "libebb_calls",
        "libebb_samples",
        "libebb_calls_shared",
        "libebb_calls_loaded",
        "libebb_plugins",
        "libebb_exceptions",
        "ebb_event_code",
        "ebb_bhrb",
    ])
}
