// SPDX-License-Identifier: GPL-2.0
/*
 * A shared object that takes EBBs, with its own copy of libebb or with libebb.so. Each thread may
 * have its own session. libebb_plugins loads the object.
 */
#include <ebb.h>
#include <errno.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>

static __thread struct ebb *ebb;
static __thread jmp_buf *out;
static __thread bool ends;

static void handler(struct ebb_context *context, void *user)
{
	unsigned long *last = user;

	*last = ebb_context_address(context);
	if (!out)
		return;
	if (ends) {
		ebb_close(ebb);
		ebb = NULL;
	}
	longjmp(*out, 1);
}

/* Starts EBBs on the calling thread; returns 0 or an errno. */
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

/* Returns the number of EBBs. */
unsigned long plugin_count(void)
{
	return ebb_count(ebb);
}

/* Jumps out of the next EBB's handler, which closes the session if @end; returns 0 if one came. */
int plugin_leave(bool end)
{
	jmp_buf here;
	int result = 0;

	ends = end;
	if (!setjmp(here)) {
		out = &here;
		for (unsigned long i = 0; i < 1UL << 30; i++)
			__asm__ volatile("" : : : "memory");
		result = -1;
	}
	out = NULL;
	return result;
}

/* Closes the session; returns 0 if it was still running. */
int plugin_end(void)
{
	int state = ebb_state(ebb);

	ebb_close(ebb);
	ebb = NULL;
	return state != EBB_RUNNING;
}
