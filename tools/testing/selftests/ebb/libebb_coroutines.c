// SPDX-License-Identifier: GPL-2.0
/*
 * EBBs in a program whose thread runs on several stacks with Boost.Context, which switches between
 * them without the kernel. Needs that library (`scripts/vm run --packages libboost-context1.83.0`).
 */
#include <dlfcn.h>

#include "libebb_test.h"

#define ROUTINES	3
#define STACK		16384
/* More bytes than the code that switches stacks. */
#define SWITCH		1024

/* The library's functions, and what they pass on. The library is absent when this is built. */
struct transfer {
	void *context;	/* where the routine that handed over continues */
	void *data;
};

typedef struct transfer (*jump_fn)(void *context, void *data);
typedef void *(*make_fn)(void *stack_end, size_t size, void (*run)(struct transfer from));

static jump_fn jump;
static make_fn make;

static struct routine {
	void *context;
	uint64_t passes;
	uint64_t value;
	char stack[STACK];
} routines[ROUTINES];

static unsigned long within_switch;
static double scratch;

/* Changes registers, as any function may. */
static void handler(struct ebb_context *context, void *user)
{
	(void)user;
	scratch = scratch * 3 + 1;
	barrier();
	within_switch += ebb_context_address(context) - (uint64_t)jump < SWITCH;
}

static uint64_t next(uint64_t value, uint64_t pass)
{
	return value * 5 + pass;
}

/* Keeps its numbers in registers while others run; in general ones, as Boost saves no others. */
static void run(struct transfer from)
{
	struct routine *own = from.data;
	uint64_t value = 0;

	for (uint64_t pass = 1;; pass++) {
		value = next(value, pass);
		own->passes = pass;
		own->value = value;
		from = jump(from.context, own);
	}
}

static void stacks_in_turn(void)
{
	void *library = dlopen("libboost_context.so.1.83.0", RTLD_NOW);
	struct ebb *ebb = ebb_open("cycles", 1009, 0);
	uint64_t target = 1000;

	check(library);
	if (!library)
		return;
	jump = (jump_fn)dlsym(library, "jump_fcontext");
	make = (make_fn)dlsym(library, "make_fcontext");
	for (int i = 0; i < ROUTINES; i++)
		routines[i].context = make(routines[i].stack + STACK, STACK, run);
	check(!ebb_start(ebb, handler, NULL, EBB_SAVE_FULL));
	for (int i = 0; i < 1000000 && ebb_count(ebb) < target; i++) {
		struct routine *routine = &routines[i % ROUTINES];
		struct transfer back = jump(routine->context, routine);

		routine->context = back.context;
		check(back.data == routine);
	}
	ebb_pause(ebb);
	check(ebb_count(ebb) >= target && within_switch > 0);
	ebb_close(ebb);
	for (int i = 0; i < ROUTINES; i++) {
		uint64_t value = 0;

		for (uint64_t pass = 1; pass <= routines[i].passes; pass++)
			value = next(value, pass);
		check(routines[i].passes > 100 && routines[i].value == value);
	}
}

int main(void)
{
	static const struct test tests[] = {
		{ "stacks_in_turn", stacks_in_turn },
	};

	return run_tests(tests, ARRAY_SIZE(tests));
}
