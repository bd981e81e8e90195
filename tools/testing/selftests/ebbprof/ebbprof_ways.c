// SPDX-License-Identifier: GPL-2.0
/*
 * Programs with habits that a profiler inside them could disturb. Each prints its results, which
 * must be the same with and without ebbprof.
 *
 * usage: ebbprof_ways WAY [OBJECT [FILE]]
 *
 * WAY is one of the names in `ways` in main(), OBJECT a shared object, and FILE a file to wait for.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define WITH_HALF
#include "ebbprof_work.h"

#define THREADS 4
#define CANCELS 200

static const char *object, *file;

/* Finds the descriptors of perf events. Returns their number. */
static int events(int *fds, int most)
{
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;
	int found = 0;

	if (!folder)
		exit(1);
	while ((entry = readdir(folder))) {
		char name[64] = "";

		if (readlinkat(dirfd(folder), entry->d_name, name, sizeof(name) - 1) > 0 &&
		    strstr(name, "perf_event") && found < most)
			fds[found++] = atoi(entry->d_name);
	}
	closedir(folder);
	return found;
}

static int null, taken[8], count;

/* Replaces descriptors like `exec 7>file` in a shell that does not know descriptor 7. */
static void *takes(void *unused)
{
	count = events(taken, 8);
	for (int n = 0; n < count; n++)
		if (dup2(null, taken[n]) != taken[n])
			exit(1);
	return unused;
}

static void still_there(const char *where)
{
	int gone = 0;

	for (int n = 0; n < count; n++)
		gone += fcntl(taken[n], F_GETFD) < 0;
	printf("%s: %d files are closed\n", where, gone);
}

/* A file replaces the descriptor of each event: in a thread that ends, and before a fork. */
static int descriptors(void)
{
	int status;

	null = open("/dev/null", O_WRONLY);
	printf("first descriptor: %d\n", null);
	in_a_thread(takes);
	still_there("after a thread");
	fflush(stdout);
	if (!fork()) {
		still_there("in a child");
		exit(0);
	}
	wait(&status);
	return status;
}

static pthread_barrier_t barrier;

static void *waits(void *unused)
{
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	return unused;
}

/* The child of a program with many threads has at most its own event. */
static int inherit(void)
{
	pthread_t ids[THREADS];
	int status;

	pthread_barrier_init(&barrier, NULL, THREADS + 1);
	for (int n = 0; n < THREADS; n++)
		pthread_create(&ids[n], NULL, waits, NULL);
	pthread_barrier_wait(&barrier);
	if (!fork()) {
		int own = events(taken, 8);

		if (own > 1)
			printf("the child has %d events\n", own);
		exit(0);
	}
	wait(&status);
	pthread_barrier_wait(&barrier);
	for (int n = 0; n < THREADS; n++)
		pthread_join(ids[n], NULL);
	return status;
}

static atomic_int began;

static void *is_cancelled(void *unused)
{
	began++;
	for (;;)
		pthread_testcancel();
	return unused;
}

/*
 * A thread that is cancelled before it has begun begins nevertheless: there is no cancellation
 * point before its function.
 */
static int cancel(void)
{
	int cancelled = 0;

	for (int n = 0; n < CANCELS; n++) {
		pthread_t id;
		void *result = NULL;

		if (pthread_create(&id, NULL, is_cancelled, NULL) || pthread_cancel(id) ||
		    pthread_join(id, &result))
			return 1;
		cancelled += result == PTHREAD_CANCELED;
	}
	printf("%d began, %d were cancelled\n", began, cancelled);
	return 0;
}

static void *is_named(void *unused)
{
	pthread_setname_np(pthread_self(), "named");
	work(400);
	return unused;
}

static void *is_renamed(void *unused)
{
	work(200);
	usleep(400000);
	prctl(PR_SET_NAME, "late");
	work(400);
	/* Lets ebbprof notice this name before the thread gets another one. */
	usleep(400000);
	prctl(PR_SET_NAME, "last");
	work(600);
	return unused;
}

/* Threads have names of their own, one of which changes. */
static int names(void)
{
	in_a_thread(is_named);
	in_a_thread(is_renamed);
	puts("all have worked");
	return 0;
}

/* Opens and closes 30 objects, once FILE exists. */
static int unload_later(void)
{
	while (access(file, F_OK))
		usleep(10000);
	for (int n = 0; n < 30; n++) {
		void *handle = dlopen(object, RTLD_NOW);

		work(1);
		if (!handle || dlclose(handle))
			return 1;
	}
	return 0;
}

/* Closes descriptors like a daemon that keeps no inherited files. */
static int shut(void)
{
	close_range(3, ~0U, 0);
	work(400);
	return 0;
}

/* A program that locks its memory has only its own memory locked. */
static int lock(void)
{
	char line[128];
	unsigned long size;
	FILE *status;

	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		return 1;
	in_a_thread(is_named);
	status = fopen("/proc/self/status", "r");
	while (fgets(line, sizeof(line), status))
		if (sscanf(line, "VmRSS: %lu", &size) == 1)
			printf("memory: %s\n", size < 100000 ? "below 100 MB" : line);
	return 0;
}

