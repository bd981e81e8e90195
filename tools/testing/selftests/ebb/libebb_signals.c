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

static unsigned long get(pid_t child, int number)
{
	return ptrace(PTRACE_PEEKUSER, child, (void *)(sizeof(long) * number), NULL);
}

static void set(pid_t child, int number, unsigned long value)
{
	ptrace(PTRACE_POKEUSER, child, (void *)(sizeof(long) * number), (void *)value);
}

/* The instruction at @address. */
static unsigned int instruction_at(pid_t child, unsigned long address)
{
	long words = ptrace(PTRACE_PEEKTEXT, child, (void *)(address & ~7), NULL);

	return words >> (address & 4 ? 32 : 0);
}

static void single_step(pid_t child, int *status)
{
	ptrace(PTRACE_SINGLESTEP, child, NULL, NULL);
	waitpid(child, status, 0);
}

/*
 * Executes the next instruction. A stcx. would fail at each step, as the stop before it drops the
 * reservation; the child has one thread, so a larx is like any load, and a stcx. like a store.
 * The load is done by the child: what ptrace(2) writes to r14 to r31 is lost at a single step.
 */
static void step(pid_t child, int *status)
{
	/* Extended opcodes of opcode 31. */
	static const struct {
		unsigned int larx, stcx, load, size;
	} reserving[] = {
		{ 52, 694, 87, 1 }, { 116, 726, 279, 2 }, { 20, 150, 23, 4 }, { 84, 214, 21, 8 },
	};
	unsigned long nip = get(child, PT_NIP);
	unsigned int instruction = instruction_at(child, nip);
	unsigned int code = instruction >> 1 & 1023;
	unsigned int a = instruction >> 16 & 31, s = instruction >> 21 & 31;

	for (size_t i = 0; i < ARRAY_SIZE(reserving) && instruction >> 26 == 31; i++) {
		unsigned long address, shift, mask, word;

		if (code == reserving[i].larx) {
			address = nip & ~7;
			shift = nip & 4 ? 32 : 0;
			word = ptrace(PTRACE_PEEKTEXT, child, (void *)address, NULL);
			mask = (unsigned long)(code ^ reserving[i].load) << 1 << shift;
			ptrace(PTRACE_POKETEXT, child, (void *)address, (void *)(word ^ mask));
			single_step(child, status);
			ptrace(PTRACE_POKETEXT, child, (void *)address, (void *)word);
			return;
		}
		if (code == reserving[i].stcx) {
			address = (a ? get(child, a) : 0) + get(child, instruction >> 11 & 31);
			shift = 8 * (address & 7);
			mask = (~0ul >> (64 - 8 * reserving[i].size)) << shift;
			word = ptrace(PTRACE_PEEKDATA, child, (void *)(address & ~7), NULL) & ~mask;
			word |= get(child, s) << shift & mask;
			ptrace(PTRACE_POKEDATA, child, (void *)(address & ~7), (void *)word);
			/* CR0: it was done. */
			set(child, PT_CCR, (get(child, PT_CCR) & 0x0fffffff) | 0x20000000);
			set(child, PT_NIP, nip + 4);
			return;
		}
	}
	single_step(child, status);
}

/*
 * Whether the next instruction is rfebb. QEMU cannot step over it: it turns EBBs on and stays
 * there, and once an EBB has come to it, it branches to itself for ever.
 */
static bool is_at_rfebb(pid_t child)
{
	return instruction_at(child, get(child, PT_NIP)) == 0x4c000924;
}

/* Whether the child that was traced last had raised SIGUSR2 by then, which it ignores. */
static bool has_returned;

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
	has_returned = false;
	for (int i = 0; i < steps && WIFSTOPPED(status) && !has_returned; i++) {
		if (is_at_rfebb(child))
			break;
		step(child, &status);
		has_returned = WIFSTOPPED(status) && WSTOPSIG(status) == SIGUSR2;
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
#define CLOSE_STRIDE	31

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

/* Has memory that was freed hold something else. */
static void close_traced(int number)
{
	(void)number;
	ebb_close(traced);
	traced = NULL;
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
	unsigned long bescr, ebbhr;
	int first = dup(0), second = dup(0);

	failures = 0;
	close(first);
	close(second);
	signal(SIGUSR1, close_traced);
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
	__asm__ volatile("mfspr %0, 806" : "=r" (bescr));
	__asm__ volatile("mfspr %0, 804" : "=r" (ebbhr));
	check(!(bescr >> 63) && !ebbhr);
	/* That of a second event, too. */
	check(dup(0) == first && dup(0) == second && !close(first) && !close(second));
	traced = ebb_open("cycles", LONG_PERIOD, 0);
	check(traced && !start(traced) && ebb_state(traced) == EBB_RUNNING && is_as_it_says());
	return failures != 0;
}

/* A signal's handler closes the session behind any instruction of a call for it. */
static void closed_in_call(void)
{
	static int (*const calls[])(struct ebb *ebb) = {
		start, ebb_resume, ebb_pause, close_it, state, read_counter, set_period, count, add,
	};

	for (size_t i = 0; i < ARRAY_SIZE(calls) && !failures; i++) {
		int steps = 0;

		call = calls[i];
		do {
			check(!interrupted_after(steps, close_in_call));
			steps += CLOSE_STRIDE;
		} while (!has_returned && !failures);
		if (failures)
			printf("# call %zu, behind %d instructions\n", i, steps - CLOSE_STRIDE);
	}
}

int main(void)
{
	static const struct test tests[] = {
		{ "reasons", reasons },
		{ "paused_in_resume", paused_in_resume },
		{ "resumed_in_pause", resumed_in_pause },
		{ "closed_in_call", closed_in_call },
	};

	return run_tests(tests, ARRAY_SIZE(tests));
}
