/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What bindgen reads to make rust/perf/bindings_generated.rs: the headers in
 * which perf core declares its interface to PMU drivers, and the functions of
 * rust/perf/shim.c.
 */
#include <linux/perf_event.h>

/*
 * Stop rotating the events of a registered PMU, for good: perf core frees what
 * the timer of the rotation is part of when the PMU is unregistered, but leaves
 * the timer armed (Linux 7.3, perf_pmu_free()).
 */
void ebb_perf_stop_rotation(struct pmu *pmu);
