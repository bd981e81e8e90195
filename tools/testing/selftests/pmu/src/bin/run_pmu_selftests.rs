// SPDX-License-Identifier: GPL-2.0
//! Runs the selftests of regular counting (`--list` names them).

fn main() {
    ktap::runner::main_with(&[
        "pmu_count",
        "pmu_read",
        "pmu_group",
        "pmu_exclude",
        "pmu_userpage",
        "pmu_pinned",
        "pmu_multiplex",
        "pmu_isolation",
        "pmu_inherit",
        "pmu_per_cpu",
        "pmu_sampling",
        "pmu_sample_fields",
        "pmu_sample_registers",
        "pmu_sample_masked",
        "pmu_sample_hidden",
        "pmu_sample_rate",
        "pmu_new_period",
        "pmu_outrun",
        "pmu_overflow_signals",
        "pmu_branch_filters",
        "pmu_branch_isolation",
        "pmu_branch_stack",
        "pmu_past_32bit",
        "pmu_hotplug",
    ])
}
