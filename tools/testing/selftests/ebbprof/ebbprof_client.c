// SPDX-License-Identifier: GPL-2.0
/*
 * A program that profiles parts of itself with libebbprof. In each pass, half() has 5000
 * instructions and three_tenths() has 3000.
 *
 * usage: ebbprof_client WAY FILE PASSES
 *
 * WAY is one of the names in `ways` in main().
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ebbprof_client.h"

#define PERIOD 1009

static char name[200];

static void do_three_tenths(void)
{
	for (unsigned long n = 0; n < passes; n++)
		three_tenths(300);
}

static void start(void)
{
	must(ebbprof_start(file, "cycles", PERIOD, EBBPROF_CALLERS), "start");
}

/* There must be no samples from before the start, from the pause, and from after the stop. */
static void parts(void)
{
	do_three_tenths();
	start();
	do_half();
	must(ebbprof_pause(), "pause");
	do_three_tenths();
	must(ebbprof_resume(), "resume");
	do_half();
	must(ebbprof_stop(), "stop");
	do_three_tenths();
}

static sem_t started, done;

static void *waits_and_joins(void *unused)
{
	sem_wait(&started);
	must(ebbprof_sample_thread(), "sample_thread");
	do_half();
	sem_post(&done);
	return unused;
}

static void *waits(void *unused)
{
	sem_wait(&started);
	do_three_tenths();
	sem_post(&done);
	return unused;
}

static void *new_one(void *unused)
{
	do_half();
	return unused;
}

/* Two threads exist before the recording, one of which joins it. Two more are new. */
static void threads(void)
{
	pthread_t ids[4];

	sem_init(&started, 0, 0);
	sem_init(&done, 0, 0);
	pthread_create(&ids[0], NULL, waits_and_joins, NULL);
	pthread_create(&ids[1], NULL, waits, NULL);
	start();
	pthread_create(&ids[2], NULL, new_one, NULL);
	pthread_create(&ids[3], NULL, new_one, NULL);
	pthread_join(ids[2], NULL);
	pthread_join(ids[3], NULL);
	sem_post(&started);
	sem_post(&started);
	pthread_join(ids[0], NULL);
	pthread_join(ids[1], NULL);
	must(ebbprof_stop(), "stop");
}

static void *pauses(void *unused)
{
	must(ebbprof_pause(), "pause");
	return unused;
}

static void *ends_it(void *unused)
{
	must(ebbprof_stop(), "stop");
	return unused;
}

/* Another thread pauses the recording, and another one ends it. */
static void others(void)
{
	start();
	do_half();
	in_a_thread(pauses);
	do_three_tenths();
	must(ebbprof_resume(), "resume");
	do_half();
	in_a_thread(ends_it);
	do_three_tenths();
}

/* The test reads the file during the recording. */
static void dump(void)
{
	start();
	do_half();
	must(ebbprof_dump(), "dump");
	puts("dumped");
	fflush(stdout);
	getchar();
	do_half();
	must(ebbprof_dump(), "dump");
	do_half();
	must(ebbprof_stop(), "stop");
}

/* Makes several recordings, one after the other. The test checks the last one. */
static void many(void)
{
	for (int n = 0; n < 5; n++) {
		const char *event = n % 2 ? "instructions" : "0x3001e";

		must(ebbprof_start(file, event, PERIOD + n, 0), "start");
		do_three_tenths();
		must(ebbprof_stop(), "stop");
	}
	start();
	do_half();
	must(ebbprof_stop(), "stop");
}

/*
 * Two children record themselves at the same time, each to its own file. Their parent has made a
 * recording before.
 */
static void siblings(void)
{
	pid_t pids[2];
	int status;

	start();
	must(ebbprof_stop(), "stop");
	for (int n = 0; n < 2; n++) {
		pids[n] = fork();
		if (pids[n])
			continue;
		snprintf(name, sizeof(name), "%s.%d", file, n);
		file = name;
		start();
		do_half();
		if (n)
			do_three_tenths();
		must(ebbprof_stop(), "stop");
		exit(0);
	}
	for (int n = 0; n < 2; n++)
		if (waitpid(pids[n], &status, 0) != pids[n] || status)
			exit(1);
}

