/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The functions of shim.c. One that stands for a function or macro of the kernel
 * bears its name after "ebb_pmu_", and its documentation is the kernel's.
 */
#ifndef EBB_PMU_SHIM_H
#define EBB_PMU_SHIM_H

#include <linux/types.h>

struct pt_regs;

/* cpu_has_feature() of <asm/cputable.h> */
bool ebb_pmu_cpu_has_arch_300(void);
bool ebb_pmu_cpu_has_arch_31(void);

/* <asm/pmc.h> */
void ebb_pmu_ppc_set_pmu_inuse(bool inuse);

/* <asm/hw_irq.h> */
void ebb_pmu_set_pmi_irq_pending(void);
void ebb_pmu_hard_irq_disable(void);

/* <asm/irq_regs.h> */
struct pt_regs *ebb_pmu_get_irq_regs(void);

/* <linux/tracepoint.h> */
void ebb_pmu_tracepoint_synchronize_unregister(void);

/*
 * The address of a function of the kernel, by its name, if it is within 64 KiB
 * of another address; 0 if there is none.
 */
unsigned long ebb_pmu_find_function(const char *name, unsigned long near);

/*
 * Replace the handler of PMIs, which another driver has reserved, while nothing
 * else runs on any CPU.
 */
int ebb_pmu_replace_handler(void (*handler)(struct pt_regs *regs));

/*
 * The instruction at an address of the current program or of the kernel, or a
 * negative number if it cannot be read without a page fault. Only between begin
 * and end.
 */
void ebb_pmu_user_access_begin(void);
void ebb_pmu_user_access_end(void);
long ebb_pmu_instruction(unsigned long address);

/* Say (dynamic debug) that an event was refused with an errno, and why. */
void ebb_pmu_log_refusal(u64 config, int error, const char *reason,
			 size_t length);

#endif
