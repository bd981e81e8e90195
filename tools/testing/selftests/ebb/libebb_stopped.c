// SPDX-License-Identifier: GPL-2.0
/*
 * EBBs that go on after EBB_STOP, or a jump out of the handler: on a stack that has no end, and in
 * the period that had begun. And periods that are changed.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <unistd.h>

#include "libebb_test.h"

/* No count of a test comes so far. */
#define FOR_EVER	(1ULL << 40)

static struct ebb *ebb;
static sigjmp_buf way_out;

enum way {
	RETURN,
	STOP,
	JUMP,
};

static void handler(struct ebb_context *context, void *user)
{
	enum way *way = user, how = *way;

	*way = RETURN;
	if (how == STOP)
		ebb_rearm(context, EBB_STOP);
	if (how == JUMP)
		siglongjmp(way_out, 1);
}

static enum way way;

static void start(const char *event, uint64_t period)
{
	way = RETURN;
	ebb = ebb_open(event, period, 0);
	check(ebb && !ebb_start(ebb, handler, &way, EBB_SAVE_FULL));
}

/* Has the counter overflow soon, and works until it has. */
static void overflow(void)
{
	__asm__ volatile("mtspr 771, %0" : : "r" (0x80000000UL - 1000));
	work(10000);
}

/* Calls @function with r1 at @stack. */
void call_on(void (*function)(void), void *stack);
__asm__("	.text\n"
"	.globl	call_on\n"
"	.type	call_on, @function\n"
"call_on:\n"
"	mflr	0\n"
"	std	0, 16(1)\n"
"	std	31, -8(1)\n"
"	stdu	1, -48(1)\n"
"	mr	31, 1\n"
"	std	2, 24(1)\n"
"	mr	1, 4\n"
"	mr	12, 3\n"
"	mtctr	12\n"
"	bctrl\n"
"	mr	1, 31\n"
"	ld	2, 24(1)\n"
"	addi	1, 1, 48\n"
"	ld	31, -8(1)\n"
"	ld	0, 16(1)\n"
"	mtlr	0\n"
"	blr\n"
"	.size	call_on, . - call_on\n");

static void start_and_stop(void)
{
	start("cycles", PERIOD);
	way = STOP;
	barrier();
	work(20 * PERIOD);
	check(ebb_state(ebb) == EBB_PAUSED && stands(ebb));
	check(!ebb_resume(ebb) && goes_on(ebb, 20));
}

static void stop_and_pause(void)
{
	way = STOP;
	barrier();
	work(20 * PERIOD);
	check(!ebb_pause(ebb) && !ebb_resume(ebb) && goes_on(ebb, 20));
}

/* As coroutines of Boost.Context from 1.88 on have it, and just-in-time compilers. */
static void endless_stack(void)
{
	static _Alignas(16) char stack[65536];
	void **base = (void **)(stack + sizeof(stack) - 512);

	memset(stack, 0x58, sizeof(stack));
	call_on(start_and_stop, base);
	/* These frames are looked at. */
	*base = base;
	alarm(60);
	call_on(stop_and_pause, base);
	alarm(0);
	ebb_close(ebb);
}

int main(void)
{
	static const struct test tests[] = {
		{ "endless_stack", endless_stack },
	};

	return run_tests(tests, ARRAY_SIZE(tests));
}
