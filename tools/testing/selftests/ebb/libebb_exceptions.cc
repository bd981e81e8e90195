// SPDX-License-Identifier: GPL-2.0
/* Exceptions of C++, caught and thrown on, in a program that takes EBBs by libebb.so. */
#include <pthread.h>

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

/* What must be destroyed on the way. */
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

/* Throws some times, and until there were many EBBs. */
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

} /* namespace */

int main()
{
	static const struct test tests[] = {
		{ "exceptions", throw_errors },
		{ "in_threads", in_threads },
	};

	return run_tests(tests, ARRAY_SIZE(tests));
}
