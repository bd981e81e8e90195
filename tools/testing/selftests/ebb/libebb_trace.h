/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A child that gets a signal at an instruction of its path, which ptrace(2) finds out first; and
 * the session that it has for this.
 */
#ifndef _LIBEBB_TRACE_H
#define _LIBEBB_TRACE_H

#include <signal.h>
#include <asm/ptrace.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libebb_test.h"

static inline unsigned long get(pid_t child, int number)
{
	return ptrace(PTRACE_PEEKUSER, child, (void *)(sizeof(long) * number), NULL);
}

static inline void set(pid_t child, int number, unsigned long value)
{
	ptrace(PTRACE_POKEUSER, child, (void *)(sizeof(long) * number), (void *)value);
}

/* The next instruction: that of this program, which the child is a fork of. */
static inline unsigned int next_instruction(pid_t child)
{
	return *(const unsigned int *)get(child, PT_NIP);
}

static inline void single_step(pid_t child, int *status)
{
	ptrace(PTRACE_SINGLESTEP, child, NULL, NULL);
	waitpid(child, status, 0);
}

/*
 * Executes @instruction, the next one. A stcx. would fail at each step, as the stop before it drops
 * the reservation; the child has one thread, so a larx is like any load, and a stcx. like a store.
 * The load is done by the child: what ptrace(2) writes to r14 to r31 is lost at a single step.
 */
static inline void step(pid_t child, unsigned int instruction, int *status)
{
	/* Extended opcodes of opcode 31. */
	static const struct {
		unsigned int larx, stcx, load, size;
	} reserving[] = {
		{ 52, 694, 87, 1 }, { 116, 726, 279, 2 }, { 20, 150, 23, 4 }, { 84, 214, 21, 8 },
	};
	unsigned int code = instruction >> 1 & 1023;
	unsigned int a = instruction >> 16 & 31, s = instruction >> 21 & 31;

	for (size_t i = 0; i < ARRAY_SIZE(reserving) && instruction >> 26 == 31; i++) {
		unsigned long nip, address, shift, mask, word;

		if (code != reserving[i].larx && code != reserving[i].stcx)
			continue;
		nip = get(child, PT_NIP);
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
	single_step(child, status);
}

/*
 * QEMU cannot step over rfebb: it turns EBBs on and stays there, and once an EBB has come to it, it
 * branches to itself for ever.
 */
#define RFEBB	0x4c000924
#define TRAP	0x7fe00008ul

/* A child that does @run, where it has stopped itself. */
static inline pid_t start_child(int (*run)(void), int *status)
{
	pid_t child = fork();

	if (!child) {
		/* The same alignment each time: memset() goes another path by it. */
		void *pad = __builtin_alloca((unsigned long)__builtin_frame_address(0) % 128);

		__asm__ volatile("" : : "r" (pad) : "memory");
		_exit(run());
	}
	check(waitpid(child, status, 0) == child && WIFSTOPPED(*status));
	return child;
}

/* The instructions that a child has executed, by their addresses. */
static unsigned long path[8192];

/*
 * Notes the path of a child that does @run, from where it has stopped itself to where it raises
 * SIGUSR2, which it ignores; or to an rfebb. Returns the number of instructions.
 */
static inline size_t trace(int (*run)(void))
{
	size_t count = 0;
	int status;
	pid_t child = start_child(run, &status);

	while (WIFSTOPPED(status) && WSTOPSIG(status) != SIGUSR2 && count < ARRAY_SIZE(path)) {
		unsigned int instruction = next_instruction(child);

		path[count++] = get(child, PT_NIP);
		if (instruction == RFEBB)
			break;
		step(child, instruction, &status);
	}
	check(WIFSTOPPED(status) && count < ARRAY_SIZE(path));
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	return count;
}

/* Runs the child up to the instruction at @address, by a trap in its place. */
static inline void run_to(pid_t child, unsigned long address, int *status)
{
	const unsigned int shift = address & 4 ? 32 : 0;
	void *place = (void *)(address & ~7);
	unsigned long word = ptrace(PTRACE_PEEKTEXT, child, place, NULL);
	unsigned long other = word & ~(0xfffffffful << shift);

	ptrace(PTRACE_POKETEXT, child, place, (void *)(other | TRAP << shift));
	ptrace(PTRACE_CONT, child, NULL, NULL);
	waitpid(child, status, 0);
	ptrace(PTRACE_POKETEXT, child, place, (void *)word);
}

/* Has a child do @run, with SIGUSR1 before instruction @n of the path; returns its exit status. */
static inline int interrupted_at(size_t n, int (*run)(void))
{
	unsigned long address = path[n];
	bool there = true;
	int status;
	pid_t child = start_child(run, &status);

	for (size_t i = 0; i <= n && there; i++) {
		if (path[i] != address)
			continue;
		run_to(child, address, &status);
		there = WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP;
		if (there && i != n)
			step(child, next_instruction(child), &status);
	}
	check(there);
	for (long number = SIGUSR1; WIFSTOPPED(status); number = WSTOPSIG(status)) {
		ptrace(PTRACE_CONT, child, NULL, (void *)number);
		waitpid(child, &status, 0);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

/* Has @run succeed with SIGUSR1 before each instruction of its path, or one of so many. */
static inline void interrupt_each(int (*run)(void), size_t stride)
{
	size_t count = trace(run), n;

	for (n = 0; n < count && !failures; n += stride)
		check(!interrupted_at(n, run));
	if (failures)
		printf("# at instruction %zu of %zu, %#lx\n", n - stride, count, path[n - stride]);
}

/* No EBB comes to what is traced, with an rfebb at its end. */
#define LONG_PERIOD	0x40000000

static struct ebb *traced;

static inline void nothing(struct ebb_context *context, void *user)
{
	(void)context;
	(void)user;
}

/* Whether BESCR[GE] and [PME] are on if the session says that it runs. */
static inline bool is_as_it_says(void)
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

#endif
