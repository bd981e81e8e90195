// SPDX-License-Identifier: GPL-2.0
/*
 * An object that programs load late. It has a function with a frame, in which LR mostly holds an
 * address in the function itself. With STARTS, its constructor waits for a thread.
 */
#ifdef STARTS
#include <pthread.h>
#include <stdlib.h>
#endif

#include "ebbprof_work.h"

WORK(deep)

void late(unsigned long rounds)
{
	for (unsigned long n = 0; n < rounds; n++)
		deep(1);
}

/* A second function, without a frame. */
WORK(other)

#ifdef STARTS
static void *in_thread(void *unused)
{
	late(100);
	return unused;
}

static __attribute__((constructor)) void start(void)
{
	pthread_t id;

	if (pthread_create(&id, NULL, in_thread, NULL) || pthread_join(id, NULL))
		exit(1);
}
#endif
