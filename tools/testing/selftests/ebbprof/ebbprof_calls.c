// SPDX-License-Identifier: GPL-2.0
/*
 * Functions whose callers are known at each instruction: without a frame, with a frame, with a tail
 * call, with a call through a PLT stub, with a stack frame of variable size, and on another stack.
 *
 * usage: ebbprof_calls PASSES [steps]
 *
 * With "steps" it prints each executed instruction with the return addresses of its callers, the
 * last of which is main()'s, according to the calls and returns. Signals are left out.
 */
#include <alloca.h>
#include <asm/ptrace.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ebbprof_work.h"

long leaf(long n)
{
	return n * 3 ^ n >> 2;
}

long framed(long n)
{
	return leaf(n) + leaf(n + 1);
}

long tail(long n)
{
	return framed(n ^ 5);
}

long library(long n)
{
	fifth(1);
	return n;
}

long variable(long n)
{
	long *memory = alloca(16 + (n & 64));

	*memory = leaf(n);
	/* The compiler must keep the memory, which this may read. */
	__asm__ volatile("" : : "r"(memory) : "memory");
	return *memory;
}

long outer(long n)
{
	return framed(n) + tail(n) + library(n) + variable(n);
}

static void on_signal(int number)
{
	fifth(20);
	(void)number;
}

/* Returns the register of the child with this number. */
static uint64_t reg(pid_t child, int number)
{
	return ptrace(PTRACE_PEEKUSER, child, number * sizeof(uint64_t), NULL);
}

/* Executes an instruction of the child. Returns whether the child still runs. */
static int step(pid_t child)
{
	int status;

	return !ptrace(PTRACE_SINGLESTEP, child, NULL, 0) && waitpid(child, &status, 0) == child &&
	       WIFSTOPPED(status);
}

/*
 * Follows the child from its first call of outer() until main() returns to `last`. Returns
 * whether this succeeded. A branch that sets LR is a call (bl or bctrl here), and blr returns.
 * Other branches, such as those of a tail call or a PLT stub, do not change the callers.
 */
static int follow(pid_t child, uint64_t last)
{
	enum { BLR = 0x4e800020, BCTRL = 0x4e800421, DEPTH = 64 };
	uint64_t callers[DEPTH] = { last }, nip, next;
	size_t depth = 1;
	uint32_t instruction;

	/* The call may use the local or the global entry. */
	for (nip = 0; nip - (uintptr_t)outer > 8; nip = reg(child, PT_NIP))
		if (!step(child))
			return 0;
	callers[depth++] = reg(child, PT_LNK);
	while (depth) {
		printf("%lx", nip);
		for (size_t n = depth; n--;)
			printf(" %lx", callers[n]);
		puts("");
		instruction = ptrace(PTRACE_PEEKTEXT, child, nip, NULL);
		if (!step(child))
			return 0;
		next = reg(child, PT_NIP);
		if (instruction == BLR) {
			if (next != callers[--depth])
				return 0;
		} else if (instruction == BCTRL || (instruction >> 26 == 18 && instruction & 1)) {
			if (depth == DEPTH)
				return 0;
			callers[depth++] = nip + 4;
		}
		nip = next;
	}
	return 1;
}

/* Continues in a child, which the parent follows. The parent then exits. */
static void steps(uint64_t last)
{
	pid_t child = fork();
	int status;

	if (child < 0)
		exit(2);
	if (!child) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		return;
	}
	waitpid(child, &status, 0);
	status = !follow(child, last);
	kill(child, SIGKILL);
	exit(status);
}

int main(int argc, char **argv)
{
	static char memory[1 << 16];
	stack_t stack = { .ss_sp = memory, .ss_size = sizeof(memory) };
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_ONSTACK };
	unsigned long passes = argc > 1 ? strtoul(argv[1], NULL, 0) : 0;
	long sum = 0;

	if (argc > 2)
		steps((uintptr_t)__builtin_return_address(0));
	sigaltstack(&stack, NULL);
	sigaction(SIGUSR1, &action, NULL);
	for (unsigned long n = 0; n < passes; n++) {
		sum += outer(sum);
		if (n % 1000 == 0)
			raise(SIGUSR1);
	}
	return sum == 1;
}
