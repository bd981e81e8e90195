/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The input from which bindgen makes bindings_generated.rs: the headers in
 * which perf core declares its interface to PMU drivers, and the functions of
 * shim.c.
 */
#include <linux/perf_event.h>

#ifdef CONFIG_PPC64
#include <asm/paca.h>

/* The paca's field with the CPU's number. */
static const unsigned int EBB_PERF_PACA_INDEX =
	offsetof(struct paca_struct, paca_index);
#endif

#include "shim.h"
