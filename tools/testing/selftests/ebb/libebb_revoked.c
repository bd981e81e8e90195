// SPDX-License-Identifier: GPL-2.0
/*
 * Another driver takes the PMU over from a running session: state and errno report it, the
 * session's descriptors are closed, and the next session has EBBs. The argument is the command that
 * does it.
 */
#include "libebb_test.h"

/* With this period no EBB comes while the C library, in system(), blocks SIGILL. */
#define LONG_PERIOD	0x40000000

static const char *take_over;

static void revoked(void)
{
	int first = dup(0), second = dup(0);
	unsigned long bescr;
	struct ebb *ebb;
	uint32_t value;

	close(first);
	close(second);
	ebb = ebb_open("cycles", LONG_PERIOD, 0);
	check(ebb && ebb_add(ebb, "instructions", 0) == 1);
	check(!ebb_start(ebb, nothing, NULL, EBB_SAVE_FULL));
	check(ebb_state(ebb) == EBB_RUNNING && ebb_fd(ebb) == first);
	check(!system(take_over));
	check(ebb_state(ebb) == EBB_EVICTED);
	check(ebb_read(ebb, 0, &value) == -1 && errno == ENODEV);
	check(ebb_resume(ebb) == -1 && errno == ENODEV);
	check(ebb_pause(ebb) == -1 && errno == ENODEV);
	check(ebb_read(ebb, 0, &value) == -1 && errno == ENODEV);
	check(ebb_resume(ebb) == -1 && errno == ENODEV);
	check(ebb_state(ebb) == EBB_EVICTED);
	__asm__ volatile("mfspr %0, 806" : "=r" (bescr));
	/* GE and PME are off. */
	check(!(bescr & (1ul << 63 | 1ul << 32)));
	ebb_close(ebb);
	check(dup(0) == first && dup(0) == second);

	ebb = ebb_open("cycles", PERIOD, 0);
	check(ebb && !ebb_start(ebb, nothing, NULL, EBB_SAVE_FULL));
	check(ebb_state(ebb) == EBB_RUNNING && goes_on(ebb, 10));
	ebb_close(ebb);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = { { "revoked", revoked } };

	take_over = argc > 1 ? argv[1] : "true";
	return run_tests(tests, ARRAY_SIZE(tests));
}
