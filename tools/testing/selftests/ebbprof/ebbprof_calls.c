// SPDX-License-Identifier: GPL-2.0
/*
 * Functions whose callers are known at each instruction: without a frame, with one, by a tail
 * call, by a stub of the PLT, with variable stack, and on another stack.
 *
 * usage: ebbprof_calls PASSES
 */
#include <alloca.h>
#include <signal.h>
#include <stdlib.h>

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
	/* Somebody reads it. */
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

int main(int argc, char **argv)
{
	static char memory[1 << 16];
	stack_t stack = { .ss_sp = memory, .ss_size = sizeof(memory) };
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_ONSTACK };
	unsigned long passes = argc > 1 ? strtoul(argv[1], NULL, 0) : 0;
	long sum = 0;

	sigaltstack(&stack, NULL);
	sigaction(SIGUSR1, &action, NULL);
	for (unsigned long n = 0; n < passes; n++) {
		sum += outer(sum);
		if (n % 1000 == 0)
			raise(SIGUSR1);
	}
	return sum == 1;
}
