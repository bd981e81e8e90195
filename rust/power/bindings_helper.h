/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What bindgen reads to make bindings_generated.rs: the headers of functions that
 * the kernel crate does not bind, and the functions of the shims.
 */
#include <linux/perf_event.h>
#include <linux/sched/clock.h>
#include <asm/pmc.h>

#include "parameters.h"
#include "shim.h"
