// SPDX-License-Identifier: GPL-2.0
/*
 * What the perf abstraction needs of C: walking per-CPU memory, taking raw
 * spinlocks, stopping CPUs and asking what memory is, for which the kernel crate
 * has nothing.
 */
#include <linux/cpumask.h>
#include <linux/hrtimer.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <linux/rcupdate.h>
#include <linux/spinlock.h>
#include <linux/stop_machine.h>

#include "shim.h"

/* Returns whether the timer was off or could be stopped. It remains off then. */
static bool stop_timer(struct perf_cpu_pmu_context *cpc)
{
	unsigned long flags;
	bool stopped;

	/*
	 * While the timer is marked active, only its own function arms it,
	 * until that function clears the mark. Then perf core may arm the timer
	 * once more and mark it. So check the timer, too.
	 */
	raw_spin_lock_irqsave(&cpc->hrtimer_lock, flags);
	cpc->hrtimer_active = 1;
	raw_spin_unlock_irqrestore(&cpc->hrtimer_lock, flags);

	hrtimer_cancel(&cpc->hrtimer);

	raw_spin_lock_irqsave(&cpc->hrtimer_lock, flags);
	stopped = cpc->hrtimer_active && !hrtimer_active(&cpc->hrtimer);
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

bool ebb_perf_is_permanent(const void *object)
{
	return virt_addr_valid(object) && PageReserved(virt_to_page(object));
}

bool ebb_perf_may_disappear(const struct pmu *pmu)
{
	return pmu->module || pmu->parent || !ebb_perf_is_permanent(pmu) ||
	       !ebb_perf_is_permanent(pmu->name);
}

int ebb_perf_prepare_unregister(struct perf_event *event)
{
	struct pmu *pmu;

	/*
	 * perf_pmu_unregister() marks each open event as revoked, then takes
	 * the event's mmap_mutex. It frees nothing until no event is left.
	 */
	guard(mutex)(&event->mmap_mutex);
	if (event->state <= PERF_EVENT_STATE_REVOKED)
		return -ENODEV;

	pmu = event->pmu;
	if (pmu->event_unmapped || ebb_perf_may_disappear(pmu))
		return -EBUSY;
	ebb_perf_stop_rotation(pmu);
	return 0;
}

int ebb_perf_events_on_cpu(const struct pmu *pmu)
{
	return (*this_cpu_ptr(pmu->cpu_pmu_context))->active_oncpu;
}

int ebb_perf_stop_cpus(int (*function)(void *data), void *data)
{
	return stop_machine(function, data, cpu_online_mask);
}

bool ebb_perf_module_get(void)
{
	return try_module_get(THIS_MODULE);
}

void ebb_perf_module_put(void)
{
	module_put(THIS_MODULE);
}

void ebb_perf_synchronize_rcu_tasks(void)
{
	synchronize_rcu_tasks();
}
