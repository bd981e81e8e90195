/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The functions of shim.c: what the kernel offers to C only, as inline functions
 * and macros.
 */
#ifndef EBB_PMU_SHIM_H
#define EBB_PMU_SHIM_H

#include <linux/types.h>

struct pt_regs;

/* Tell the hypervisor (lppaca) and KVM (paca) whether PMU registers matter. */
void ebb_pmu_set_in_use(bool in_use);

/*
 * Whether handlers of other interrupts are to let PM interrupts of this CPU
 * through. Interrupts must be off.
 */
void ebb_pmu_set_prompt(bool wanted);

/* Turn PMU registers on for this CPU, which is due each time it comes up. */
void ebb_pmu_enable_pmcs(void);

/*
 * Forget a PM interrupt that came while it was masked, and say whether there was
 * one. Interrupts must be off.
 */
bool ebb_pmu_clear_pending(void);

/* Have a PM interrupt as soon as interrupts are on. Leaves them hard disabled. */
void ebb_pmu_set_pending(void);

/* Have no interrupt, PM or other, before interrupts are turned on again. */
void ebb_pmu_hard_disable(void);

/* Mask PM interrupts, and put the mask back to what it was. */
unsigned long ebb_pmu_mask(void);
void ebb_pmu_unmask(unsigned long flags);

/* Take and give back the PMU. The handler runs with interrupts off. */
int ebb_pmu_reserve(void (*handler)(struct pt_regs *));
void ebb_pmu_release(void);

/*
 * Tell the built-in part of perf (perf_arch_misc_flags() and the callchain) what
 * a PM interrupt sampled: whether SIAR rather than the registers says where, and
 * with which SIER and MMCRA. What it reads are these fields of a PM interrupt's
 * registers, which are not set when the interrupt is a replay.
 */
void ebb_pmu_set_sampled(struct pt_regs *regs, bool siar, unsigned long sier,
			 unsigned long mmcra);

/*
 * The instruction at an address of the current program or of the kernel, or a
 * negative number if it cannot be read without a page fault. Only between begin
 * and end.
 */
void ebb_pmu_user_access_begin(void);
void ebb_pmu_user_access_end(void);
long ebb_pmu_instruction(unsigned long address);

/*
 * Set what the extended registers of samples have for a counter (0 for PMC1) on
 * this CPU.
 */
void ebb_pmu_set_sampled_counter(int index, unsigned long value);

/* The module's parameter strict_filters. */
bool ebb_pmu_strict_filters(void);

/* The module's parameter prompt: 1 yes, 0 no, negative: the default. */
int ebb_pmu_prompt(void);

/* Where the current task's program goes on after the kernel; 0 if it has none. */
unsigned long ebb_pmu_program_nip(void);

/* Whether the interrupt under way, other than a PMI, interrupted a program. */
bool ebb_pmu_interrupted_user(void);

/* Whether there is a hypervisor above this kernel. */
bool ebb_pmu_in_lpar(void);

/* Whether the CPU takes no notice of an alert in MMCR0 that is written there. */
bool ebb_pmu_alert_defect(void);

/* Nanoseconds of this CPU's scheduler clock. */
u64 ebb_pmu_clock(void);

/* Say (dynamic debug) why an event was refused with an errno. */
void ebb_pmu_refused(u64 config, int error, const char *reason, size_t length);

/*
 * Have fn(data) called by each task that begins another program, in the task
 * and with interrupts off. ENOENT if the kernel cannot tell.
 */
int ebb_pmu_exec_watch(void (*fn)(void *data), void *data);
void ebb_pmu_exec_unwatch(void *data);

/* Have fn(cpu) called before a CPU comes up. A positive number or an errno. */
int ebb_pmu_hotplug_add(int (*fn)(unsigned int cpu));
void ebb_pmu_hotplug_remove(int state);

#endif
