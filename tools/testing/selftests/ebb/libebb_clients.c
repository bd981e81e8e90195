// SPDX-License-Identifier: GPL-2.0
/*
 * Programs of a kind that takes EBBs by libebb: many threads, one that is cancelled, coroutines,
 * unwinding through a handler and under EBBs, the profiler of a Java virtual machine, and two
 * copies of the library in one program (second_* are the other's functions).
 */
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdalign.h>
#include <sys/ioctl.h>
#include <ucontext.h>

#include "libebb_handlers.h"
#include "libebb_test.h"

#define THREADS	64

struct ebb *second_ebb_open(const char *event, uint64_t period, unsigned int flags);
int second_ebb_start(struct ebb *ebb, ebb_handler handler, void *user, unsigned int save);
uint64_t second_ebb_count(const struct ebb *ebb);
void second_ebb_close(struct ebb *ebb);

static void nothing(struct ebb_context *context, void *user)
{
	(void)context;
	(void)user;
}

static struct ebb *started(ebb_handler handler, void *user, unsigned int save)
{
	struct ebb *ebb = ebb_open("cycles", PERIOD, 0);

	check(ebb && !ebb_start(ebb, handler, user, save));
	return ebb;
}

static void *profiled(void *argument)
{
	struct profile *profile = argument;
	struct ebb *ebb = started(record, profile, EBB_SAVE_GPRS);

	check(goes_on(ebb, 30));
	ebb_pause(ebb);
	check(profile->used == ebb_count(ebb));
	/* Every second one ends with EBBs on. */
	if ((unsigned long)profile / sizeof(*profile) % 2)
		ebb_close(ebb);
	else
		ebb_resume(ebb);
	return NULL;
}

static void many_threads(void)
{
	static struct profile profiles[THREADS];
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		check(!pthread_create(&threads[i], NULL, profiled, &profiles[i]));
	for (int i = 0; i < THREADS; i++)
		check(!pthread_join(threads[i], NULL));
}

/* No function ends a thread that is to be cancelled; it ends where it asks. */
static void *cancel_and_call(void *argument)
{
	bool *through = argument;
	struct ebb *ebb;
	uint32_t value;

	pthread_cancel(pthread_self());
	ebb = ebb_open("cpu-cycles", PERIOD, 0);
	check(ebb && !ebb_start(ebb, nothing, NULL, EBB_SAVE_FULL));
	check(goes_on(ebb, 20));
	check(!ebb_read(ebb, 0, &value) && ebb_state(ebb) == EBB_RUNNING);
	check(!ebb_pause(ebb) && !ebb_resume(ebb));
	ebb_close(ebb);
	*through = true;
	pthread_testcancel();
	return NULL;
}

static void cancelled(void)
{
	bool through = false;
	pthread_t thread;
	void *result;

	check(!pthread_create(&thread, NULL, cancel_and_call, &through));
	check(!pthread_join(thread, &result) && result == PTHREAD_CANCELED && through);
}

static ucontext_t turns[3];
static unsigned long passes[2];

static void coroutine(int self)
{
	for (;;) {
		passes[self]++;
		work(300);
		swapcontext(&turns[self], &turns[2]);
	}
}

/* The thread runs on three stacks in turn. */
static void coroutines(void)
{
	static alignas(16) char stacks[2][65536];
	struct ebb *ebb = started(nothing, NULL, EBB_SAVE_FULL);
	unsigned long target = ebb_count(ebb) + 200;

	memset(passes, 0, sizeof(passes));
	for (int i = 0; i < 2; i++) {
		getcontext(&turns[i]);
		turns[i].uc_stack.ss_sp = stacks[i];
		turns[i].uc_stack.ss_size = sizeof(stacks[i]);
		makecontext(&turns[i], (void (*)(void))coroutine, 1, i);
	}
	for (int i = 0; i < 100000 && ebb_count(ebb) < target; i++)
		swapcontext(&turns[2], &turns[i % 2]);
	check(ebb_count(ebb) >= target);
	check(passes[0] > 20 && passes[0] - passes[1] <= 1);
	ebb_close(ebb);
}

/* libgcc's unwinder (unwind.h), by names of the style of this source. */
struct unwind_context;

