// SPDX-License-Identifier: GPL-2.0
/*
 * Programs that write to the memory which they share with ebbprof as no handler does, or that lack
 * memory for it.
 *
 * usage: ebbprof_hostile WAY [ARGUMENT]...
 *
 * WAY is one of the names in `ways` in main().
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define WITH_HALF
#include "ebbprof_work.h"

/* Offsets in the memory with rings of 64 KiB, as in tools/ebbprof/ring/src/lib.rs. */
enum {
	WORDS = 16, PERIOD = 24, MOST_FRAMES = 32, BRANCHES = 56, EVENT_NAME = 80, NAME_SIZE = 128,
	USED = 212, STATES = 228, FREE = 0, LIVE = 2, SLOTS = 1024,
	FIRST = 64 << 10, RING = 64 << 10, SLOT_SIZE = FIRST + 2 * RING,
	HEAD = 0, LIMIT = 8, MASK = 24, FRAMES = 32, STACK = 40, STACK_SIZE = 48, TAIL = 128,
	ORIGIN = 136, PID = 140, TID = 144, DESCRIPTOR = 188, EVENT = 192,
	MAPS_VERSION = 200, MAPS_READ = 204, MAPS_TIME = 216, MAPS_LENGTH = 224, MAPS = 356,
};

#define SIZE ((size_t)FIRST + (size_t)SLOTS * SLOT_SIZE)

static char **arguments;

/* Maps the whole memory. The program must be allowed to open its path. */
static char *memory(void)
{
	const char *path = getenv("EBBPROF");
	int file = path ? open(path, O_RDWR) : -1;
	char *start = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

	if (start == MAP_FAILED) {
		perror("EBBPROF");
		exit(2);
	}
	return start;
}

static char *slot(char *start, int n)
{
	return start + FIRST + (size_t)n * SLOT_SIZE;
}

static atomic_ullong *word(char *at, int offset)
{
	return (atomic_ullong *)(at + offset);
}

static atomic_uint *number(char *at, int offset)
{
	return (atomic_uint *)(at + offset);
}

static atomic_uint *state(char *start, int n)
{
	return number(start, STATES + 4 * n);
}

/* Waits, for at most ten seconds, until a number changes. */
static void changes(atomic_uint *what, unsigned int from)
{
	for (int n = 0; n < 1000 && *what == from; n++)
		usleep(10000);
}

/* Keeps a word at a value for a while. The handler writes its own value there at each sample. */
static void keep(atomic_ullong *what, uint64_t value)
{
	for (int n = 0; n < 300; n++) {
		*what = value;
		usleep(1000);
	}
}

/* Writes a sample of the first thread that ends beyond all positions in the ring. */
static int wraps(void)
{
	char *own = slot(memory(), 0);

	work(100);
	/* The position before the last one. Its first word claims that 255 more follow. */
	*word(own, FIRST + RING - 16) = ~0ULL;
	*word(own, TAIL) = -2ULL;
	keep(word(own, HEAD), -1ULL);
	return 0;
}

/* Sets the end of the written samples back before the samples that were read. */
static int goes_back(void)
{
	char *own = slot(memory(), 0);

	work(500);
	usleep(100000);
	work(1);
	keep(word(own, HEAD), 2);
	return 0;
}

/* Writes anything to the slots of other threads, as their programs could, but not to its own. */
static int scribbles(void)
{
	char *start = memory();
	uint64_t seed = strtoul(arguments[2], NULL, 0) * 2 + 1;

	for (unsigned long n = 0; n < 300000; n++) {
		int chosen = n % 7 + 1;
		size_t offset;

		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		/* Half of the values go to the first words, which all have a meaning. */
		offset = (seed >> 20) % (seed & 1 ? 512 : SLOT_SIZE) & ~7UL;
		*word(slot(start, chosen), offset) = seed & 2 ? seed : seed >> 56;
		*state(start, chosen) = seed >> 8 & 7;
		*number(start, USED) = chosen + 1;
		if (n % 1000 == 0)
			work(1);
	}
	for (int n = 1; n <= 7; n++)
		*state(start, n) = FREE;
	work(300);
	return 0;
}

