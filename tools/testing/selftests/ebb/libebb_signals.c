// SPDX-License-Identifier: GPL-2.0
/* A signal at any instruction of libebb, whose handler pauses, resumes, fails, or jumps. */
#define _GNU_SOURCE
#include <setjmp.h>

#include "libebb_pinned.h"
#include "libebb_trace.h"

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
	signal(SIGUSR2, SIG_IGN);
	fail_otherwise(0);
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	ebb_open(NULL, PERIOD, 0);
	ebb_strerror(reason, sizeof(reason));
	raise(SIGUSR2);
	if (!strcmp(reason, own_reason))
		return 1;
	if (!strcmp(reason, other_reason))
		return 2;
	printf("# '%s'\n", reason);
	return 3;
}

/* A signal's handler, or that of an EBB, may fail itself, at any instruction of the library. */
static void reasons(void)
{
	int answers[4] = { 0 };

	for (size_t count = trace(ask_traced), n = 0; n < count && !answers[3]; n++)
		answers[interrupted_at(n, ask_traced) & 3]++;
	check(answers[1] > 100 && answers[2] > 5 && !answers[3]);
}

#define STRIDE	5

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

static int start(struct ebb *ebb)
{
	return ebb_start(ebb, nothing, NULL, EBB_SAVE_FULL);
}

/* Whether its counter counts. */
static bool counts(struct ebb *ebb)
{
	uint32_t before = 0, after = 0;

	check(!ebb_read(ebb, 0, &before));
	work(1000);
	check(!ebb_read(ebb, 0, &after));
	return after != before;
}

/* Calls @call from the stop on, with @handler for the signal; 0 if the state is true at the end. */
static int call_traced(int (*call)(struct ebb *ebb), void (*handler)(int number))
{
	failures = 0;
	signal(SIGUSR1, handler);
	signal(SIGUSR2, SIG_IGN);
	traced = ebb_open("cycles", LONG_PERIOD, 0);
	check(traced && (call == start || !start(traced)));
	if (call == ebb_resume)
		check(!ebb_pause(traced));
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	check(!call(traced));
	raise(SIGUSR2);
	check(is_as_it_says() && (call != start || counts(traced)));
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

static int start_and_resume(void)
{
	return call_traced(start, resume_traced);
}

/* A signal's handler pauses the session that is being resumed. */
static void paused_in_resume(void)
{
	interrupt_each(resume_and_pause, STRIDE);
}

/* The other way round. */
static void resumed_in_pause(void)
{
	interrupt_each(pause_and_resume, STRIDE);
}

/* Or resumes one that is being started. */
static void resumed_in_start(void)
{
	interrupt_each(start_and_resume, STRIDE);
}

static sigjmp_buf way_out;

static void jump(int number)
{
	(void)number;
	siglongjmp(way_out, 1);
}

/* It counts if it says that it runs, and in any case after the next call. */
static int resume_and_jump(void)
{
	int other = pinned_event_here();

	failures = 0;
	signal(SIGUSR1, jump);
	signal(SIGUSR2, SIG_IGN);
	traced = ebb_open("cycles", LONG_PERIOD, 0);
	check(other >= 0 && traced && start(traced) == -1 && errno == EBUSY);
	close(other);
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	if (!sigsetjmp(way_out, 1)) {
		raise(SIGSTOP);
		check(!ebb_resume(traced));
		raise(SIGUSR2);
	}
	check(ebb_state(traced) != EBB_RUNNING || counts(traced));
	check(!ebb_resume(traced) && ebb_state(traced) == EBB_RUNNING);
	check(is_as_it_says() && counts(traced));
	return failures != 0;
}

/* A jump out of what loads the counters of a session that has started without the PMU. */
static void jumped_out_of_resume(void)
{
	interrupt_each(resume_and_jump, STRIDE);
}

int main(void)
{
	static const struct test tests[] = {
		{ "reasons", reasons },
		{ "paused_in_resume", paused_in_resume },
		{ "resumed_in_pause", resumed_in_pause },
		{ "resumed_in_start", resumed_in_start },
		{ "jumped_out_of_resume", jumped_out_of_resume },
	};

	return run_tests(tests, ARRAY_SIZE(tests));
}
