// SPDX-License-Identifier: GPL-2.0
/*
 * A stress test for ebbprof: 64 threads work, open and close shared objects, fork, execute and kill
 * processes, while a timer raises signals on stacks of their own. Prints the number of instructions
 * in half(), in three_tenths(), and in fifth() of the objects.
 *
 * usage: ebbprof_storm ROUNDS OBJECT OBJECT
 *        ebbprof_storm work PASSES
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ebbprof_work.h"

#define THREADS 64
#define PASSES 20

/* Numbers of instructions, for all processes. */
static struct counts {
	atomic_ulong half, three_tenths, fifth;
} *counts;

static unsigned long rounds;
static const char *objects[2];
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

WORK(half)
WORK(three_tenths)

static void work(unsigned long passes)
{
	for (unsigned long n = 0; n < passes; n++) {
		half(500);
		three_tenths(300);
	}
	if (counts) {
		counts->half += passes * 5000;
		counts->three_tenths += passes * 3000;
	}
}

static void on_signal(int number)
{
	half(100);
	counts->half += 1000;
	(void)number;
}

/* Only one of the two objects is loaded at a time, perhaps at the address of the other one. */
static void use_object(unsigned long n)
{
	void (*function)(unsigned long rounds);
	void *object;

	pthread_mutex_lock(&one_at_a_time);
	object = dlopen(objects[n % 2], RTLD_NOW | RTLD_LOCAL);
	if (!object) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	*(void **)&function = dlsym(object, "fifth");
	function(4000);
	counts->fifth += 40000;
	dlclose(object);
	pthread_mutex_unlock(&one_at_a_time);
}

static void in_child(unsigned long n)
{
	work(PASSES);
	switch (n % 3) {
	case 0:
		counts->half += PASSES * 5000;
		counts->three_tenths += PASSES * 3000;
		execl("/proc/self/exe", "ebbprof_storm", "work", "20", NULL);
		_exit(1);
	case 1:
		kill(getpid(), SIGKILL);
	}
	_exit(0);
}

static void *in_thread(void *number)
{
	stack_t stack = { .ss_size = 65536 };
	unsigned long n = (unsigned long)number;
	int status;
	pid_t pid;

	stack.ss_sp = malloc(stack.ss_size);
	sigaltstack(&stack, NULL);
	for (unsigned long round = 0; round < rounds; round++) {
		work(PASSES);
		use_object(n + round);
		if ((n + round) % 4)
			continue;
		pid = fork();
		if (!pid)
			in_child(n / 4 + round);
		if (waitpid(pid, &status, 0) != pid || (WIFEXITED(status) && WEXITSTATUS(status)))
			exit(1);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_RESTART };
	struct itimerval timer = { { 0, 2000 }, { 0, 2000 } };
	pthread_t ids[THREADS];

	if (argc == 3 && !strcmp(argv[1], "work")) {
		work(strtoul(argv[2], NULL, 0));
		return 0;
	}
	if (argc < 4)
		return 2;
	rounds = strtoul(argv[1], NULL, 0);
	objects[0] = argv[2];
	objects[1] = argv[3];
	counts = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (counts == MAP_FAILED)
		return 1;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	for (unsigned long n = 0; n < THREADS; n++)
		if (pthread_create(&ids[n], NULL, in_thread, (void *)n))
			return 1;
	for (unsigned long n = 0; n < THREADS; n++)
		pthread_join(ids[n], NULL);
	memset(&timer, 0, sizeof(timer));
	setitimer(ITIMER_REAL, &timer, NULL);
	printf("half %lu\nthree_tenths %lu\n", counts->half, counts->three_tenths);
	printf("fifth %lu\n", counts->fifth);
	return 0;
}
