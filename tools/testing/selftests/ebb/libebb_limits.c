// SPDX-License-Identifier: GPL-2.0
/*
 * libebb where something is gone: the PMU at the start, the thread, the session, also under its
 * handler, memory, keys of thread-specific data; and counters that the handler loads itself.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libebb_pinned.h"
#include "libebb_test.h"

static void nothing(struct ebb_context *context, void *user)
{
	(void)context;
	(void)user;
}

/* A thread that cannot be tied to its session leaves EBBHR to others. */
static void without_keys(void)
{
	static pthread_key_t keys[PTHREAD_KEYS_MAX];
	struct ebb *ebb = ebb_open("cycles", PERIOD, 0);
	unsigned int count = 0;
	unsigned long ebbhr;

	while (count < ARRAY_SIZE(keys) && !pthread_key_create(&keys[count], NULL))
		count++;
	check(ebb_start(ebb, nothing, NULL, EBB_SAVE_FULL) == -1 && errno == EAGAIN);
	__asm__ volatile("mfspr %0, 804" : "=r" (ebbhr));
	check(!ebbhr && ebb_state(ebb) == EBB_IDLE);
	while (count)
		pthread_key_delete(keys[--count]);
	check(!ebb_start(ebb, nothing, NULL, EBB_SAVE_FULL) && goes_on(ebb, 20));
	ebb_close(ebb);
}

/* A session that starts without the PMU is evicted, and goes on once the PMU is free. */
static void evicted(void)
{
	int other = pinned_event_here();
	struct ebb *ebb = ebb_open("cycles", PERIOD, 0);
	struct pollfd fd = { .fd = ebb_fd(ebb), .events = POLLIN };
	char reason[128];
	uint32_t value;

	check(other >= 0 && ebb);
	check(ebb_start(ebb, nothing, NULL, EBB_SAVE_FULL) == -1 && errno == EBUSY);
	check(strstr(ebb_strerror(reason, sizeof(reason)), "not on the PMU"));
	check(ebb_state(ebb) == EBB_EVICTED && stands(ebb));
	check(poll(&fd, 1, 0) == 1 && fd.revents & POLLERR);
	check(ebb_read(ebb, 0, &value) == -1 && errno == EBUSY);
	check(ebb_resume(ebb) == -1 && errno == EBUSY);
	close(other);
	check(!ebb_resume(ebb) && ebb_state(ebb) == EBB_RUNNING);
	check(!ebb_read(ebb, 0, &value) && value >= 0x80000000U - PERIOD);
	check(!poll(&fd, 1, 0));
	check(goes_on(ebb, 20));
	check(ebb_add(ebb, "instructions", 0) == -1 && errno == EBUSY);
	ebb_close(ebb);
}

static void *start_and_end(void *argument)
{
	struct ebb **ebb = argument;

	*ebb = ebb_open("cycles", PERIOD, 0);
	check(*ebb && !ebb_start(*ebb, nothing, NULL, EBB_SAVE_FULL));
	check(goes_on(*ebb, 20));
	return NULL;
}

/* The session of a thread that has ended knows how many EBBs there were. */
static void ended(void)
{
	struct ebb *ebb = NULL;
	pthread_t thread;

	check(!pthread_create(&thread, NULL, start_and_end, &ebb));
	pthread_join(thread, NULL);
	check(ebb_state(ebb) == EBB_ENDED);
	check(ebb_count(ebb) >= 20);
	check(ebb_resume(ebb) == -1 && errno == ESRCH);
	ebb_close(ebb);
}

/*
 * What a call has that a signal's handler has interrupted and that then closes: an address at which
 * another session is by now.
 */
static void replaced(void)
{
	struct ebb *next, *ebb = ebb_open("cycles", PERIOD, 0);

	ebb_close(ebb);
	next = ebb_open("cycles", PERIOD, 0);
	check(!ebb_start(next, nothing, NULL, EBB_SAVE_FULL));
	check(ebb_pause(ebb) == -1 && errno == ESRCH);
	check(ebb_state(ebb) == -1 && errno == ESRCH);
	ebb_close(ebb);
	check(ebb_state(next) == EBB_RUNNING && goes_on(next, 10));
	ebb_close(next);
}

static bool asked, closed;
static int period_set = -1, fd_left, fd_errno;

