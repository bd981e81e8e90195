// SPDX-License-Identifier: GPL-2.0
/*
 * A shared object that takes EBBs, with a copy of libebb of its own or with libebb.so; each thread
 * may have EBBs of it. libebb_plugins loads it.
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

/* Lets EBBs come on the calling thread; 0, or errno. */
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

/* Their number. */
unsigned long plugin_count(void)
{
	return ebb_count(ebb);
}

/* Leaves the handler of the next one by a jump, having closed if @end; 0 unless none comes. */
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

/* Ends them; 0 unless they did not come any more. */
int plugin_end(void)
{
	int state = ebb_state(ebb);

	ebb_close(ebb);
	ebb = NULL;
	return state != EBB_RUNNING;
}
