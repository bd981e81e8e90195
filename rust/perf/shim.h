/* SPDX-License-Identifier: GPL-2.0 */
/* The functions of shim.c. */
#ifndef EBB_PERF_SHIM_H
#define EBB_PERF_SHIM_H

#include <linux/types.h>

struct perf_event;
struct pmu;

/*
 * Stop rotating the events of a registered PMU permanently. When the PMU is
 * unregistered, perf core frees the memory that contains the timer of the
 * rotation, but does not stop the timer (Linux 7.3, perf_pmu_free()).
 */
void ebb_perf_stop_rotation(struct pmu *pmu);

/* Returns whether an object is in memory that the kernel has had since boot. */
bool ebb_perf_is_permanent(const void *object);

/*
 * Prepare to unregister the PMU of another driver, given an open event of that
 * PMU: stop rotating its events. Fails with -ENODEV if it is already
 * unregistered. Fails with -EBUSY, and does not change the PMU, if its memory
 * may be freed (it belongs to a module or a device, or its structure or name is
 * in memory that may be freed), or if perf core might not unregister it.
 */
int ebb_perf_prepare_unregister(struct perf_event *event);

/*
 * Whether a registered PMU may disappear: it belongs to a module or a device, or its
 * structure or name is in memory that may be freed.
 */
bool ebb_perf_may_disappear(const struct pmu *pmu);

/* The number of events on this CPU that are in a context of a PMU, except for software events. */
int ebb_perf_events_on_cpu(const struct pmu *pmu);

/* Call a function on all CPUs at a time, with interrupts off and nothing else running. */
int ebb_perf_stop_cpus(int (*function)(void *data), void *data);

/* Take a reference to this module, unless it is going, and give it back. */
bool ebb_perf_module_get(void);
void ebb_perf_module_put(void);

/* Wait until each task has slept or run its program. */
void ebb_perf_synchronize_rcu_tasks(void);

#endif
