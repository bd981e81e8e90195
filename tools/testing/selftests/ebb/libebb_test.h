/* SPDX-License-Identifier: GPL-2.0 */
/* Common parts of the test programs of libebb: checks, work that EBBs interrupt, and waiting. */
#ifndef _LIBEBB_TEST_H
#define _LIBEBB_TEST_H

#include <ebb.h>
#include <kselftest.h>

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

	if (holds)
		return;
	ksft_print_msg("line %d: %s (errno %d, last reason: %s)\n", line, what, errno,
		       ebb_strerror(reason, sizeof(reason)));
	__atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
}

#define check(condition)	check_at(__LINE__, condition, #condition)

/* Works for some cycles, with at least a quarter as many instructions. */
static inline void work(unsigned long cycles)
{
	for (unsigned long i = 0; i < cycles; i++)
		barrier();
}

/* Works until there are @more EBBs, or for 100 times as long as they take. */
static inline bool goes_on(struct ebb *ebb, unsigned long more)
{
	unsigned long target = ebb_count(ebb) + more;

	for (unsigned long i = 0; i < 100 * more && ebb_count(ebb) < target; i++)
		work(PERIOD);
	return ebb_count(ebb) >= target;
}

/*
 * Sets @on while it works until @count is @target. It calls no function of the library: unwinders
 * need not be able to unwind from a function's last instructions.
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

/* Returns whether no EBB comes while it works. */
static inline bool stands(struct ebb *ebb)
{
	unsigned long count = ebb_count(ebb);

	work(5 * PERIOD);
	return ebb_count(ebb) == count;
}

static inline void nothing(struct ebb_context *context, void *user)
{
	(void)context;
	(void)user;
}

static inline int run_tests(const struct test *tests, int count)
{
	ksft_print_header();
	if (!ebb_supported())
		ksft_exit_skip("the kernel offers no EBB on this machine\n");
	ksft_set_plan(count);
	for (int i = 0; i < count; i++) {
		failures = 0;
		tests[i].run();
		ksft_test_result(!failures, "%s\n", tests[i].name);
	}
	ksft_finished();
}

#endif