struct unwind_exception {
	alignas(16) uint64_t class;
	void (*cleanup)(int reason, struct unwind_exception *exception);
	uint64_t private[2];
};

typedef int (*unwind_trace_fn)(struct unwind_context *context, void *argument);
typedef int (*unwind_stop_fn)(int version, int actions, uint64_t class,
			      struct unwind_exception *exception,
			      struct unwind_context *context, void *argument);

#define UNWIND_END_OF_STACK	16
#define UNWINDER(name)		__asm__("_Unwind_" name)

int unwind_backtrace(unwind_trace_fn trace, void *argument) UNWINDER("Backtrace");
int unwind_forced(struct unwind_exception *exception, unwind_stop_fn stop,
		  void *argument) UNWINDER("ForcedUnwind");
unsigned long unwind_ip(struct unwind_context *context) UNWINDER("GetIP");
unsigned long unwind_ip_info(struct unwind_context *context, int *before) UNWINDER("GetIPInfo");
unsigned long unwind_cfa(struct unwind_context *context) UNWINDER("GetCFA");
void *unwind_function(void *address) UNWINDER("FindEnclosingFunction");

struct walk {
	uint64_t deepest;	/* frames of the longest walk */
	uint64_t interrupted;	/* walks that came by the address that was interrupted */
	uint64_t outermost;	/* walks that came to outermost() */
	uint64_t count;
	uint64_t frames;
	uint64_t address;
	bool found;
	bool on;
};

static noipa void outermost(struct walk *walk);

static int frame(struct unwind_context *context, void *argument)
{
	struct walk *walk = argument;
	int before;

	walk->frames++;
	if (unwind_ip_info(context, &before) == walk->address && before)
		walk->found = true;
	if (unwind_function((void *)unwind_ip(context)) == (void *)outermost)
		walk->outermost++;
	return 0;
}

static void walk_stack(struct ebb_context *context, void *user)
{
	struct walk *walk = user;

	if (!walk->on)
		return;
	walk->count++;
	walk->frames = 0;
	walk->found = false;
	walk->address = ebb_context_address(context);
	unwind_backtrace(frame, walk);
	walk->interrupted += walk->found;
	if (walk->frames > walk->deepest)
		walk->deepest = walk->frames;
}

static noipa void inner(struct walk *walk)
{
	check(counts_on(&walk->on, &walk->count, 50));
	barrier();
}

static void outermost(struct walk *walk)
{
	inner(walk);
	barrier();
}

/* A handler walks its stack, by the entry's call frame information, to the program's. */
static void unwinding(void)
{
	struct walk walk = { 0 };
	struct ebb *ebb;

	/* The first walk may allocate. */
	walk.address = 0;
	unwind_backtrace(frame, &walk);
	walk.outermost = 0;
	ebb = started(walk_stack, &walk, EBB_SAVE_FULL);
	outermost(&walk);
	ebb_close(ebb);
	check(walk.count >= 50 && walk.interrupted == walk.count);
	check(walk.outermost == walk.count && walk.deepest >= 5);
}

static unsigned long cleaned;

static void clean(int *value)
{
	cleaned += *value;
}

static int stop(int version, int actions, uint64_t class, struct unwind_exception *exception,
		struct unwind_context *context, void *argument)
{
	(void)version;
	(void)class;
	(void)exception;
	if (unwind_cfa(context) >= *(unsigned long *)argument || actions & UNWIND_END_OF_STACK)
		__builtin_longjmp(((void **)argument) + 1, 1);
	return 0;
}

static noipa void throw_from(int depth, void *target)
{
	int value __attribute__((cleanup(clean))) = 1;
	static struct unwind_exception exception;

	if (depth)
		throw_from(depth - 1, target);
	else
		unwind_forced(&exception, stop, target);
	barrier();
}

/* Unwinding and the cleanups that it runs, as of exceptions, while EBBs come. */
static void exceptions(void)
{
	struct ebb *ebb = started(nothing, NULL, EBB_SAVE_FULL);
	static void *target[6];
	static int i;

	cleaned = 0;
	for (i = 0; i < 200; i++) {
		target[0] = __builtin_frame_address(0);
		if (!__builtin_setjmp(target + 1))
			throw_from(10, target);
	}
	check(cleaned == 200 * 11);
	check(ebb_count(ebb) > 20);
	check(goes_on(ebb, 10));
	ebb_close(ebb);
}