/* Has the other thread close the session, and uses it as a handler may. */
static void use_closed(struct ebb_context *context, void *user)
{
	if (ebb_context_number(context) != 5)
		return;
	__atomic_store_n(&asked, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&closed, __ATOMIC_ACQUIRE))
		sched_yield();
	period_set = ebb_set_period(user, 0, PERIOD, 0);
	errno = 0;
	fd_left = ebb_fd(user);
	fd_errno = errno;
}

static void *close_when_asked(void *ebb)
{
	while (!__atomic_load_n(&asked, __ATOMIC_ACQUIRE))
		sched_yield();
	ebb_close(ebb);
	/* As another closer at the same time: the session stays until the handler ends. */
	ebb_close(ebb);
	/* Memory that was freed is not as it was. */
	for (int size = 8; size <= 1024; size += 8) {
		void *memory = malloc(size);

		memset(memory, 0x5a, size);
		__asm__ volatile("" : : "r" (memory) : "memory");
	}
	__atomic_store_n(&closed, true, __ATOMIC_RELEASE);
	return NULL;
}

static void closed_in_handler(void)
{
	struct ebb *ebb = ebb_open("cycles", PERIOD, 0);
	pthread_t thread;

	asked = false;
	closed = false;
	period_set = -1;
	/* Before EBBs are on: pthread_create() blocks SIGILL. */
	check(!pthread_create(&thread, NULL, close_when_asked, ebb));
	check(!ebb_start(ebb, use_closed, ebb, EBB_SAVE_FULL));
	work(1000 * PERIOD);
	check(__atomic_load_n(&closed, __ATOMIC_ACQUIRE) && !period_set);
	check(fd_left == -1 && fd_errno == ESRCH);
	pthread_join(thread, NULL);
	start_and_end(&ebb);
	ebb_close(ebb);
}

static bool done;

static void *pause_and_resume(void *ebb)
{
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		ebb_pause(ebb);
		sched_yield();
		ebb_resume(ebb);
		sched_yield();
	}
	return NULL;
}

/* Reads a counter late, so that it may be gone. */
static void read_late(struct ebb_context *context, void *user)
{
	(void)user;
	work(300);
	ebb_context_counter(context, 1);
}

