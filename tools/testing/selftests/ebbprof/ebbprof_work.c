// SPDX-License-Identifier: GPL-2.0
/*
 * A program to profile: half of its instructions are in half(), three tenths in three_tenths(), and
 * a fifth in fifth() of a shared object.
 *
 * usage: ebbprof_work WAY PASSES [COUNT]
 *
 * A pass is about 10000 instructions. WAY is one of the names in `ways` in main().
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ebbprof_work.h"

static unsigned long passes;
static unsigned long count;

WORK(half)
WORK(three_tenths)

/* The name that a compiler gives to outer::inner(unsigned long) of C++. */
void inner(unsigned long rounds) __asm__("_ZN5outer5innerEm");
WORK(inner)

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

/* half() does half of its usual work. */
static int less(void)
{
	for (unsigned long n = 0; n < passes; n++) {
		half(250);
		three_tenths(300);
		fifth(200);
	}
	return 0;
}

/* A C++ function takes the place of three_tenths(). */
static int mangled(void)
{
	for (unsigned long n = 0; n < passes; n++) {
		half(500);
		inner(300);
		fifth(200);
	}
	return 0;
}

/* Works COUNT times, with pauses of 0.6 s. */
static int rest(void)
{
	for (unsigned long n = 0; n < count; n++) {
		work();
		usleep(600000);
	}
	return 0;
}

/* Leaves without the functions that exit() calls. */
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

/* Runs COUNT threads at the same time. */
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

/* Runs COUNT threads. The first thread does not wait for them. */
static int orphans(void)
{
	for (unsigned long n = 0; n < count; n++) {
		pthread_t id;

		if (pthread_create(&id, NULL, in_thread, NULL))
			return 1;
	}
	pthread_exit(NULL);
}

/* Runs COUNT processes, one after the other. Each has two threads that end in different ways. */
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

/*
 * Code that the program generates takes the place of three_tenths(). The program names the
 * function in /tmp/perf-PID.map, as a JIT compiler does.
 */
static int make(void)
{
	static const uint32_t code[] = {
		0x7c6903a6, /* mtctr r3 */
		0x60000000, 0x60000000, 0x60000000, 0x60000000, 0x60000000,
		0x60000000, 0x60000000, 0x60000000, 0x60000000,
		0x4200ffdc, /* bdnz to the first nop */
		0x4e800020, /* blr */
	};
	const int access = PROT_READ | PROT_WRITE | PROT_EXEC;
	char *memory = mmap(NULL, 65536, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *start = memory + 4096;
	void (*made)(unsigned long rounds);
	char name[32];
	FILE *map;

	if (memory == MAP_FAILED)
		return 1;
	memcpy(start, code, sizeof(code));
	__builtin___clear_cache(start, start + sizeof(code));
	snprintf(name, sizeof(name), "/tmp/perf-%d.map", getpid());
	map = fopen(name, "w");
	if (!map)
		return 1;
	fprintf(map, "%lx %zx Made::by hand\n", (unsigned long)start, sizeof(code));
	fclose(map);
	__asm__("mr %0, %1" : "=r"(made) : "r"(start));
	for (unsigned long n = 0; n < passes; n++) {
		half(500);
		made(300);
		fifth(200);
	}
	return 0;
}

/* Reads the time through the vDSO COUNT times per pass. */
static int ask(void)
{
	struct timespec now;

	for (unsigned long n = 0; n < passes; n++) {
		half(500);
		for (unsigned long asked = 0; asked < count; asked++)
			clock_gettime(CLOCK_MONOTONIC, &now);
	}
	return 0;
}

/*
 * Does half of the passes under a filter that kills the process at any system call except
 * exit_group. It ends with that call, because exit() would make libebbprof use others.
 */
static int confined(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	const struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };

	passes /= 2;
	work();
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return 1;
	work();
	_exit(0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(void);
	} ways[] = {
		{ "plain", plain }, { "leave", leave }, { "die", die }, { "exec", overwrite },
		{ "threads", threads }, { "storm", storm }, { "make", make }, { "ask", ask },
		{ "less", less }, { "mangled", mangled }, { "rest", rest }, { "orphans", orphans },
		{ "confined", confined },
	}, *way;

	if (argc < 3)
		return 2;
	passes = strtoul(argv[2], NULL, 0);
	count = argc > 3 ? strtoul(argv[3], NULL, 0) : 0;
	way = find_way(ways, sizeof(ways), sizeof(*ways), argv[1]);
	return way ? way->run() : 2;
}