/*
 * As OpenJ9 opens its events, which are of instructions. QEMU branches to the handler in the middle
 * of the block of code that it executes, and goes on with that block: the EBB is lost unless the
 * block ends by leaving for the address that it looks up, as execute() does. The buffers are filled
 * by EBBs of cycles.
 */
static void virtual_machine(void)
{
	static struct profile profile;
	struct ebb *ebb = ebb_open("0x500fa", 1000000, EBB_BHRB_CALLS);

	memset(&profile, 0, sizeof(profile));
	check(ebb && ebb_counter(ebb, 0) == 5);
	check(!ebb_start(ebb, record, &profile, EBB_SAVE_GPRS));
	execute(20500000);
	check(ebb_state(ebb) == EBB_RUNNING);
	/* The kernel's instructions count as well. */
	check(ebb_count(ebb) >= 20 && ebb_count(ebb) < 30);
	check(profile.used == ebb_count(ebb));
	ebb_close(ebb);
	memset(&profile, 0, sizeof(profile));
	ebb = ebb_open("0x600f4", 3000, EBB_BHRB_CALLS);
	check(!ebb_start(ebb, record, &profile, EBB_SAVE_GPRS));
	check(goes_on(ebb, 3 * BUFFER));
	ebb_close(ebb);
	check(profile.swaps >= 2 && profile.buffers[1][BUFFER - 1]);
}

static void *of_the_second(void *argument)
{
	struct ebb *ebb = second_ebb_open("cycles", PERIOD, 0);

	(void)argument;
	check(!second_ebb_start(ebb, nothing, NULL, EBB_SAVE_FULL));
	work(50 * PERIOD);
	check(second_ebb_count(ebb) > 10);
	second_ebb_close(ebb);
	return NULL;
}

/* Loses the PMU in the middle, as to another pinned event. */
static void lose(struct ebb_context *context, void *user)
{
	if (ebb_context_number(context) == 5)
		ioctl(*(int *)user, PERF_EVENT_IOC_DISABLE, 0);
}

/* The first copy notices it, though the second was the last to handle SIGILL. */
static void lost_beside_second(void)
{
	struct ebb *ebb = ebb_open("cycles", PERIOD, 0);
	int fd = ebb_fd(ebb);

	check(!ebb_start(ebb, lose, &fd, EBB_SAVE_FULL));
	goes_on(ebb, 10);
	check(ebb_count(ebb) == 5 && ebb_state(ebb) != EBB_RUNNING);
	check(!ebb_resume(ebb) && goes_on(ebb, 20));
	ebb_close(ebb);
}

/* On one thread the second copy is refused; on another it takes EBBs. */
static void two_copies(void)
{
	struct ebb *ebb = started(nothing, NULL, EBB_SAVE_FULL);
	struct ebb *second = second_ebb_open("cycles", PERIOD, 0);
	pthread_t thread;

	errno = 0;
	check(second && second_ebb_start(second, nothing, NULL, EBB_SAVE_FULL) == -1);
	check(errno == EBUSY);
	check(goes_on(ebb, 20));
	check(!pthread_create(&thread, NULL, of_the_second, NULL));
	check(goes_on(ebb, 20));
	pthread_join(thread, NULL);
	ebb_close(ebb);
	check(!second_ebb_start(second, nothing, NULL, EBB_SAVE_FULL));
	work(50 * PERIOD);
	check(second_ebb_count(second) > 10);
	second_ebb_close(second);
	lost_beside_second();
}

int main(void)
{
	static const struct test tests[] = {
		{ "many_threads", many_threads },
		{ "cancelled", cancelled },
		{ "coroutines", coroutines },
		{ "unwinding", unwinding },
		{ "exceptions", exceptions },
		{ "virtual_machine", virtual_machine },
		{ "two_copies", two_copies },
	};

	return run_tests(tests, ARRAY_SIZE(tests));
}
