/* SPDX-License-Identifier: GPL-2.0 */
/* The functions of shim.c. */
#ifndef EBB_PERF_SHIM_H
#define EBB_PERF_SHIM_H

#include <linux/types.h>

struct perf_event;
struct pmu;

/*
 * Stop rotating the events of a registered PMU, for good: perf core frees what
 * the timer of the rotation is part of when the PMU is unregistered, but leaves
 * the timer armed (Linux 7.3, perf_pmu_free()).
 */
void ebb_perf_stop_rotation(struct pmu *pmu);

/* Whether an object is in memory that the kernel has had since it booted. */
bool ebb_perf_is_permanent(const void *object);

/*
 * Prepare to unregister the PMU of somebody else, by an open event of that PMU:
 * stop rotating its events. Fails with -ENODEV when it is unregistered already,
 * and leaves it alone with -EBUSY when it may go (it belongs to a module or a
 * device, or its structure or name is in memory that may be freed), or when perf
 * core might not unregister it.
 */
int ebb_perf_prepare_unregister(struct perf_event *event);

#endif
