// SPDX-License-Identifier: GPL-2.0
/*
 * A program that records itself with libebbprof while many threads run. Each pass has 5000
 * instructions.
 *
 * usage: ebbprof_threads WAY FILE PASSES
 *
 * WAY is one of the names in `ways` in main().
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ebbprof_client.h"

#define PERIOD 1009
#define LONG_PERIOD 10007
#define MOST_THREADS 16
#define PAUSES 500

static atomic_int over;

static void start(unsigned long period)
{
	must(ebbprof_start(file, "cycles", period, 0), "start");
}

static pthread_t ids[MOST_THREADS];

static void begin(int count, void *(*function)(void *))
{
	for (int n = 0; n < count; n++)
		if (pthread_create(&ids[n], NULL, function, NULL))
			exit(1);
}

static void join(int count)
{
	over = 1;
	for (int n = 0; n < count; n++)
		pthread_join(ids[n], NULL);
}

/* Joins each recording. Its signals are blocked from its first pass on. */
static void *blocks(void *unused)
{
	sigset_t all;

	sigfillset(&all);
	while (!over) {
		ebbprof_sample_thread();
		pthread_sigmask(SIG_SETMASK, &all, NULL);
		for (int n = 0; n < 20; n++)
			half(500);
	}
	return unused;
}

static atomic_int own;

static void on_sigill(int number)
{
	own += number == SIGILL;
}

/*
 * At the end of each recording, many threads lose the PMU in their handlers, while they block
 * SIGILL. The program has its own action for SIGILL, which must not be called. There are as many
 * recordings as passes.
 */
static void blocked(void)
{
	struct sigaction action = { .sa_handler = on_sigill };

	begin(MOST_THREADS, blocks);
	for (unsigned long n = 0; n < passes; n++) {
		start(PERIOD);
		if (!n && sigaction(SIGILL, &action, NULL))
			exit(1);
		usleep(3000);
		must(ebbprof_stop(), "stop");
	}
	join(MOST_THREADS);
	printf("own action: %d\n", own);
	raise(SIGILL);
	printf("raised: %d\n", own);
}

static void *spins(void *unused)
{
	while (!over)
		three_tenths(300);
	do_half();
	return unused;
}

/* The work of the threads after many pauses is sampled as if there had been no pauses. */
static void paused(void)
{
	start(LONG_PERIOD);
	begin(8, spins);
	for (int n = 0; n < PAUSES; n++) {
		must(ebbprof_pause(), "pause");
		usleep(n % 3 ? 0 : 500);
		must(ebbprof_resume(), "resume");
		usleep(n % 2 ? 0 : 500);
	}
	join(8);
	must(ebbprof_stop(), "stop");
}

/* A pause affects only its process: a child is sampled. */
static void forks(void)
{
	int status;

	start(PERIOD);
	must(ebbprof_pause(), "pause");
	for (unsigned long n = 0; n < passes; n++)
		three_tenths(300);
	if (!fork()) {
		do_half();
		_exit(0);
	}
	wait(&status);
	must(ebbprof_resume(), "resume");
	do_half();
	must(ebbprof_stop(), "stop");
	exit(status);
}

/*
 * A child that was created by another call than fork() cannot start a recording, during its
 * parent's and after it. ebbprof_children tests its other actions.
 */
static void in_clone(void)
{
	pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	int status;

	if (!child) {
		refused("start", ebbprof_start(file, "cycles", PERIOD, 0), EOPNOTSUPP);
		fflush(stdout);
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child || status)
		exit(1);
}

static void clones(void)
{
	start(PERIOD);
	do_half();
	in_clone();
	must(ebbprof_stop(), "stop");
	in_clone();
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} ways[] = {
		{ "blocked", blocked }, { "paused", paused }, { "forks", forks },
		{ "clones", clones },
	}, *way;

	if (argc < 4)
		return 2;
	file = argv[2];
	passes = strtoul(argv[3], NULL, 0);
	way = find_way(ways, sizeof(ways), sizeof(*ways), argv[1]);
	if (!way)
		return 2;
	way->run();
	return 0;
}
