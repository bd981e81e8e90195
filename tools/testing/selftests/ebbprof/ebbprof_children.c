// SPDX-License-Identifier: GPL-2.0
/*
 * A program that creates a child with another call than fork(), so that no handlers of
 * pthread_atfork() run: the child has a copy of its parent's state of sampling, or shares it. The
 * parent works in before(), and in after() once the child has ended.
 *
 * usage: ebbprof_children CALL ACTION PASSES OBJECT
 *
 * CALL is in the table `makers` of main(), and ACTION, which the child does, in `actions`. A pass
 * is about 10000 instructions. OBJECT is a shared object that the child loads.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ebbprof_work.h"

static const char *object;

WORK(before)
WORK(after)
WORK(in_child)

static void must(int good, const char *what)
{
	if (good)
		return;
	printf("%s: %m\n", what);
	fflush(stdout);
	_exit(1);
}

static pid_t by_clone(void)
{
	return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

typedef int (*function)(void);

/* Calls _Fork(), which some C libraries lack. */
static pid_t without_handlers(void)
{
	function call = (function)dlsym(RTLD_DEFAULT, "_Fork");

	must(!!call, "_Fork");
	return call();
}

typedef void (*action_fn)(void);

static action_fn action_of_child;

static int acts(void *unused)
{
	action_of_child();
	_exit(!!unused);
}

/* Like vfork(), lets the child share the memory and run first. But the child has its own stack. */
static pid_t by_vfork(void)
{
	/* The stack must be aligned like a frame. */
	static __uint128_t stack[16 << 10];

	return clone(acts, (char *)stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
}

static void ends_thread(void)
{
	pthread_exit(NULL);
}

static void *load(void)
{
	void *handle = dlopen(object, RTLD_NOW);

	must(!!handle, "dlopen");
	return handle;
}

/* Exits with an object that the parent has not loaded. */
static void exits(void)
{
	load();
	exit(0);
}

static void closes(void)
{
	void *handle = load();

	load();
	must(!dlclose(handle), "dlclose");
}

static void *works(void *unused)
{
	in_child(100000);
	return unused;
}

static void makes_threads(void)
{
	pthread_t ids[2];

	for (int n = 0; n < 2; n++)
		must(!pthread_create(&ids[n], NULL, works, NULL), "pthread_create");
	for (int n = 0; n < 2; n++)
		must(!pthread_join(ids[n], NULL), "pthread_join");
}

/* In a process without EBBs, each access to the PMU traps. */
static atomic_int trapped;

static void on_sigill(int number)
{
	trapped += number == SIGILL;
}

static jmp_buf place;

/* Sets an action for SIGILL, and makes calls that turn EBBs off and on in a sampled thread. */
static void takes_sigill(void)
{
	struct sigaction action = { .sa_handler = on_sigill };
	char *const arguments[] = { "true", NULL };
	pid_t child;
	int status;

	must(!sigaction(SIGILL, &action, NULL), "sigaction");
	if (!setjmp(place))
		longjmp(place, 1);
	must(!posix_spawn(&child, "/bin/busybox", NULL, NULL, arguments, NULL), "posix_spawn");
	must(waitpid(child, &status, 0) == child && !status, "the program");
	must(!trapped, "an access to the PMU has trapped");
}

/* Creates a child with fork(), which is recorded. */
static void forks(void)
{
	pid_t child = fork();
	int status;

	if (!child) {
		in_child(100000);
		exit(0);
	}
	must(waitpid(child, &status, 0) == child && !status, "the child's child");
}

/* The functions of ebbprof.h fail, because the child has no part in its parent's samples. */
static void calls(void)
{
	static const char *const names[] = {
		"ebbprof_sample_thread", "ebbprof_pause", "ebbprof_resume", "ebbprof_dump",
		"ebbprof_stop",
	};

	for (size_t n = 0; n < sizeof(names) / sizeof(*names); n++) {
		function call = (function)dlsym(RTLD_DEFAULT, names[n]);

		if (call)
			must(call() == -1 && errno == EOPNOTSUPP, names[n]);
	}
}

static void leaves(void)
{
	_exit(0);
}

struct way {
	const char *name;
	pid_t (*call)(void);
	void (*action)(void);
};

int main(int argc, char **argv)
{
	static const struct way makers[] = {
		{ "clone", .call = by_clone }, { "_Fork", .call = without_handlers },
		{ "vfork", .call = by_vfork },
	}, actions[] = {
		{ "pthread_exit", .action = ends_thread }, { "exit", .action = exits },
		{ "dlclose", .action = closes }, { "threads", .action = makes_threads },
		{ "sigill", .action = takes_sigill }, { "fork", .action = forks },
		{ "calls", .action = calls }, { "_exit", .action = leaves },
	}, *maker, *action;
	unsigned long passes;
	pid_t child;
	int status;

	if (argc < 5)
		return 2;
	maker = find_way(makers, sizeof(makers), sizeof(*makers), argv[1]);
	action = find_way(actions, sizeof(actions), sizeof(*actions), argv[2]);
	passes = strtoul(argv[3], NULL, 0);
	object = argv[4];
	if (!maker || !action)
		return 2;
	for (unsigned long n = 0; n < passes; n++)
		before(1000);
	action_of_child = action->action;
	child = maker->call();
	if (!child)
		acts(NULL);
	must(child > 0, maker->name);
	must(waitpid(child, &status, 0) == child && !status, "the child");
	/* Gives ebbprof the time to check for threads that have ended. */
	usleep(300000);
	for (unsigned long n = 0; n < passes; n++)
		after(1000);
	return 0;
}
