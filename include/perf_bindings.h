/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What bindgen reads to make rust/perf/bindings_generated.rs: the headers in
 * which perf core declares its interface to PMU drivers.
 */
#include <linux/perf_event.h>
