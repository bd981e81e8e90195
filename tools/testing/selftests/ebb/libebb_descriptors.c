// SPDX-License-Identifier: GPL-2.0
/*
 * A session's descriptors that a child has, too: its events end with ebb_close() all the same. And
 * a descriptor that is another file's by the time a call comes to it.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>

#include "libebb_trace.h"

static void note(struct ebb_context *context, void *count)
{
	(void)context;
	__atomic_fetch_add((uint64_t *)count, 1, __ATOMIC_RELAXED);
}

static struct ebb *started(uint64_t *count)
{
	struct ebb *ebb = ebb_open("cycles", PERIOD, 0);

	*count = 0;
	check(ebb && !ebb_start(ebb, note, count, EBB_SAVE_FULL));
	check(goes_on(ebb, 10));
	return ebb;
}

/* A child that has all of this process' descriptors until it is killed. */
static pid_t worker(void)
{
	pid_t child = fork();

	if (!child)
		for (;;)
			pause();
	check(child > 0);
	return child;
}

static void end(pid_t child)
{
	kill(child, SIGKILL);
	check(waitpid(child, NULL, 0) == child);
}

/* The next session has the PMU, and no EBB is of the former one's events. */
static void closed_beside_child(void)
{
	static uint64_t count;
	struct ebb *ebb = started(&count);
	pid_t child = worker();

	ebb_close(ebb);
	ebb = ebb_open("cycles", 1ULL << 40, 0);
	check(ebb && !ebb_start(ebb, note, &count, EBB_SAVE_FULL));
	check(ebb_state(ebb) == EBB_RUNNING && stands(ebb));
	ebb_close(ebb);
	ebb_close(started(&count));
	end(child);
}

static bool go;

static void *close_it(void *ebb)
{
	/* Not while this thread's maker blocks SIGILL, in pthread_create(). */
	while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE))
		sched_yield();
	ebb_close(ebb);
	return NULL;
}

/* The handler is called no more, though it is still installed. */
static void closed_by_other_thread(void)
{
	static uint64_t count;
	struct ebb *ebb = started(&count);
	pid_t child = worker();
	pthread_t thread;
	uint64_t before;

	go = false;
	check(!pthread_create(&thread, NULL, close_it, ebb));
	__atomic_store_n(&go, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	before = __atomic_load_n(&count, __ATOMIC_RELAXED);
	work(20 * PERIOD);
	check(__atomic_load_n(&count, __ATOMIC_RELAXED) == before);
	ebb_close(started(&count));
	end(child);
}

#define VALUE	7

static int number_of_session, number_of_event;

/* Has something to be read where the session's descriptor was. */
static void close_and_replace(int number)
{
	(void)number;
	ebb_close(traced);
	number_of_event = eventfd(VALUE, EFD_NONBLOCK);
}

/* The call is for a session that was closed under it, and leaves what is not the session's. */
static int replace_in_call(void)
{
	uint64_t value = 0;
	int state;

	failures = 0;
	signal(SIGUSR1, close_and_replace);
	signal(SIGUSR2, SIG_IGN);
	traced = ebb_open("cycles", LONG_PERIOD, 0);
	check(traced && !ebb_start(traced, nothing, NULL, EBB_SAVE_FULL));
	number_of_session = ebb_fd(traced);
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	state = ebb_state(traced);
	raise(SIGUSR2);
	check(state == EBB_RUNNING || state == EBB_ENDED || (state == -1 && errno == ESRCH));
	check(number_of_event == number_of_session);
	check(read(number_of_event, &value, sizeof(value)) == sizeof(value) && value == VALUE);
	return failures != 0;
}

static void replaced(void)
{
	interrupt_each(replace_in_call, 1);
}

int main(void)
{
	static const struct test tests[] = {
		{ "closed_beside_child", closed_beside_child },
		{ "closed_by_other_thread", closed_by_other_thread },
		{ "replaced", replaced },
	};

	return run_tests(tests, ARRAY_SIZE(tests));
}