/* Two threads pause and resume at once, at any place of each other's calls and of the handler. */
static void both_at_once(void)
{
	struct ebb *ebb = ebb_open("cycles", 1500, 0);
	pthread_t thread;

	done = false;
	check(!ebb_start(ebb, read_late, NULL, EBB_SAVE_FULL));
	check(!ebb_pause(ebb));
	check(!pthread_create(&thread, NULL, pause_and_resume, ebb));
	for (int i = 0; i < 2000; i++) {
		ebb_resume(ebb);
		work(10000);
		if (i % 8 == 0)
			ebb_pause(ebb);
		sched_yield();
	}
	__atomic_store_n(&done, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	check(!ebb_resume(ebb) && ebb_state(ebb) == EBB_RUNNING);
	check(goes_on(ebb, 20));
	check(!ebb_pause(ebb) && ebb_state(ebb) == EBB_PAUSED && stands(ebb));
	ebb_close(ebb);
}

static void stop(struct ebb_context *context, void *user)
{
	(void)user;
	ebb_rearm(context, EBB_STOP);
}

/* An EBB that asks to stop may come to any instruction of ebb_resume() on a running session. */
static void stopped_in_resume(void)
{
	struct ebb *ebb = ebb_open("cycles", PERIOD, 0);

	check(!ebb_start(ebb, stop, NULL, EBB_SAVE_FULL));
	for (unsigned int period = 50; period < 1000 && !failures; period++) {
		check(!ebb_set_period(ebb, 0, period, 0));
		check(!ebb_resume(ebb) && !ebb_resume(ebb));
		check(goes_on(ebb, 1) || ebb_state(ebb) != EBB_RUNNING);
	}
	ebb_close(ebb);
}

struct states {
	struct ebb *ebb;
	int in_handler, in_signal, after_stop;
};

static struct states states;

static void ask_in_signal(int number)
{
	(void)number;
	states.in_signal = ebb_state(states.ebb);
}

static void ask_state(struct ebb_context *context, void *user)
{
	(void)user;
	if (ebb_context_number(context) != 5)
		return;
	states.in_handler = ebb_state(states.ebb);
	raise(SIGUSR1);
	ebb_rearm(context, EBB_STOP);
	states.after_stop = ebb_state(states.ebb);
}

static void states_in_handler(void)
{
	struct sigaction action = { .sa_handler = ask_in_signal }, before;

	sigaction(SIGUSR1, &action, &before);
	states = (struct states){ ebb_open("cycles", PERIOD, 0), -1, -1, -1 };
	check(!ebb_start(states.ebb, ask_state, NULL, EBB_SAVE_FULL));
	work(20 * PERIOD);
	check(ebb_count(states.ebb) == 5 && ebb_state(states.ebb) == EBB_PAUSED);
	check(states.in_handler == EBB_RUNNING && states.in_signal == EBB_RUNNING);
	check(states.after_stop == EBB_PAUSED);
	check(!ebb_resume(states.ebb) && goes_on(states.ebb, 20));
	ebb_close(states.ebb);
	sigaction(SIGUSR1, &before, NULL);
}

struct kept {
	uint32_t next, read;
	uint64_t first, last;
};

/* Loads the counter itself. */
static void keep(struct ebb_context *context, void *user)
{
	struct kept *kept = user;

	ebb_context_set_counter(context, 1, kept->next);
	kept->read = ebb_context_counter(context, 1);
	kept->last = ebb_context_time_base(context);
	if (ebb_context_number(context) == 1)
		kept->first = kept->last;
	ebb_context_set_counter(context, 7, 1);
	ebb_rearm(context, EBB_KEEP);
}

/* Ten times the session's period. */
static void kept_counters(void)
{
	struct kept kept = { .next = 0x80000000U - 10 * PERIOD };
	struct ebb *ebb = ebb_open("cycles", PERIOD, 0);

	check(!ebb_start(ebb, keep, &kept, EBB_SAVE_FULL));
	check(goes_on(ebb, 21));
	ebb_pause(ebb);
	check(kept.read == kept.next);
	/* The time base has one for two cycles. */
	check(kept.last - kept.first > 20 * 10 * PERIOD / 4);
	ebb_close(ebb);
}

static void without_memory(void)
{
	char reason[128];
	pid_t child = fork();
	int status;

	if (!child) {
		struct rlimit none = { 0, 0 };
		int sessions = 0;

		failures = 0;
		setrlimit(RLIMIT_AS, &none);
		/* What was freed before serves only its own size. */
		for (size_t size = 1 << 20; size >= 16; size = size > 8192 ? size / 2 : size - 16)
			while (malloc(size))
				;
		/* So does that of the sessions that were closed. */
		while (sessions < 64 && ebb_open("cycles", PERIOD, 0))
			sessions++;
		check(sessions < 64 && errno == ENOMEM);
		check(strstr(ebb_strerror(reason, sizeof(reason)), "no memory"));
		_exit(failures != 0);
	}
	check(waitpid(child, &status, 0) == child && !status);
}

/* That of ebb(7), which lies beside this program, takes EBBs and says so. */
static void example(void)
{
	unsigned long long count = 0, last = 0;
	char path[256], *name;
	FILE *output;
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);

	path[length < 0 ? 0 : length] = 0;
	name = strrchr(path, '/');
	check(name && name + sizeof("/libebb_example") < path + sizeof(path));
	strcpy(name, "/libebb_example");
	output = popen(path, "r");
	check(output && fscanf(output, "%llu EBBs, the last at %llx", &count, &last) == 2);
	check(count > 100 && last > 4096);
	check(output && !pclose(output));
}

int main(void)
{
	static const struct test tests[] = {
		/* First, as the library takes its key once. */
		{ "without_keys", without_keys },
		{ "evicted", evicted },
		{ "ended", ended },
		{ "replaced", replaced },
		{ "closed_in_handler", closed_in_handler },
		{ "both_at_once", both_at_once },
		{ "stopped_in_resume", stopped_in_resume },
		{ "states_in_handler", states_in_handler },
		{ "kept_counters", kept_counters },
		{ "without_memory", without_memory },
		{ "example", example },
	};

	return run_tests(tests, ARRAY_SIZE(tests));
}
