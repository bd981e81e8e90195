// SPDX-License-Identifier: GPL-2.0
/*
 * What the kernel offers to C only, as inline functions and macros, in the
 * form of functions that rust/power/ can call, with as little logic as can be.
 */
#define pr_fmt(fmt) "ebb_pmu: " fmt

#include <linux/cpuhotplug.h>
#include <linux/hrtimer.h>
#include <linux/irq_work.h>
#include <linux/irqflags.h>
#include <linux/moduleparam.h>
#include <linux/of.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <linux/printk.h>
#include <linux/sched/clock.h>
#include <linux/string.h>
#include <linux/tracepoint.h>
#include <linux/uaccess.h>
#include <asm/cpu_has_feature.h>
#include <asm/firmware.h>
#include <asm/hw_irq.h>
#include <asm/irq_regs.h>
#include <asm/machdep.h>
#include <asm/pmc.h>
#include <asm/ptrace.h>

#include "shim.h"

/* What rust/power/sampled.rs takes the numbers of sampled registers to be. */
static_assert(PERF_REG_POWERPC_PMC1 == 51 && PERF_REG_POWERPC_PMC6 == 56);
static_assert(PERF_REG_POWERPC_SDAR == 57 && PERF_REG_POWERPC_SIAR == 58);

void ebb_pmu_set_in_use(bool in_use)
{
	ppc_set_pmu_inuse(in_use);
}

void ebb_pmu_set_prompt(bool wanted)
{
	set_prompt_pmi_wanted(wanted);
}

void ebb_pmu_enable_pmcs(void)
{
	/*
	 * As ppc_enable_pmcs(), which however does it once in the lifetime of a
	 * CPU's number, not again when the CPU has been away.
	 */
	ppc_set_pmu_inuse(1);
	if (ppc_md.enable_pmcs)
		ppc_md.enable_pmcs();
}

bool ebb_pmu_clear_pending(void)
{
	/*
	 * A pending PM interrupt implies MSR[EE]=0 (the masked handler cleared
	 * it), so nothing changes irq_happened between test and write.
	 */
	if (!pmi_irq_pending())
		return false;
	clear_pmi_irq_pending();
	return true;
}

void ebb_pmu_set_pending(void)
{
	hard_irq_disable();
	set_pmi_irq_pending();
}

void ebb_pmu_hard_disable(void)
{
	hard_irq_disable();
}

unsigned long ebb_pmu_mask(void)
{
	unsigned long flags;

	powerpc_local_irq_pmu_save(flags);
	return flags;
}

void ebb_pmu_unmask(unsigned long flags)
{
	powerpc_local_irq_pmu_restore(flags);
}

int ebb_pmu_reserve(void (*handler)(struct pt_regs *))
{
	return reserve_pmc_hardware(handler);
}

void ebb_pmu_release(void)
{
	release_pmc_hardware();
}

void ebb_pmu_set_sampled(struct pt_regs *regs, bool siar, unsigned long sier,
			 unsigned long mmcra)
{
	regs->result = siar;
	regs->dar = sier;
	regs->dsisr = mmcra;
}

void ebb_pmu_user_access_begin(void)
{
	pagefault_disable();
	/* No address is ever outside of nothing; each one read is checked. */
	(void)user_read_access_begin((void __user *)0, 0);
}

void ebb_pmu_user_access_end(void)
{
	user_read_access_end();
	pagefault_enable();
}

long ebb_pmu_user_instruction(unsigned long address)
{
	u32 __user *from = (u32 __user *)address;
	u32 instruction;

	if (!access_ok(from, sizeof(instruction)))
		return -EFAULT;
	barrier_nospec();
	unsafe_get_user(instruction, from, fault);
	return instruction;
fault:
	return -EFAULT;
}

long ebb_pmu_kernel_instruction(unsigned long address)
{
	u32 instruction;

	if (copy_from_kernel_nofault(&instruction, (void *)address,
				     sizeof(instruction)))
		return -EFAULT;
	return instruction;
}

void ebb_pmu_set_sampled_counter(int index, unsigned long value)
{
	set_pmcs_ext_regs(index, value);
}

static bool strict_filters;
module_param(strict_filters, bool, 0444);
MODULE_PARM_DESC(strict_filters,
		 "refuse filters of branch stacks that the hardware alone cannot apply");

bool ebb_pmu_strict_filters(void)
{
	return strict_filters;
}

static int prompt = -1;
module_param(prompt, int, 0444);
MODULE_PARM_DESC(prompt,
		 "sample in handlers of other interrupts: 1 yes, 0 no, -1 (default) yes, but not in an emulator");

bool ebb_pmu_prompt(void)
{
	return prompt < 0 ? !ebb_pmu_emulated() : prompt > 0;
}

unsigned long ebb_pmu_program_nip(void)
{
	struct pt_regs *regs = task_pt_regs(current);

	return regs ? regs->nip : 0;
}

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

bool ebb_pmu_in_lpar(void)
{
	return firmware_has_feature(FW_FEATURE_LPAR);
}

bool ebb_pmu_alert_defect(void)
{
	return cpu_has_feature(CPU_FTR_PMAO_BUG);
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

u64 ebb_pmu_clock(void)
{
	return sched_clock();
}

void ebb_pmu_refused(u64 config, int error, const char *reason, size_t length)
{
	pr_debug("event %#llx refused (%d): %.*s\n", config, error,
		 (int)length, reason);
}

int ebb_pmu_hotplug_add(int (*fn)(unsigned int cpu))
{
	return cpuhp_setup_state_nocalls(CPUHP_BP_PREPARE_DYN,
					 "perf/ebb_pmu:prepare", fn, NULL);
}

void ebb_pmu_hotplug_remove(int state)
{
	cpuhp_remove_state_nocalls(state);
}

#ifdef CONFIG_TRACEPOINTS
static struct tracepoint *exec_tracepoint;
static void (*exec_fn)(void *data);

static void exec_find(struct tracepoint *tp, void *priv)
{
	if (!strcmp(tp->name, "sched_process_exec"))
		exec_tracepoint = tp;
}

static void exec_probe(void *data, struct task_struct *task, pid_t old_pid,
		       struct linux_binprm *bprm)
{
	unsigned long flags;

	local_irq_save(flags);
	exec_fn(data);
	local_irq_restore(flags);
}

int ebb_pmu_exec_watch(void (*fn)(void *data), void *data)
{
	for_each_kernel_tracepoint(exec_find, NULL);
	if (!exec_tracepoint)
		return -ENOENT;
	exec_fn = fn;
	return tracepoint_probe_register(exec_tracepoint, exec_probe, data);
}

void ebb_pmu_exec_unwatch(void *data)
{
	tracepoint_probe_unregister(exec_tracepoint, exec_probe, data);
	tracepoint_synchronize_unregister();
}
#else
int ebb_pmu_exec_watch(void (*fn)(void *data), void *data)
{
	return -ENOENT;
}

void ebb_pmu_exec_unwatch(void *data)
{
}
#endif
