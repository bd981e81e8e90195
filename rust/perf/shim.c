// SPDX-License-Identifier: GPL-2.0
/*
 * What the perf abstraction needs of C: walking per-CPU memory and taking raw
 * spinlocks, for which the kernel crate has nothing.
 */
#include <linux/cpumask.h>
#include <linux/hrtimer.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <linux/spinlock.h>

#include "shim.h"

/* Whether the timer was off or could be stopped; it stays so then. */
static bool stop_timer(struct perf_cpu_pmu_context *cpc)
{
	unsigned long flags;
	bool stopped;

	/* Marked active, nobody arms it; only its own function takes that back. */
	raw_spin_lock_irqsave(&cpc->hrtimer_lock, flags);
	cpc->hrtimer_active = 1;
	raw_spin_unlock_irqrestore(&cpc->hrtimer_lock, flags);

	hrtimer_cancel(&cpc->hrtimer);

	raw_spin_lock_irqsave(&cpc->hrtimer_lock, flags);
	stopped = cpc->hrtimer_active;
	raw_spin_unlock_irqrestore(&cpc->hrtimer_lock, flags);
	return stopped;
}

void ebb_perf_stop_rotation(struct pmu *pmu)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		while (!stop_timer(*per_cpu_ptr(pmu->cpu_pmu_context, cpu)))
			cpu_relax();
	}
}