static int truncates(void)
{
	const char *path = getenv("EBBPROF");

	if (!path)
		return 2;
	printf("truncate: %s\n", truncate(path, 0) ? strerror(errno) : "done");
	work(400);
	return 0;
}

static void becomes_nobody(void)
{
	if (setgroups(0, NULL) || setgid(65534) || setuid(65534))
		exit(2);
}

/* As user 65534, reports a mapping of the file at arguments[5], with a device and an inode. */
static int names(void)
{
	char *own = slot(memory(), 0);
	unsigned int version = *number(own, MAPS_VERSION) + 2;

	becomes_nobody();
	printf("it opens it itself: %s\n",
	       open(arguments[2], O_RDONLY | O_NONBLOCK) < 0 ? strerror(errno) : "yes");
	(*number(own, MAPS_VERSION))++;
	*number(own, MAPS_LENGTH) = sprintf(own + MAPS, "7000000-7010000 r-xp 00000000 %s %s %s\n",
					    arguments[3], arguments[4], arguments[5]);
	*number(own, MAPS_VERSION) = version;
	changes(number(own, MAPS_READ), version - 2);
	/* Wait until the mapping is processed. */
	usleep(100000);
	return *number(own, MAPS_READ) != version;
}

static int open_event(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_RAW, .size = sizeof(attr), .config = 0x1001e,
		.pinned = 1, .exclude_kernel = 1, .exclude_hv = 1,
	};

	return syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
}

/*
 * Opens an event that stays off the PMU, because another event has its counter. Prints the
 * event's identity and state, waits for a line, and prints the state again.
 */
static int victim(void)
{
	int first = open_event(), second = open_event();
	uint64_t id, count;

	if (first < 0 || second < 0 || ioctl(second, PERF_EVENT_IOC_ID, &id))
		return 2;
	work(1);
	printf("%d %d %llu\n", getpid(), second, (unsigned long long)id);
	printf("%s\n", read(second, &count, sizeof(count)) ? "on" : "off");
	fflush(stdout);
	close(first);
	getchar();
	work(1);
	printf("%s\n", read(second, &count, sizeof(count)) ? "on" : "off");
	return 0;
}

/*
 * As user 65534, reports a thread of another process with a descriptor in it and the ID of its
 * event.
 */
static int claims(void)
{
	char *start = memory(), *other = slot(start, 5);

	becomes_nobody();
	*number(other, PID) = atoi(arguments[2]);
	*number(other, TID) = atoi(arguments[2]);
	*number(other, ORIGIN) = 2;
	*word(other, EVENT) = strtoull(arguments[4], NULL, 0);
	*number(other, DESCRIPTOR) = atoi(arguments[3]) + 1;
	*number(start, USED) = 6;
	*state(start, 5) = LIVE;
	/* ebbprof checks eight times a second. */
	usleep(600000);
	return 0;
}

enum { ATTACKS = 400, ARRAY = 1 << 20 };

/* Returns the ring of this process' first thread, where the library has mapped it. */
static char *own_ring(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long from, to, offset;
	char line[512], *found = NULL;

	while (maps && fgets(line, sizeof(line), maps))
		if (strstr(line, "memfd:ebbprof") &&
		    sscanf(line, "%lx-%lx %*s %lx", &from, &to, &offset) == 3 && offset == FIRST)
			found = (char *)from + FIRST;
	if (!found)
		exit(2);
	fclose(maps);
	return found;
}

/* Tries to make the handler of the first thread write to an array outside of its ring. */
static void attack_array(char *own, char *ring, char *array, int n)
{
	static const uint64_t tails[] = { 0, 1ULL << 63, -1ULL, 5 };

	*word(own, MASK) = -1ULL;
	*word(own, LIMIT) = -1ULL;
	*word(own, TAIL) = tails[n % 4];
	*word(own, HEAD) = (uint64_t)(array + ARRAY / 2 - ring) / 8;
}

