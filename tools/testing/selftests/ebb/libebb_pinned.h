/* SPDX-License-Identifier: GPL-2.0 */
/* Another's event that has the PMU; who includes this defines _GNU_SOURCE. */
#ifndef _LIBEBB_PINNED_H
#define _LIBEBB_PINNED_H

#include <linux/perf_event.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Has this thread stay on its CPU, and a pinned event of that CPU there. */
static inline int pinned_event_here(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_RAW,
		.size = sizeof(attr),
		.config = 0x1001e,
		.pinned = 1,
	};
	cpu_set_t here;

	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	sched_setaffinity(0, sizeof(here), &here);
	return syscall(SYS_perf_event_open, &attr, -1, sched_getcpu(), -1, PERF_FLAG_FD_CLOEXEC);
}

#endif
