/* SPDX-License-Identifier: GPL-2.0 */
/* What the test programs of libebb share: KTAP, work to be interrupted in, and waiting. */
#ifndef _LIBEBB_TEST_H
#define _LIBEBB_TEST_H

#include <ebb.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARRAY_SIZE(x)	(sizeof(x) / sizeof((x)[0]))
#define barrier()	({ __asm__ volatile("" : : : "memory"); })
#define noipa		__attribute__((__noipa__))
#define PERIOD		10000

struct test {
	const char *name;
	void (*run)(void);
};

static int failures;

static inline void check_at(int line, bool holds, const char *what)
{
	char reason[128];

	if (!holds) {
		printf("# line %d: %s (errno %d, last reason: %s)\n", line, what, errno,
		       ebb_strerror(reason, sizeof(reason)));
		__atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
	}
}

#define check(condition)	check_at(__LINE__, condition, #condition)

/* Executes that many instructions, and a few. */
static inline void execute(unsigned long count)
{
	__asm__ volatile("mtctr %0\n\t"
			 "1: bdnz 1b" : : "r" (count) : "ctr");
}

/* Works for some cycles: a quarter as many instructions, or more. */
static inline void work(unsigned long cycles)
{
	for (unsigned long i = 0; i < cycles; i++)
		barrier();
}

/* Works until there are @more EBBs, or for many times as long as they take. */
static inline bool goes_on(struct ebb *ebb, unsigned long more)
{
	unsigned long target = ebb_count(ebb) + more;

	for (unsigned long i = 0; i < 100 * more && ebb_count(ebb) < target; i++)
		work(PERIOD);
	return ebb_count(ebb) >= target;
}

/*
 * Has @on while it works until @count is @target. It calls nothing: unwinders need not know the way
 * from a function's last instructions, and so not from those of the library.
 */
static inline bool counts_on(bool *on, const uint64_t *count, uint64_t target)
{
	*on = true;
	barrier();
	for (uint64_t i = 0; i < 100 * target && *count < target; i++)
		work(PERIOD);
	*on = false;
	barrier();
	return *count >= target;
}

/* Whether no EBB comes while it works. */
static inline bool stands(struct ebb *ebb)
{
	unsigned long count = ebb_count(ebb);

	work(5 * PERIOD);
	return ebb_count(ebb) == count;
}

static inline int run_tests(const struct test *tests, int count)
{
	bool failed = false;

	setbuf(stdout, NULL);
	printf("KTAP version 1\n1..%d\n", count);
	for (int i = 0; i < count; i++) {
		failures = 0;
		if (ebb_supported())
			tests[i].run();
		printf("%s %d %s%s\n", failures ? "not ok" : "ok", i + 1, tests[i].name,
		       ebb_supported() ? "" : " # SKIP the kernel offers no EBB on this machine");
		failed |= failures;
	}
	return ebb_supported() ? failed : 4;
}

#endif
