// SPDX-License-Identifier: GPL-2.0
/*
 * EBBs that go on after EBB_STOP, or a jump out of the handler: on a stack that has no end, and in
 * the period that had begun. And periods that are changed.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdalign.h>
#include <unistd.h>

#include "libebb_test.h"

/* No count of a test comes so far. */
#define FOR_EVER	0x10000000000ULL

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
	/* A close and the next start find what the stop has left. */
	way = STOP;
	barrier();
	work(20 * PERIOD);
	ebb_close(ebb);
	start("cycles", PERIOD);
	check(goes_on(ebb, 20));
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
	static alignas(16) char stack[65536];
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

/* A period that a counter has no room for has as many rounds after it was stopped. */
static void long_period(void)
{
	static enum way ways[] = { STOP, JUMP };
	static size_t i;

	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		start("cycles", 1ULL << 32);
		overflow();
		check(ebb_count(ebb) == 0);
		way = ways[i];
		if (!sigsetjmp(way_out, 1))
			overflow();
		check(ebb_count(ebb) == 1 && ebb_state(ebb) == EBB_PAUSED);
		check(!ebb_resume(ebb));
		overflow();
		check(ebb_count(ebb) == 1);
		overflow();
		check(ebb_count(ebb) == 2);
		ebb_close(ebb);
	}
}

/* The period that is under way ends as it would have. */
static void longer_period(void)
{
	start("cycles", 1ULL << 31);
	check(!ebb_set_period(ebb, 0, FOR_EVER, 0));
	overflow();
	check(ebb_count(ebb) == 1);
	overflow();
	check(ebb_count(ebb) == 1);
	/* A round that goes on has ended it, too. */
	check(!ebb_set_period(ebb, 0, 1ULL << 31, 0));
	overflow();
	check(ebb_count(ebb) == 2);
	ebb_close(ebb);
}

static uint64_t set_in_handler;

static void set_period(struct ebb_context *context, void *user)
{
	enum way *way = user;

	if (set_in_handler)
		ebb_set_period(ebb, 0, set_in_handler, 0);
	set_in_handler = 0;
	if (way && *way == STOP)
		ebb_rearm(context, EBB_STOP);
}

/* A period that the handler of a short one makes longer begins where that ends. */
static void longer_in_handler(void)
{
	static enum way ways[] = { RETURN, STOP };

	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		ebb = ebb_open("cycles", 1ULL << 31, 0);
		check(ebb && !ebb_start(ebb, set_period, &ways[i], EBB_SAVE_FULL));
		set_in_handler = 1ULL << 32;
		barrier();
		overflow();
		check(ebb_count(ebb) == 1 && !set_in_handler);
		check(ways[i] != STOP || !ebb_resume(ebb));
		overflow();
		check(ebb_count(ebb) == 1);
		overflow();
		check(ebb_count(ebb) == 2);
		ebb_close(ebb);
	}
}

/*
 * An EBB whose handler sets a period may come to any instruction of ebb_set_period(): one of the
 * two holds, as to how long it is and whether the handler is called for each overflow.
 */
static void periods_at_once(void)
{
	uint64_t before;

	ebb = ebb_open("cycles", 1ULL << 31, 0);
	check(ebb && !ebb_start(ebb, set_period, NULL, EBB_SAVE_FULL));
	for (unsigned int ahead = 20; ahead < 1500 && !failures; ahead++) {
		check(!ebb_set_period(ebb, 0, 1ULL << 31, 0));
		set_in_handler = FOR_EVER;
		__asm__ volatile("mtspr 771, %0" : : "r" (0x80000000UL - ahead) : "memory");
		check(!ebb_set_period(ebb, 0, 1ULL << 30, 0));
		work(10000);
		check(!set_in_handler);
		/* That of the longer may be the end of a period that was under way. */
		overflow();
		before = ebb_count(ebb);
		overflow();
		overflow();
		check(ebb_count(ebb) == before || ebb_count(ebb) == before + 2);
		if (failures)
			printf("# with an EBB after %u cycles\n", ahead);
	}
	ebb_close(ebb);
}

/* The same of two periods that a counter has no room for: each is as long as one of them. */
static void long_periods_at_once(void)
{
	const uint64_t two = 2ULL << 31, three = 3ULL << 31;
	uint64_t before;

	start("cycles", two);
	for (unsigned int ahead = 20; ahead < 1500 && !failures; ahead++) {
		check(!ebb_set_period(ebb, 0, two, 0));
		overflow();
		__asm__ volatile("mtspr 771, %0" : : "r" (0x80000000UL - ahead) : "memory");
		check(!ebb_set_period(ebb, 0, three, 0));
		work(10000);
		before = ebb_count(ebb);
		for (int i = 0; i < 3 && ebb_count(ebb) == before; i++)
			overflow();
		/* A period begins here. */
		check(ebb_count(ebb) == ++before);
		overflow();
		overflow();
		check(ebb_count(ebb) == before);
		overflow();
		check(ebb_count(ebb) == before + 1);
		if (failures)
			printf("# with an overflow after %u cycles\n", ahead);
	}
	ebb_close(ebb);
}

#define LAST	100000

static void stop_at_last(struct ebb_context *context, void *user)
{
	(void)user;
	if (ebb_context_number(context) >= LAST)
		ebb_rearm(context, EBB_STOP);
}

/*
 * Also where EBBs come more often than it takes ebb_set_period() to come to an end. QEMU may
 * deliver none in the time that this takes with one of the periods.
 */
static void short_periods(void)
{
	unsigned long all = 0;

	for (uint64_t period = 20; period <= 320; period *= 2) {
		ebb = ebb_open("cycles", period, 0);
		check(ebb && ebb_add(ebb, "instructions", 0) == 1);
		check(!ebb_start(ebb, stop_at_last, NULL, EBB_SAVE_FULL));
		check(!ebb_set_period(ebb, 0, period, 0));
		check(ebb_count(ebb) < LAST);
		all += ebb_count(ebb);
		ebb_close(ebb);
	}
	check(all > 0);
}

int main(void)
{
	static const struct test tests[] = {
		{ "endless_stack", endless_stack },
		{ "long_period", long_period },
		{ "longer_period", longer_period },
		{ "longer_in_handler", longer_in_handler },
		{ "periods_at_once", periods_at_once },
		{ "long_periods_at_once", long_periods_at_once },
		{ "short_periods", short_periods },
	};

	return run_tests(tests, ARRAY_SIZE(tests));
}
