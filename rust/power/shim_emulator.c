// SPDX-License-Identifier: GPL-2.0
/*
 * What the kernel offers to C only and only an emulated machine needs: a timer
 * for each CPU, and what the device tree says of the emulator.
 */
#include <linux/hrtimer.h>
#include <linux/irq_work.h>
#include <linux/of.h>
#include <linux/percpu.h>
#include <asm/hw_irq.h>
#include <asm/irq_regs.h>
#include <asm/ptrace.h>

#include "shim_emulator.h"

struct look {
	struct hrtimer timer;
	/* Starts the timer for a PM interrupt that is an NMI. */
	struct irq_work start;
};

static DEFINE_PER_CPU(struct look, looks);
static u64 (*look_fn)(bool in_program);

static void look_start(u64 ns)
{
	struct hrtimer *timer = this_cpu_ptr(&looks.timer);

	if (hrtimer_is_queued(timer) &&
	    hrtimer_get_remaining(timer) <= ns_to_ktime(ns))
		return;
	hrtimer_start(timer, ns_to_ktime(ns), HRTIMER_MODE_REL_PINNED_HARD);
}

static void look_start_now(struct irq_work *work)
{
	look_start(EBB_PMU_LOOK_SOON_NS);
}

static enum hrtimer_restart look_now(struct hrtimer *timer)
{
	struct pt_regs *regs = get_irq_regs();
	unsigned long flags;
	u64 next;

	powerpc_local_irq_pmu_save(flags);
	next = look_fn(regs && user_mode(regs));
	powerpc_local_irq_pmu_restore(flags);

	/* Not always this timer: one whose CPU went offline fires on another. */
	if (next)
		look_start(next);
	return HRTIMER_NORESTART;
}

void ebb_pmu_look_setup(u64 (*fn)(bool in_program))
{
	int cpu;

	look_fn = fn;
	for_each_possible_cpu(cpu) {
		struct look *look = per_cpu_ptr(&looks, cpu);

		hrtimer_setup(&look->timer, look_now, CLOCK_MONOTONIC,
			      HRTIMER_MODE_REL_PINNED_HARD);
		look->start = IRQ_WORK_INIT_HARD(look_start_now);
	}
}

void ebb_pmu_look_teardown(void)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		struct look *look = per_cpu_ptr(&looks, cpu);

		irq_work_sync(&look->start);
		hrtimer_cancel(&look->timer);
	}
}

void ebb_pmu_look_within(u64 ns)
{
	if (in_nmi())
		irq_work_queue(this_cpu_ptr(&looks.start));
	else
		look_start(ns);
}

bool ebb_pmu_emulated(void)
{
	struct device_node *node;

	if (!of_machine_is_compatible("qemu,pseries"))
		return false;
	/* Only KVM describes itself. */
	node = of_find_node_by_path("/hypervisor");
	of_node_put(node);
	return !node;
}

bool ebb_pmu_bhrb_missing(void)
{
	struct device_node *node;
	bool missing;

	if (!ebb_pmu_emulated())
		return false;
	/* Nothing says so. A property that came with the same release tells. */
	node = of_find_node_by_type(NULL, "cpu");
	missing = node && !of_property_present(node, "ibm,pi-features");
	of_node_put(node);
	return missing;
}
