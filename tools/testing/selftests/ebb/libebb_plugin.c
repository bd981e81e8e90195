// SPDX-License-Identifier: GPL-2.0
/* A shared object that takes EBBs, with a copy of libebb of its own or with libebb.so. */
#include <ebb.h>
#include <errno.h>
#include <stddef.h>

#include "libebb_plugin.h"

static __thread struct ebb *ebb;

static void handler(struct ebb_context *context, void *user)
{
	unsigned long *last = user;

	*last = ebb_context_address(context);
}

int plugin_start(void)
{
	static __thread unsigned long last;
	int error;

	ebb = ebb_open("cycles", 10000, 0);
	if (ebb && !ebb_start(ebb, handler, &last, EBB_SAVE_FULL))
		return 0;
	error = errno;
	ebb_close(ebb);
	ebb = NULL;
	return error;
}

unsigned long plugin_count(void)
{
	return ebb_count(ebb);
}

int plugin_end(void)
{
	int state = ebb_state(ebb);

	ebb_close(ebb);
	ebb = NULL;
	return state != EBB_RUNNING;
}
