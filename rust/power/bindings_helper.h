/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What bindgen reads to make bindings_generated.rs: the headers of functions that
 * the kernel crate does not bind, and the functions of the shims.
 */
#include <linux/perf_event.h>
#include <asm/hw_irq.h>
#include <asm/lppaca.h>
#include <asm/paca.h>
#include <asm/pmc.h>
#include <asm/time.h>

#include "parameters.h"
#include "shim.h"

/* Where the mask of interrupts is in the paca, and its bit for PMIs. */
static const unsigned int EBB_PMU_PACA_IRQ_SOFT_MASK =
	offsetof(struct paca_struct, irq_soft_mask);
static const unsigned char EBB_PMU_IRQS_PMI_DISABLED = IRQS_PMI_DISABLED;
/* Where the interrupts that came while masked are in the paca, and the bit of PMIs. */
static const unsigned int EBB_PMU_PACA_IRQ_HAPPENED =
	offsetof(struct paca_struct, irq_happened);
static const unsigned char EBB_PMU_PACA_IRQ_PMI = PACA_IRQ_PMI;
#ifdef CONFIG_PPC_PSERIES
/* Where the address of the CPU's <asm/lppaca.h> is in the paca, and "yield_count" in that. */
static const unsigned int EBB_PMU_PACA_LPPACA = offsetof(struct paca_struct, lppaca_ptr);
static const unsigned int EBB_PMU_LPPACA_YIELD_COUNT = offsetof(struct lppaca, yield_count);
#endif
/* Where the current task is in the paca. */
static const unsigned int EBB_PMU_PACA_CURRENT = offsetof(struct paca_struct, __current);
