/* SPDX-License-Identifier: GPL-2.0 */
/* The functions of shim.c. */
#ifndef EBB_PERF_SHIM_H
#define EBB_PERF_SHIM_H

struct pmu;

/*
 * Stop rotating the events of a registered PMU, for good: perf core frees what
 * the timer of the rotation is part of when the PMU is unregistered, but leaves
 * the timer armed (Linux 7.3, perf_pmu_free()).
 */
void ebb_perf_stop_rotation(struct pmu *pmu);

#endif
