// SPDX-License-Identifier: GPL-2.0
/*
 * A program for ebbprof to profile: half of its instructions are in half(), three tenths in
 * three_tenths(), a fifth in fifth() of a shared object.
 *
 * usage: ebbprof_work WAY PASSES [COUNT]
 *
 * A pass is some 10000 instructions. WAY is one of those at the end of this file.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ebbprof_work.h"

static unsigned long passes;
static unsigned long count;

WORK(half)
WORK(three_tenths)

static void work(void)
{
	for (unsigned long n = 0; n < passes; n++) {
		half(500);
		three_tenths(300);
		fifth(200);
	}
}

static int plain(void)
{
	work();
	return 0;
}

/* Without what exit() does. */
static int leave(void)
{
	work();
	_exit((int)count);
}

static int die(void)
{
	work();
	kill(getpid(), SIGKILL);
	return 1;
}

static int overwrite(void)
{
	char number[32];

	work();
	snprintf(number, sizeof(number), "%lu", passes);
	execl("/proc/self/exe", "ebbprof_work", "plain", number, NULL);
	return 1;
}

static void *in_thread(void *unused)
{
	(void)unused;
	work();
	return NULL;
}

/* COUNT threads at a time. */
static int threads(void)
{
	pthread_t ids[64];

	if (count > 64)
		return 1;
	for (unsigned long n = 0; n < count; n++)
		if (pthread_create(&ids[n], NULL, in_thread, NULL))
			return 1;
	for (unsigned long n = 0; n < count; n++)
		pthread_join(ids[n], NULL);
	return 0;
}

static void *leaves_by_exit(void *unused)
{
	(void)unused;
	work();
	pthread_exit(NULL);
}

/* COUNT processes, one after the other, each with two threads that end in different ways. */
static int storm(void)
{
	for (unsigned long n = 0; n < count; n++) {
		pthread_t id;
		int status;
		pid_t pid = fork();

		if (!pid) {
			if (pthread_create(&id, NULL, n % 2 ? in_thread : leaves_by_exit, NULL))
				_exit(1);
			work();
			pthread_join(id, NULL);
			if (n % 3)
				exit(0);
			execl("/proc/self/exe", "ebbprof_work", "leave", "1", NULL);
			_exit(1);
		}
		if (waitpid(pid, &status, 0) != pid || status)
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(void);
	} ways[] = {
		{ "plain", plain }, { "leave", leave }, { "die", die }, { "exec", overwrite },
		{ "threads", threads }, { "storm", storm },
	};

	if (argc < 3)
		return 2;
	passes = strtoul(argv[2], NULL, 0);
	count = argc > 3 ? strtoul(argv[3], NULL, 0) : 0;
	for (size_t n = 0; n < sizeof(ways) / sizeof(*ways); n++)
		if (!strcmp(argv[1], ways[n].name))
			return ways[n].run();
	return 2;
}
