// SPDX-License-Identifier: GPL-2.0
/*
 * A signal behind any instruction of libebb, whose handler calls the library: ptrace(2) counts the
 * instructions.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libebb_test.h"

static const char own_reason[] = "the PMU has no event of this name in sysfs";
static const char other_reason[] = "no session";

static void fail_otherwise(int number)
{
	(void)number;
	ebb_set_period(NULL, 0, 1, 0);
}

/* Fails and asks why, from the stop on; there is one answer, whatever else fails meanwhile. */
static int ask_traced(void)
{
	char reason[128] = "";

	signal(SIGUSR1, fail_otherwise);
	fail_otherwise(0);
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	ebb_open(NULL, PERIOD, 0);
	ebb_strerror(reason, sizeof(reason));
	if (!strcmp(reason, own_reason))
		return 1;
	if (!strcmp(reason, other_reason))
		return 2;
	printf("# '%s'\n", reason);
	return 3;
}

/*
 * Has a child @run, which stops itself and then gets SIGUSR1 behind that many instructions; returns
 * its exit status.
 */
static int interrupted_after(int steps, int (*run)(void))
{
	pid_t child = fork();
	int status;

	if (!child)
		_exit(run());
	check(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
	for (int i = 0; i < steps && WIFSTOPPED(status); i++) {
		ptrace(PTRACE_SINGLESTEP, child, NULL, NULL);
		waitpid(child, &status, 0);
	}
	for (long number = SIGUSR1; WIFSTOPPED(status); number = WSTOPSIG(status)) {
		ptrace(PTRACE_CONT, child, NULL, (void *)number);
		waitpid(child, &status, 0);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

/* A signal's handler, or that of an EBB, may fail itself, behind any instruction of the library. */
static void reasons(void)
{
	int answers[4] = { 0 };

	/* Long enough behind the last that changes the answer. */
	for (int steps = 0, same = 0; same < 100 && steps < 2000 && !answers[3]; steps++, same++) {
		int answer = interrupted_after(steps, ask_traced);

		answers[answer & 3]++;
		if (answer != 1 || !answers[2])
			same = 0;
	}
	check(answers[1] > 100 && answers[2] > 5 && !answers[3]);
}

int main(void)
{
	static const struct test tests[] = {
		{ "reasons", reasons },
	};

	return run_tests(tests, ARRAY_SIZE(tests));
}