/* Tries to make the handler follow any back chain, and write more than fits into its ring. */
static void attack_stack(char *own)
{
	*word(own, STACK) = 0;
	*word(own, STACK_SIZE) = -1ULL;
	*word(own, FRAMES) = -1ULL / 4;
}

/* Tries to make the library unmap more than a slot, and read an event name without an end. */
static void attack_head(char *start, int n)
{
	static const uint64_t words[] = { RING / 8, 1ULL << 36, RING / 8, 3, RING / 8, -1ULL };

	*word(start, WORDS) = words[n % 6];
	*word(start, PERIOD) = n & 2 ? 1009 : 1;
	*word(start, MOST_FRAMES) = n & 4 ? 126 : -1ULL / 4;
	*word(start, BRANCHES) = n & 8 ? 0 : n;
	memset(start + EVENT_NAME, 'a', n & 16 ? NAME_SIZE : 0);
	if (!(n & 16))
		memcpy(start + EVENT_NAME, "cycles", sizeof("cycles"));
}

/* Works in a frame whose back chain leads above the stack, to unmapped memory. */
static void work_astray(unsigned long rounds)
{
	__asm__ volatile("stdu 1, -512(1)\n"
			 "\tstd %1, 0(1)\n"
			 "\tmtctr %0\n"
			 "1:\t.rept 9\n\tnop\n\t.endr\n\tbdnz 1b\n"
			 "\taddi 1, 1, 512"
			 : : "r"(rounds), "r"(-1UL << 16) : "ctr", "memory");
}

static void *in_thread(void *unused)
{
	work(400);
	return unused;
}

/*
 * Works as root while its child, which has become user 65534, attacks it in one of three ways.
 * It must not crash, and its memory must not change.
 */
static int is_attacked(void)
{
	char *start = memory(), *ring = own_ring(), way = *arguments[2];
	char *array = mmap(NULL, ARRAY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int changed = 0, status = 0;
	pid_t child = array == MAP_FAILED ? -1 : fork();

	if (child < 0)
		return 2;
	if (!child) {
		becomes_nobody();
		for (int n = 0; n < ATTACKS; n++) {
			if (way == 'a')
				attack_array(slot(start, 0), ring, array, n);
			else if (way == 's')
				attack_stack(slot(start, 0));
			else
				attack_head(start, n);
			usleep(1000);
		}
		_exit(0);
	}
	while (!waitpid(child, &status, WNOHANG)) {
		work_astray(5000);
		if (way == 'h')
			in_a_thread(in_thread);
	}
	for (int n = 0; n < ARRAY; n++)
		changed += array[n] != 0;
	printf("the attack has ended with %d, and %d bytes were changed\n", status, changed);
	return status || changed;
}

static int failing;

/* Replaces the C library's madvise() by one that fails if the test requires it. */
int madvise(void *start, size_t size, int advice)
{
	const int populate_write = 23;

	if (failing && advice == populate_write) {
		errno = failing;
		return -1;
	}
	return syscall(SYS_madvise, start, size, advice);
}

/* The memory of a second thread cannot be populated; the call fails with the given errno. */
static int starves(void)
{
	failing = atoi(arguments[2]);
	in_a_thread(in_thread);
	printf("the thread has ended\n");
	return 0;
}

/* Works until it or its recorder is killed. */
static int endures(void)
{
	while (getppid() != 1)
		work(1000);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(void);
		int count;
	} ways[] = {
		{ "wraps", wraps, 2 }, { "goes_back", goes_back, 2 },
		{ "scribbles", scribbles, 3 }, { "truncates", truncates, 2 },
		{ "names", names, 6 }, { "victim", victim, 2 }, { "claims", claims, 5 },
		{ "starves", starves, 3 }, { "is_attacked", is_attacked, 3 },
		{ "endures", endures, 2 },
	}, *way;

	arguments = argv;
	way = argc > 1 ? find_way(ways, sizeof(ways), sizeof(*ways), argv[1]) : NULL;
	return way && argc == way->count ? way->run() : 2;
}
