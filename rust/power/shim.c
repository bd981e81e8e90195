// SPDX-License-Identifier: GPL-2.0
/*
 * Inline functions and macros of the kernel, wrapped in functions that
 * rust/power can call. They contain as little logic as possible.
 */
#define pr_fmt(fmt) "ebb_pmu: " fmt

#include <linux/kallsyms.h>
#include <linux/kernel.h>
#include <linux/perf_event.h>
#include <linux/printk.h>
#include <linux/sizes.h>
#include <linux/stop_machine.h>
#include <linux/string.h>
#include <linux/tracepoint.h>
#include <linux/uaccess.h>
#include <asm/cputable.h>
#include <asm/hw_irq.h>
#include <asm/irq_regs.h>
#include <asm/paca.h>
#include <asm/pmc.h>

#include "shim.h"

/* The numbers of registers that rust/power/extended_regs.rs uses. */
static_assert(PERF_REG_POWERPC_PMC1 == 51 && PERF_REG_POWERPC_PMC6 == 56);
static_assert(PERF_REG_POWERPC_SDAR == 57 && PERF_REG_POWERPC_SIAR == 58);
static_assert(PERF_REG_POWERPC_SIER2 == 49 && PERF_REG_POWERPC_SIER3 == 50);

bool ebb_pmu_cpu_has_arch_300(void)
{
	return cpu_has_feature(CPU_FTR_ARCH_300);
}

bool ebb_pmu_cpu_has_arch_31(void)
{
	return cpu_has_feature(CPU_FTR_ARCH_31);
}

void ebb_pmu_ppc_set_pmu_inuse(bool inuse)
{
	ppc_set_pmu_inuse(inuse);
}

void ebb_pmu_set_pmi_irq_pending(void)
{
	set_pmi_irq_pending();
}

void ebb_pmu_hard_irq_disable(void)
{
	hard_irq_disable();
}

struct pt_regs *ebb_pmu_get_irq_regs(void)
{
	return get_irq_regs();
}

void ebb_pmu_tracepoint_synchronize_unregister(void)
{
	tracepoint_synchronize_unregister();
}

/*
 * notrace: otherwise a tracer would be called between begin and end, and could
 * access the program's memory.
 */
notrace void ebb_pmu_user_access_begin(void)
{
	bool __maybe_unused begun;

	pagefault_disable();
	/*
	 * A zero-length range always passes access_ok(). The address of each
	 * instruction is checked when it is read.
	 */
	begun = user_read_access_begin((void __user *)0, 0);
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

void ebb_pmu_log_refusal(u64 config, int error, const char *reason,
			 size_t length)
{
	pr_debug("event %#llx refused (%d): %.*s\n", config, error,
		 (int)length, reason);
}

unsigned long ebb_pmu_find_function(const char *name, unsigned long near)
{
	unsigned long address = near - SZ_64K;
	char symbol[KSYM_SYMBOL_LEN];

	while (address < near + SZ_64K) {
		unsigned long offset, size;
		char *plus;

		sprint_symbol(symbol, address);
		plus = strrchr(symbol, '+');
		if (!plus || sscanf(plus, "+%lx/%lx", &offset, &size) != 2 || offset >= size) {
			address += 4;
			continue;
		}
		*plus = 0;
		if (!strcmp(symbol, name))
			return address - offset;
		address += size - offset;
	}
	return 0;
}

/* No other code runs, so no PMI occurs while there is no handler. */
static int replace_handler(void *handler)
{
	release_pmc_hardware();
	return reserve_pmc_hardware(handler);
}

int ebb_pmu_replace_handler(void (*handler)(struct pt_regs *regs))
{
	return stop_machine(replace_handler, handler, NULL);
}
