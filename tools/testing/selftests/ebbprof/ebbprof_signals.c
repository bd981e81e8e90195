// SPDX-License-Identifier: GPL-2.0
/*
 * A program with masks and actions of its own, which prints what it finds.
 *
 * usage: ebbprof_signals signals|blocked
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "ebbprof_work.h"

#define THREADS 4

WORK(half)

static int traps;

static void steps_over(int number, siginfo_t *info, void *context)
{
	ucontext_t *user = context;

	user->uc_mcontext.regs->nip += 4;
	traps++;
	(void)number;
	(void)info;
}

static void trap(void)
{
	asm volatile(".long 0");
}

/* Masks and actions do what the program expects, those for SIGILL too. */
static int signals(void)
{
	struct sigaction action = { .sa_sigaction = steps_over, .sa_flags = SA_SIGINFO };
	struct sigaction before, after;
	sigset_t all, now;
	int status;

	sigfillset(&all);
	sigfillset(&action.sa_mask);
	if (sigprocmask(SIG_SETMASK, &all, NULL) || pthread_sigmask(SIG_BLOCK, NULL, &now))
		return 1;
	printf("blocked: SIGUSR1 %d, SIGTERM %d\n", sigismember(&now, SIGUSR1),
	       sigismember(&now, SIGTERM));
	sigemptyset(&all);
	if (sigprocmask(SIG_SETMASK, &all, NULL) || sigaction(SIGILL, &action, &before) ||
	    sigaction(SIGILL, NULL, &after))
		return 1;
	printf("action: %d before, %d after\n", before.sa_handler == SIG_DFL,
	       after.sa_sigaction == steps_over);
	trap();
	printf("%d traps, status %d\n", traps, system("exit 7"));
	printf("last action: %d\n", signal(SIGILL, SIG_DFL) == after.sa_handler);
	fflush(stdout);
	if (!fork()) {
		trap();
		_exit(0);
	}
	wait(&status);
	printf("the child: signal %d\n", WTERMSIG(status));
	return 0;
}

static void *blocks(void *unused)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	for (int n = 0; n < 100000; n++)
		half(500);
	return unused;
}

/* Threads that block all signals, and an action for SIGILL that nobody is to call. */
static int blocked(void)
{
	struct sigaction action = { .sa_sigaction = steps_over, .sa_flags = SA_SIGINFO };
	pthread_t ids[THREADS];

	if (sigaction(SIGILL, &action, NULL))
		return 1;
	for (int n = 0; n < THREADS; n++)
		if (pthread_create(&ids[n], NULL, blocks, NULL))
			return 1;
	for (int n = 0; n < THREADS; n++)
		pthread_join(ids[n], NULL);
	printf("%d traps\n", traps);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	return strcmp(argv[1], "blocked") ? signals() : blocked();
}
