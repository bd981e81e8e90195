/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The input from which bindgen makes bindings_generated.rs: the headers of
 * functions that the kernel crate does not bind, and the functions of the
 * shims.
 */
#include <linux/perf_event.h>
#include <asm/hw_irq.h>
#include <asm/lppaca.h>
#include <asm/paca.h>
#include <asm/pmc.h>
#include <asm/time.h>

#include "parameters.h"
#include "shim.h"

/* The paca's field with the mask of interrupts, and the mask's bit for PMIs. */
static const unsigned int EBB_PMU_PACA_IRQ_SOFT_MASK =
	offsetof(struct paca_struct, irq_soft_mask);
static const unsigned char EBB_PMU_IRQS_PMI_DISABLED = IRQS_PMI_DISABLED;
/* The paca's field with the interrupts that occurred while masked, and its bit for PMIs. */
static const unsigned int EBB_PMU_PACA_IRQ_HAPPENED =
	offsetof(struct paca_struct, irq_happened);
static const unsigned char EBB_PMU_PACA_IRQ_PMI = PACA_IRQ_PMI;
#ifdef CONFIG_PPC_PSERIES
/* The paca's field with the address of the lppaca, and the lppaca's "yield_count". */
static const unsigned int EBB_PMU_PACA_LPPACA = offsetof(struct paca_struct, lppaca_ptr);
static const unsigned int EBB_PMU_LPPACA_YIELD_COUNT = offsetof(struct lppaca, yield_count);
#endif
/* The paca's field with the current task. */
static const unsigned int EBB_PMU_PACA_CURRENT = offsetof(struct paca_struct, __current);
