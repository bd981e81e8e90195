/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What bindgen reads to make bindings_generated.rs: the headers in which perf
 * core declares its interface to PMU drivers, and the functions of shim.c.
 */
#include <linux/perf_event.h>

#include "shim.h"
