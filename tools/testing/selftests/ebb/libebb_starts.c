// SPDX-License-Identifier: GPL-2.0
/*
 * A signal at any instruction of a call that changes a session, whose handler resumes the session
 * and has an EBB occur: the EBB finds a handler, its argument and its entry that belong together.
 */
#define _GNU_SOURCE
#include "libebb_trace.h"

/* What the EBBs have found; the handlers call nothing. */
static unsigned int first_calls, second_calls, wrong_users;
static bool lost_registers;

static int first_user, second_user;

/* Uses general registers only, as EBB_SAVE_GPRS asks for. */
static noipa void first_handler(struct ebb_context *context, void *user)
{
	(void)context;
	first_calls++;
	wrong_users += user != &first_user;
}

/* Changes what EBB_SAVE_FULL keeps and the other ways do not. */
static noipa void second_handler(struct ebb_context *context, void *user)
{
	(void)context;
	second_calls++;
	wrong_users += user != &second_user;
	__asm__ volatile("xxlxor 1, 1, 1\n\t"
			 "xxlxor 34, 34, 34" : : : "vs1", "vs34");
}

/* Whether EBBs are on: BESCR[GE] and [PME]. */
static bool ebbs_are_on(void)
{
	const unsigned long on = 1ul << 63 | 1ul << 32;
	unsigned long bescr;

	__asm__ volatile("mfspr %0, 806" : "=r" (bescr));
	return (bescr & on) == on;
}

/*
 * Makes an EBB occur, as the processor does at an alert: GE goes off, PMEO on. Without noipa the
 * compiler would assume that the function leaves the handlers' variables alone.
 */
static noipa void inject(void)
{
	unsigned long before = 0x0123456789abcdef, scalar, vector, scratch;

	__asm__ volatile("mtvsrd 1, %[before]\n\t"
			 "mtvsrd 34, %[before]\n\t"
			 "mfspr %[scratch], 806\n\t"
			 "clrldi %[scratch], %[scratch], 1\n\t"
			 "ori %[scratch], %[scratch], 1\n\t"
			 "mtspr 806, %[scratch]\n\t"
			 "bcl 20, 31, 1f\n"
			 "1: mflr %[scratch]\n\t"
			 "addi %[scratch], %[scratch], 2f - 1b\n\t"
			 "mtspr 805, %[scratch]\n\t"
			 "mfspr %[scratch], 804\n\t"
			 "mtctr %[scratch]\n\t"
			 "bctr\n"
			 "2: mfvsrd %[scalar], 1\n\t"
			 "mfvsrd %[vector], 34"
			 : [scalar] "=&b" (scalar), [vector] "=&b" (vector),
			   [scratch] "=&b" (scratch)
			 : [before] "b" (before)
			 : "vs1", "vs34", "lr", "ctr", "memory");
	lost_registers |= scalar != before || vector != before;
}

/* In the middle of a second ebb_start() it is refused. */
static void resume_and_inject(int number)
{
	(void)number;
	ebb_resume(traced);
	if (ebbs_are_on())
		inject();
}

static int start_first(struct ebb *ebb)
{
	return ebb_start(ebb, first_handler, &first_user, EBB_SAVE_GPRS);
}

static int start_second(struct ebb *ebb)
{
	return ebb_start(ebb, second_handler, &second_user, EBB_SAVE_FULL);
}

static int set_period(struct ebb *ebb)
{
	return ebb_set_period(ebb, 0, LONG_PERIOD, LONG_PERIOD / 2);
}

/* What is called, what the session was started by before, if at all, and whether it is paused. */
static int (*call)(struct ebb *ebb), (*before)(struct ebb *ebb);
static bool paused;

static int call_traced(void)
{
	const bool starts = call == start_first || call == start_second;
	const bool is_second = (starts ? call : before) == start_second;

	failures = 0;
	signal(SIGUSR1, resume_and_inject);
	signal(SIGUSR2, SIG_IGN);
	traced = ebb_open("cycles", LONG_PERIOD, 0);
	check(traced && (!before || !before(traced)) && (!paused || !ebb_pause(traced)));
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	check(!call(traced));
	raise(SIGUSR2);
	check(!wrong_users && !lost_registers && is_as_it_says());
	/* The last handler is in place. */
	check(!ebb_resume(traced) && ebb_state(traced) == EBB_RUNNING && ebbs_are_on());
	first_calls = 0;
	second_calls = 0;
	inject();
	check(second_calls == is_second && first_calls == !is_second);
	check(!wrong_users && !lost_registers);
	return failures != 0;
}

/* An EBB occurs in each of these, and never finds the parts of two handlers. */
static void each(int (*to_call)(struct ebb *ebb), int (*called_before)(struct ebb *ebb))
{
	call = to_call;
	before = called_before;
	for (paused = false;; paused = true) {
		interrupt_each(call_traced, getenv("KTAP_LONG") ? 1 : 3);
		if (paused || !before || failures)
			return;
	}
}

static void first_start(void)
{
	each(start_second, NULL);
}

static void start_that_saves_more(void)
{
	each(start_second, start_first);
}

static void start_that_saves_less(void)
{
	each(start_first, start_second);
}

static void resumed(void)
{
	each(ebb_resume, start_second);
}

static void period(void)
{
	each(set_period, start_second);
}

/* Comes after the library's part in the end of the thread. */
static void judge(void)
{
	raise(SIGUSR2);
	check(!ebbs_are_on() && !wrong_users && !lost_registers);
	_exit(failures != 0);
}

static int exit_traced(void)
{
	failures = 0;
	signal(SIGUSR1, resume_and_inject);
	signal(SIGUSR2, SIG_IGN);
	atexit(judge);
	traced = ebb_open("cycles", LONG_PERIOD, 0);
	check(traced && !start_first(traced));
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	exit(1);
}

/* EBBs stay off once the end of the session's thread has turned them off: EBBHR is 0 then. */
static void end_of_thread(void)
{
	interrupt_each(exit_traced, 1);
}

int main(void)
{
	static const struct test tests[] = {
		{ "first_start", first_start },
		{ "start_that_saves_more", start_that_saves_more },
		{ "start_that_saves_less", start_that_saves_less },
		{ "resumed", resumed },
		{ "period", period },
		{ "end_of_thread", end_of_thread },
	};

	return run_tests(tests, ARRAY_SIZE(tests));
}
