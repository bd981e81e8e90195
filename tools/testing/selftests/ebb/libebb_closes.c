// SPDX-License-Identifier: GPL-2.0
/* A signal at any instruction of a call for a session, whose handler closes it. */
#define _GNU_SOURCE
#include <pthread.h>

#include "libebb_trace.h"

/* Of instructions; fewer signals are enough where tests should not take long. */
#define STRIDE	(getenv("KTAP_LONG") ? 11 : 37)

static bool ebbs_are_on(void)
{
	unsigned long bescr;

	__asm__ volatile("mfspr %0, 806" : "=r" (bescr));
	return bescr >> 63;
}

/* Whether EBBs are off, and EBBHR is free for others. */
static bool is_free(void)
{
	unsigned long ebbhr;

	__asm__ volatile("mfspr %0, 804" : "=r" (ebbhr));
	return !ebbs_are_on() && !ebbhr;
}

/* No EBB comes once a close has returned, also of what another closer has begun to close. */
static void close_traced(int number)
{
	(void)number;
	ebb_close(traced);
	check(!traced || !ebbs_are_on());
	traced = NULL;
}

/* Not where it may have interrupted the C library's malloc(). */
static void close_and_allocate(int number)
{
	close_traced(number);
	/* Memory that was freed holds something else. */
	for (size_t size = 256; size <= 1024; size += 16) {
		void *memory = malloc(size);

		if (memory)
			memset(memory, 0x5a, size);
	}
}

static int start(struct ebb *ebb)
{
	return ebb_start(ebb, nothing, NULL, EBB_SAVE_FULL);
}

/* EBBHR has the library's entry already. */
static int start_again(struct ebb *ebb)
{
	return start(ebb);
}

static int read_counter(struct ebb *ebb)
{
	uint32_t value;

	return ebb_read(ebb, 0, &value);
}

static int set_period(struct ebb *ebb)
{
	return ebb_set_period(ebb, 0, LONG_PERIOD, 0);
}

static int add(struct ebb *ebb)
{
	return ebb_add(ebb, "0x20002", 0) == 1 ? 0 : -1;
}

static int state(struct ebb *ebb)
{
	return ebb_state(ebb) < 0 ? -1 : 0;
}

static int count(struct ebb *ebb)
{
	return ebb_count(ebb) != 0;
}

static int close_it(struct ebb *ebb)
{
	ebb_close(ebb);
	traced = NULL;
	return 0;
}

static int (*call)(struct ebb *ebb);

/* Closes the session in the middle of a call for it; 0 if nothing is left of it. */
static int close_in_call(void)
{
	const bool starts = call == start || call == add;
	int first = dup(0), second = dup(0);

	failures = 0;
	close(first);
	close(second);
	signal(SIGUSR1, call == start ? close_traced : close_and_allocate);
	signal(SIGUSR2, SIG_IGN);
	traced = ebb_open("cycles", LONG_PERIOD, 0);
	check(traced && (starts || !start(traced)));
	if (call == ebb_resume)
		check(!ebb_pause(traced));
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	errno = 0;
	check(!call(traced) || errno == ESRCH);
	raise(SIGUSR2);
	/* If it has not come until then. */
	raise(SIGUSR1);
	check(is_free());
	/* That of a second event, too. */
	check(dup(0) == first && dup(0) == second && !close(first) && !close(second));
	traced = ebb_open("cycles", LONG_PERIOD, 0);
	check(traced && !start(traced) && ebb_state(traced) == EBB_RUNNING && is_as_it_says());
	return failures != 0;
}

/* A signal's handler closes the session at any instruction of a call for it. */
static void closed_in_call(void)
{
	static int (*const calls[])(struct ebb *ebb) = {
		start, start_again, ebb_resume, ebb_pause, close_it, state, read_counter,
		set_period, count, add,
	};

	for (size_t i = 0; i < ARRAY_SIZE(calls) && !failures; i++) {
		call = calls[i];
		interrupt_each(close_in_call, STRIDE);
		if (failures)
			printf("# in call %zu\n", i);
	}
}

