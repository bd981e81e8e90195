// SPDX-License-Identifier: GPL-2.0
/* A session's descriptors that a child has, too: its events end with ebb_close() all the same. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libebb_test.h"

static void note(struct ebb_context *context, void *count)
{
	(void)context;
	++*(volatile uint64_t *)count;
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
	static volatile uint64_t count;
	struct ebb *ebb = started((uint64_t *)&count);
	pid_t child = worker();
	pthread_t thread;
	uint64_t before;

	go = false;
	check(!pthread_create(&thread, NULL, close_it, ebb));
	__atomic_store_n(&go, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	before = count;
	work(20 * PERIOD);
	check(count == before);
	ebb_close(started((uint64_t *)&count));
	end(child);
}

int main(void)
{
	static const struct test tests[] = {
		{ "closed_beside_child", closed_beside_child },
		{ "closed_by_other_thread", closed_by_other_thread },
	};

	return run_tests(tests, ARRAY_SIZE(tests));
}
