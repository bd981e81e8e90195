// SPDX-License-Identifier: GPL-2.0
/*
 * Is interrupted in leaf(), and lets libunwind walk from the handler to main(). Prints the
 * functions on the way; libebb_unwinders.sh checks them, and lets gdb do the same.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <ucontext.h>

#include "libebb_test.h"

#define DEPTH	32

/* libunwind's functions for a program's own stack. The library is absent when this is built. */
static int (*init_local)(void *cursor, ucontext_t *context);
static int (*step)(void *cursor);
static int (*proc_name)(void *cursor, char *name, size_t size, unsigned long *offset);

static char names[DEPTH][64];
static int depth;

void handler(struct ebb_context *context, void *user);
void leaf(void);
void caller(void);

noipa void handler(struct ebb_context *context, void *user)
{
	/* Larger than a cursor of libunwind. */
	static uint64_t cursor[4096];
	static ucontext_t here;
	unsigned long offset;

	(void)user;
	if (ebb_context_number(context) != 5 || getcontext(&here) || init_local(cursor, &here))
		return;
	do {
		if (proc_name(cursor, names[depth], sizeof(names[depth]), &offset))
			strcpy(names[depth], "?");
	} while (++depth < DEPTH && step(cursor) > 0);
}

noipa void leaf(void)
{
	work(2 * PERIOD);
}

noipa void caller(void)
{
	leaf();
	barrier();
}

int main(void)
{
	void *library = dlopen("libunwind.so.8", RTLD_NOW);
	struct ebb *ebb;

	if (!library)
		return 1;
	init_local = dlsym(library, "_ULppc64_init_local");
	step = dlsym(library, "_ULppc64_step");
	proc_name = dlsym(library, "_ULppc64_get_proc_name");
	ebb = ebb_open("cycles", PERIOD, 0);
	if (!init_local || !step || !proc_name || !ebb)
		return 1;
	if (ebb_start(ebb, handler, NULL, EBB_SAVE_FULL))
		return 1;
	for (int i = 0; i < 100 && ebb_count(ebb) < 10; i++)
		caller();
	ebb_close(ebb);
	for (int i = 0; i < depth; i++)
		puts(names[i]);
	return 0;
}
