// SPDX-License-Identifier: GPL-2.0
/*
 * C++ in a program that takes EBBs with libebb.so: exceptions that are caught and thrown on, and
 * objects that are destroyed when a thread or the program ends.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libebb_test.h"

#define DEPTH	8
#define ROUNDS	10
#define THREADS	4

namespace {

struct error {
	unsigned long depth;
};

struct other_error {
};

/* Counts its destructions, by exceptions that propagate. */
struct guard {
	unsigned long *destroyed;

	explicit guard(unsigned long *counter) : destroyed(counter) { }
	~guard() { ++*destroyed; }
};

void handler(struct ebb_context *context, void *user)
{
	*static_cast<uint64_t *>(user) = ebb_context_address(context);
}

__attribute__((noinline)) unsigned long descend(unsigned long depth, unsigned long *destroyed)
{
	guard one(destroyed);

	if (depth == DEPTH)
		throw error { depth };
	try {
		return descend(depth + 1, destroyed) + 1;
	} catch (const other_error &) {
		return 0;
	} catch (error &caught) {
		if (depth % 2)
			throw;
		throw error { caught.depth };
	}
}

/* Throws at least ROUNDS times, and until there were many EBBs. */
void throw_errors()
{
	unsigned long destroyed = 0, thrown = 0, caught = 0;
	uint64_t last = 0;
	struct ebb *ebb = ebb_open("cycles", PERIOD, 0);

	check(ebb && !ebb_start(ebb, handler, &last, EBB_SAVE_FULL));
	for (; thrown < ROUNDS || (thrown < 1000 && ebb_count(ebb) < 100); thrown++) {
		try {
			descend(0, &destroyed);
		} catch (const error &found) {
			caught += found.depth == DEPTH;
		}
	}
	check(ebb_count(ebb) >= 100 && ebb_state(ebb) == EBB_RUNNING);
	check(caught == thrown && destroyed == thrown * (DEPTH + 1));
	ebb_close(ebb);
}

void *on_a_thread(void *)
{
	throw_errors();
	return nullptr;
}

void in_threads()
{
	pthread_t threads[THREADS];

	for (pthread_t &thread : threads)
		check(!pthread_create(&thread, nullptr, on_a_thread, nullptr));
	for (pthread_t &thread : threads)
		check(!pthread_join(thread, nullptr));
}

unsigned long noted_too_late;

/* Data of a handler, destroyed when its thread ends, while EBBs would still come. */
struct last_address {
	uint64_t value = 0;
	bool destroyed = false;

	~last_address()
	{
		destroyed = true;
		barrier();
		work(20 * PERIOD);
	}
};

void note_last(struct ebb_context *context, void *user)
{
	auto *last = static_cast<struct last_address *>(user);

	last->value = ebb_context_address(context);
	noted_too_late += last->destroyed;
}

/* The thread ends with EBBs on. */
void *with_thread_local(void *)
{
	static thread_local last_address last;
	struct ebb *ebb = ebb_open("cycles", PERIOD, 0);

	check(ebb && !ebb_start(ebb, note_last, &last, EBB_SAVE_FULL));
	check(goes_on(ebb, 20));
	return nullptr;
}

void thread_locals()
{
	pthread_t thread;

	noted_too_late = 0;
	check(!pthread_create(&thread, nullptr, with_thread_local, nullptr));
	check(!pthread_join(thread, nullptr));
	check(!noted_too_late);
}

/* Reports the result. Created first, so that it is destroyed last. */
struct judge {
	~judge() { _exit(noted_too_late || failures ? 1 : 42); }
};

/* EBBs of the thread that calls exit(), which then destroys the static objects. */
void statics()
{
	pid_t child = fork();
	int status;

	if (!child) {
		static judge outcome;
		static last_address last;
		struct ebb *ebb = ebb_open("cycles", PERIOD, 0);

		noted_too_late = 0;
		failures = 0;
		check(ebb && !ebb_start(ebb, note_last, &last, EBB_SAVE_FULL));
		check(goes_on(ebb, 20));
		exit(0);
	}
	check(waitpid(child, &status, 0) == child);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 42);
}

} /* namespace */

int main()
{
	static const struct test tests[] = {
		{ "exceptions", throw_errors },
		{ "in_threads", in_threads },
		{ "thread_locals", thread_locals },
		{ "statics", statics },
	};

	return run_tests(tests, ARRAY_SIZE(tests));
}
