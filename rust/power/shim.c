// SPDX-License-Identifier: GPL-2.0
/*
 * What the kernel offers to C only, as inline functions and macros, in the
 * form of functions that rust/power/ can call, with as little logic as can be.
 */
#define pr_fmt(fmt) "ebb_pmu: " fmt

#include <linux/cpuhotplug.h>
#include <linux/irqflags.h>
#include <linux/moduleparam.h>
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

/*
 * notrace: a tracer is called between begin and end otherwise, and could reach
 * the program's memory.
 */
notrace void ebb_pmu_user_access_begin(void)
{
	pagefault_disable();
	/*
	 * A zero-length range always passes access_ok(). The address of each
	 * instruction is checked when it is read.
	 */
	(void)user_read_access_begin((void __user *)0, 0);
}

notrace void ebb_pmu_user_access_end(void)
{
	user_read_access_end();
	pagefault_enable();
}

notrace long ebb_pmu_instruction(unsigned long address)
{
	u32 __user *from = (u32 __user *)address;
	u32 instruction;

	if (is_kernel_addr(address)) {
		__get_kernel_nofault(&instruction, (u32 *)address, u32, fault);
		return instruction;
	}
	if (!access_ok(from, sizeof(instruction)))
		return -EFAULT;
	barrier_nospec();
	unsafe_get_user(instruction, from, fault);
	return instruction;
fault:
	return -EFAULT;
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
		 "sample in handlers of other interrupts: 1 yes, 0 no, -1 (default) by machine");

int ebb_pmu_prompt(void)
{
	return prompt;
}

unsigned long ebb_pmu_program_nip(void)
{
	struct pt_regs *regs = task_pt_regs(current);

	return regs ? regs->nip : 0;
}

bool ebb_pmu_interrupted_user(void)
{
	struct pt_regs *regs = get_irq_regs();

	return regs && user_mode(regs);
}

bool ebb_pmu_in_lpar(void)
{
	return firmware_has_feature(FW_FEATURE_LPAR);
}

bool ebb_pmu_alert_defect(void)
{
	return cpu_has_feature(CPU_FTR_PMAO_BUG);
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