static void in_child(void)
{
	start();
	do_half();
	if (!fork()) {
		do_half();
		/* The recording is its parent's. */
		_exit(!(ebbprof_stop() == -1 && errno == ESRCH));
	}
	int status;

	wait(&status);
	must(ebbprof_stop(), "stop");
	exit(status);
}

static void forgets(void)
{
	start();
	do_half();
}

static void killed(void)
{
	forgets();
	raise(SIGKILL);
}

static void executes(void)
{
	forgets();
	execl("/bin/busybox", "true", NULL);
}

static int children;

static void on_child(int number)
{
	children += number == SIGCHLD;
}

/* The process that writes the file is no child of the program, and has none of its descriptors. */
static void alone(void)
{
	struct sigaction action = { .sa_handler = on_child, .sa_flags = SA_RESTART };
	int pipes[2];
	char byte;

	if (pipe(pipes))
		exit(1);
	sigaction(SIGCHLD, &action, NULL);
	start();
	do_half();
	close(pipes[1]);
	if (read(pipes[0], &byte, 1) != 0)
		exit(1);
	if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD || children) {
		printf("%d children have ended\n", children);
		exit(1);
	}
	must(ebbprof_stop(), "stop");
}

static void refusals(void)
{
	refused("stop", ebbprof_stop(), ESRCH);
	refused("pause", ebbprof_pause(), ESRCH);
	refused("sample_thread", ebbprof_sample_thread(), ESRCH);
	refused("event", ebbprof_start(file, "nonsense", 0, 0), ENOENT);
	refused("period", ebbprof_start(file, NULL, 99, 0), EINVAL);
	refused("flags", ebbprof_start(file, NULL, 0, 0x100), EINVAL);
	refused("file", ebbprof_start("/nowhere/file", NULL, 0, 0), ENOENT);
	setenv("PATH", "/nowhere", 1);
	refused("program", ebbprof_start(file, NULL, 0, 0), ENOENT);
}

/* A set-user-ID program does not run programs from its user's PATH. */
static void secure(void)
{
	refused("start", ebbprof_start(file, NULL, 0, 0), EPERM);
}

#define LOWEST 8
#define FDS 1024

/*
 * A program that closes all unknown descriptors and puts its own sockets in their place. The
 * library must not write to these or close them, and the next recording must be as good as the
 * first. The program has real-time priority, so that ebbprof has read no samples of the first
 * recording when the next one starts.
 */
static void closes(void)
{
	const struct sched_param first = { .sched_priority = 1 };
	const char *second = file;
	int pair[2], last = LOWEST;
	char byte;

	snprintf(name, sizeof(name), "%s.first", file);
	file = name;
	start();
	if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &first))
		exit(1);
	do_half();
	if (close_range(3, ~0U, 0) || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair))
		exit(1);
	while (last < FDS && dup2(pair[0], last) == last)
		last++;
	refused("dump", ebbprof_dump(), EBADF);
	refused("stop", ebbprof_stop(), EBADF);
	if (recv(pair[1], &byte, 1, 0) != -1 || errno != EAGAIN) {
		puts("the library has written to the program's socket");
		exit(1);
	}
	for (int n = LOWEST; n < last; n++)
		if (fcntl(n, F_GETFD) < 0) {
			printf("descriptor %d was closed\n", n);
			exit(1);
		}
	close_range(last / 2, ~0U, 0);
	file = second;
	start();
	do_half();
	must(ebbprof_dump(), "dump");
	must(ebbprof_stop(), "stop");
}

static void *leaves(void *unused)
{
	pthread_cancel(pthread_self());
	exit(0);
	return unused;
}

/* A cancelled thread ends the program and the recording. */
static void leave(void)
{
	forgets();
	in_a_thread(leaves);
	_exit(1);
}

static void twice(void)
{
	start();
	refused("start", ebbprof_start(file, NULL, 0, 0), EBUSY);
	do_half();
	must(ebbprof_stop(), "stop");
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} ways[] = {
		{ "parts", parts }, { "threads", threads }, { "others", others },
		{ "dump", dump }, { "many", many }, { "fork", in_child }, { "siblings", siblings },
		{ "forgets", forgets }, { "killed", killed }, { "executes", executes },
		{ "alone", alone }, { "refusals", refusals }, { "twice", twice },
		{ "secure", secure }, { "closes", closes }, { "leave", leave },
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
