// SPDX-License-Identifier: GPL-2.0
/*
 * Programs that set signal masks and actions and jump out of handlers. They print the results.
 *
 * usage: ebbprof_signals WAY
 *
 * WAY is one of the names in `ways` in main().
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define WITH_HALF
#include "ebbprof_work.h"

#define THREADS 4

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

/* Masks and actions have the effects that the program expects, including those for SIGILL. */
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
	if (!vfork()) {
		/*
		 * vfork() shares the memory, so this also changes what the library stores for
		 * the parent.
		 */
		sigaction(SIGILL, NULL, &after);
		signal(SIGILL, SIG_DFL);
		_exit(0);
	}
	wait(&status);
	trap();
	printf("%d traps, status %d\n", traps, status);
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
	work(100000);
	return unused;
}

/* Threads that block all signals, and an action for SIGILL that must not be called. */
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

/* The C library's longjmp() with additional checks. */
void __longjmp_chk(struct __jmp_buf_tag *buffer, int value);

static sigjmp_buf buffer;
static void (*jump_by)(struct __jmp_buf_tag *buffer, int value) = siglongjmp;

static void jumps(int number)
{
	jump_by(buffer, number);
}

/* Calls a function once, after `microseconds`. */
static void in_a_while(void (*function)(int), unsigned long microseconds)
{
	const struct itimerval wait = { .it_value.tv_usec = microseconds };

	signal(SIGALRM, function);
	setitimer(ITIMER_REAL, &wait, NULL);
}

/* Leaves system() with a jump of each kind, and works. */
static int jump(void)
{
	void (*const kinds[])(struct __jmp_buf_tag *buffer, int value) = {
		siglongjmp, longjmp, _longjmp, __longjmp_chk,
	};
	static unsigned int kind;

	for (; kind < sizeof(kinds) / sizeof(*kinds); kind++) {
		jump_by = kinds[kind];
		if (sigsetjmp(buffer, 1)) {
			work(50);
			wait(NULL);
			continue;
		}
		in_a_while(jumps, 50000);
		system("sleep 0.2");
		return 1;
	}
	puts("out of it");
	return 0;
}

static atomic_ulong passes;
static atomic_int jumped;

/*
 * Jumps out of its work many times, and so out of samples, too. Prints the amount of work to
 * stderr.
 */
static int jumps_often(void)
{
	for (; jumped < 300; jumped++) {
		if (sigsetjmp(buffer, 1))
			continue;
		in_a_while(jumps, 1000);
		for (;;) {
			half(500);
			passes++;
		}
	}
	fprintf(stderr, "passes: %lu\n", atomic_load(&passes));
	return 0;
}

static void works(int number)
{
	work(200);
	(void)number;
}

/* Works in a handler of a signal that it sends to itself. */
static int itself(void)
{
	signal(SIGUSR1, works);
	return pthread_kill(pthread_self(), SIGUSR1);
}

static pthread_barrier_t barrier;

static void *waits(void *unused)
{
	pthread_barrier_wait(&barrier);
	return unused;
}

static pthread_t other;
static int enabled = -1;

static void nests(int number)
{
	unsigned long bescr;

	pthread_kill(other, 0);
	asm volatile("mfspr %0, 806" : "=r"(bescr));
	enabled = bescr >> 63;
	(void)number;
}

/* During a call that has EBBs off, another such call begins and ends. Then the program works. */
static int nest(void)
{
	pthread_barrier_init(&barrier, NULL, 2);
	if (pthread_create(&other, NULL, waits, NULL))
		return 1;
	in_a_while(nests, 50000);
	printf("status %d", system("sleep 0.2"));
	printf(", GE %d\n", enabled);
	pthread_barrier_wait(&barrier);
	work(200);
	return pthread_join(other, NULL);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(void);
	} ways[] = {
		{ "signals", signals }, { "blocked", blocked }, { "jump", jump },
		{ "jumps_often", jumps_often }, { "itself", itself }, { "nest", nest },
	}, *way;

	way = argc > 1 ? find_way(ways, sizeof(ways), sizeof(*ways), argv[1]) : NULL;
	return way ? way->run() : 2;
}
