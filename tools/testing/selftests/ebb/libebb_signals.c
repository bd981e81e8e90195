// SPDX-License-Identifier: GPL-2.0
/*
 * A signal behind any instruction of libebb, whose handler calls the library: ptrace(2) counts the
 * instructions.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <asm/ptrace.h>
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
 * Whether the next instruction is rfebb. QEMU cannot step over it: it turns EBBs on and stays
 * there, and once an EBB has come to it, it branches to itself for ever.
 */
static bool is_at_rfebb(pid_t child)
{
	long address = ptrace(PTRACE_PEEKUSER, child, (void *)(sizeof(long) * PT_NIP), NULL);
	long words = ptrace(PTRACE_PEEKTEXT, child, (void *)(address & ~7), NULL);

	return (unsigned int)(words >> (address & 4 ? 32 : 0)) == 0x4c000924;
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
	for (int i = 0; i < steps && WIFSTOPPED(status) && !is_at_rfebb(child); i++) {
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

/* No EBB comes to what is traced, with an rfebb at its end. */
#define LONG_PERIOD	0x40000000
#define STRIDE		5

static struct ebb *traced;

static void nothing(struct ebb_context *context, void *user)
{
	(void)context;
	(void)user;
}

static void pause_traced(int number)
{
	(void)number;
	ebb_pause(traced);
}

static void resume_traced(int number)
{
	(void)number;
	ebb_resume(traced);
}

/* Whether BESCR[GE] and [PME] are on if the session says that it runs. */
static bool is_as_it_says(void)
{
	const unsigned long on = 1ul << 63 | 1ul << 32;
	unsigned long bescr;
	int state;

	/* The signal may come in between. */
	do {
		state = ebb_state(traced);
		__asm__ volatile("mfspr %0, 806" : "=r" (bescr));
	} while (ebb_state(traced) != state);
	return state != EBB_RUNNING || (bescr & on) == on;
}

/* Calls @call from the stop on, with @handler for the signal; 0 if the state is true at the end. */
static int call_traced(int (*call)(struct ebb *ebb), void (*handler)(int number))
{
	failures = 0;
	signal(SIGUSR1, handler);
	traced = ebb_open("cycles", LONG_PERIOD, 0);
	check(traced && !ebb_start(traced, nothing, NULL, EBB_SAVE_FULL));
	if (call == ebb_resume)
		check(!ebb_pause(traced));
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	check(!call(traced));
	check(is_as_it_says());
	check(!ebb_resume(traced) && ebb_state(traced) == EBB_RUNNING && is_as_it_says());
	return failures != 0;
}

static int resume_and_pause(void)
{
	return call_traced(ebb_resume, pause_traced);
}

static int pause_and_resume(void)
{
	return call_traced(ebb_pause, resume_traced);
}

/* A signal's handler pauses the session that is being resumed. */
static void paused_in_resume(void)
{
	for (int steps = 0; steps < 750 && !failures; steps += STRIDE)
		check(!interrupted_after(steps, resume_and_pause));
}

/* The other way round. */
static void resumed_in_pause(void)
{
	for (int steps = 0; steps < 400 && !failures; steps += STRIDE)
		check(!interrupted_after(steps, pause_and_resume));
}

int main(void)
{
	static const struct test tests[] = {
		{ "reasons", reasons },
		{ "paused_in_resume", paused_in_resume },
		{ "resumed_in_pause", resumed_in_pause },
	};

	return run_tests(tests, ARRAY_SIZE(tests));
}