/*
 * Under a limit of 1 GB, the program and a program that it executes have room as without
 * ebbprof.
 */
static int limited(void)
{
	struct rlimit most = { 1000000000, 1000000000 };

	if (setrlimit(RLIMIT_AS, &most))
		return 1;
	printf("64 MB: %s\n", malloc(64000000) ? "there is room" : "no room");
	fflush(stdout);
	execlp("ebbprof_work", "ebbprof_work", "plain", "100", NULL);
	return 1;
}

/* The file size limit is unchanged, and its signal ends the program that exceeds it. */
static int limit(void)
{
	struct sigaction action;
	struct rlimit most;

	if (getrlimit(RLIMIT_FSIZE, &most) || sigaction(SIGXFSZ, NULL, &action))
		return 1;
	printf("%ju of %ju bytes, %s\n", (uintmax_t)most.rlim_cur, (uintmax_t)most.rlim_max,
	       action.sa_handler == SIG_DFL ? "SIGXFSZ ends it" : "SIGXFSZ does not end it");
	return 0;
}

/* Sets BESCR as QEMU leaves it in a thread that has lost an EBB: PME and PMEO without GE. */
static void *loses(void *unused)
{
	work(200);
	asm volatile("mtspr 806, %0" : : "r"(1UL << 32 | 1));
	work(200);
	return unused;
}

static int cease(void)
{
	in_a_thread(loses);
	work(200);
	return 0;
}

/* Works with r1 set to `frame`, which holds `back_chain`. */
static void astray(uint64_t *frame, uint64_t back_chain)
{
	uint64_t stack;

	frame[0] = back_chain;
	asm volatile("mr %0, 1\n\tmr 1, %1\n\t"
		     "mtctr %2\n"
		     "1:\t.rept 9\n\tnop\n\t.endr\n\t"
		     "bdnz 1b\n\t"
		     "mr 1, %0"
		     : "=&r"(stack) : "r"(frame), "r"(20000) : "ctr", "memory");
}

#define STACK (256UL << 10)
#define GUARD (64UL << 10)

/* Back chains that lead nowhere, to the same frame, downwards, or to unreadable memory. */
static void *with_frames(void *end_of_stack)
{
	uint64_t room[8192], *frame = room + 4096, end = (uintptr_t)end_of_stack;
	const uint64_t back_chains[] = {
		0, 8, (uintptr_t)frame, (uintptr_t)frame - 64, (uintptr_t)frame - STACK,
		end - 16, end, end + GUARD - 32, 1UL << 63, -16UL,
	};

	/* The return address of the frame's function, if the frame were followed. */
	frame[2] = (uintptr_t)half;
	for (size_t n = 0; n < sizeof(back_chains) / sizeof(*back_chains); n++)
		astray(frame, back_chains[n]);
	return NULL;
}

static int frames(void)
{
	char *stack = mmap(NULL, STACK + GUARD, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_attr_t attr;
	pthread_t id;

	if (stack == MAP_FAILED || mprotect(stack + STACK, GUARD, PROT_NONE) ||
	    pthread_attr_init(&attr) || pthread_attr_setstack(&attr, stack, STACK) ||
	    pthread_create(&id, &attr, with_frames, stack + STACK) || pthread_join(id, NULL))
		return 1;
	puts("the thread has worked");
	return 0;
}

static int errno_at_begin;

static int says_errno(void)
{
	return printf("errno: %d\n", errno_at_begin) < 0;
}

static void *leaves(void *unused)
{
	pthread_cancel(pthread_self());
	exit(0);
	return unused;
}

/* The functions up to the end of the program contain no cancellation point. */
static int leave(void)
{
	pthread_t id;

	if (!pthread_create(&id, NULL, leaves, NULL))
		pthread_join(id, NULL);
	_exit(1);
}

/* A daemon that other processes may not trace. It works, waits, and works again. */
static int untraced(void)
{
	int pipes[2];
	char byte;

	if (pipe(pipes))
		return 1;
	if (!fork()) {
		if (fork())
			_exit(0);
		if (prctl(PR_SET_DUMPABLE, 0))
			_exit(1);
		work(200);
		usleep(500000);
		work(200);
		_exit(write(pipes[1], "", 1) != 1);
	}
	close(pipes[1]);
	return read(pipes[0], &byte, 1) != 1;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(void);
	} ways[] = {
		{ "descriptors", descriptors }, { "inherit", inherit }, { "cancel", cancel },
		{ "names", names }, { "unload_later", unload_later }, { "shut", shut },
		{ "lock", lock }, { "limit", limit }, { "cease", cease }, { "frames", frames },
		{ "errno", says_errno }, { "leave", leave }, { "untraced", untraced },
		{ "limited", limited },
	}, *way;

	errno_at_begin = errno;
	if (argc < 2)
		return 2;
	object = argc > 2 ? argv[2] : NULL;
	file = argc > 3 ? argv[3] : NULL;
	way = find_way(ways, sizeof(ways), sizeof(*ways), argv[1]);
	return way ? way->run() : 2;
}