/* The same at each instruction of what notes the thread's end for the C library, in two stores. */
static void closed_in_setspecific(void)
{
	size_t count, met = 0;

	call = start;
	count = trace(close_in_call);
	for (size_t n = 0; n < count && !failures; n++) {
		if (path[n] - (unsigned long)pthread_setspecific >= 256)
			continue;
		check(!interrupted_at(n, close_in_call));
		met++;
	}
	check(met > 10);
}

static void *close_on_thread(void *ebb)
{
	ebb_close(ebb);
	return NULL;
}

/*
 * Another thread has closed the session, and so does a signal's handler, as if both did at once,
 * while the thread closes the next session, and finds what the first has left.
 */
static int close_what_another_closed(void)
{
	struct ebb *next;
	pthread_t thread;

	failures = 0;
	signal(SIGUSR1, close_and_allocate);
	signal(SIGUSR2, SIG_IGN);
	next = ebb_open("cycles", LONG_PERIOD, 0);
	traced = ebb_open("cycles", LONG_PERIOD, 0);
	check(next && traced && !start(traced));
	check(!pthread_create(&thread, NULL, close_on_thread, traced));
	pthread_join(thread, NULL);
	check(ebbs_are_on());
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	ebb_close(next);
	raise(SIGUSR2);
	check(is_free());
	return failures != 0;
}

static void closed_by_another(void)
{
	interrupt_each(close_what_another_closed, STRIDE);
}

static uintptr_t memory_of(struct ebb *ebb)
{
	/* Below it are some bits of the session's number. */
	return (uintptr_t)ebb >> 12;
}

static uintptr_t memory;

/* Comes after the end of the thread's variables; the session's memory serves the next. */
static void judge(void)
{
	raise(SIGUSR2);
	check(is_free());
	check(!traced || ebb_state(traced) == EBB_ENDED);
	ebb_close(traced);
	check(memory_of(ebb_open("cycles", LONG_PERIOD, 0)) == memory);
	_exit(failures != 0);
}

static int close_in_exit(void)
{
	failures = 0;
	signal(SIGUSR1, close_traced);
	signal(SIGUSR2, SIG_IGN);
	atexit(judge);
	traced = ebb_open("cycles", LONG_PERIOD, 0);
	memory = memory_of(traced);
	check(traced && !start(traced));
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	exit(1);
}

/* A signal's handler closes the session at any instruction of the end of its thread's variables. */
static void closed_in_exit(void)
{
	interrupt_each(close_in_exit, 3);
}

/* Comes before the library's: the C library calls them in the order of their keys. */
static void trace_from_here(void *value)
{
	(void)value;
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
}

/* As a process' first thread does it, its variables end after the values of its keys. */
static int end_thread(void)
{
	pthread_key_t key;

	failures = 0;
	signal(SIGUSR1, close_traced);
	signal(SIGUSR2, SIG_IGN);
	atexit(judge);
	check(!pthread_key_create(&key, trace_from_here) && !pthread_setspecific(key, &key));
	traced = ebb_open("cycles", LONG_PERIOD, 0);
	memory = memory_of(traced);
	check(traced && !start(traced));
	pthread_exit(NULL);
}

/* The same where the library learns of the thread's end by its key only. */
static void closed_in_thread_end(void)
{
	interrupt_each(end_thread, 3);
}

int main(void)
{
	static const struct test tests[] = {
		{ "closed_in_call", closed_in_call },
		{ "closed_in_setspecific", closed_in_setspecific },
		{ "closed_by_another", closed_by_another },
		{ "closed_in_exit", closed_in_exit },
		{ "closed_in_thread_end", closed_in_thread_end },
	};

	return run_tests(tests, ARRAY_SIZE(tests));
}
