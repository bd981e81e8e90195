// SPDX-License-Identifier: GPL-2.0
/*
 * ebb_stress by libebb: many processes with EBBs of their own, each of which knows how many it
 * must get and checks in its handler that each one is its own.
 *
 *	libebb_stress [--processes N] [--rounds N] [--seed N] [--instructions] [--lossy]
 *
 * Options, output and exit status are those of ebb_stress, ways to pass the time nearly so.
 */
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libebb_handlers.h"
#include "libebb_test.h"

/* Steps with work alone, and the time, after which an EBB is taken for lost. */
#define PATIENCE	5000
#define PATIENCE_MS	500

enum way {
	WORK, CALLS, YIELD, SLEEP, PAUSE, PAUSE_YIELD, STREAM, MIGRATE, DISABLE, PRCTL, SIGNAL,
	FORK, MORTAL, REOPEN, WAYS
};

static const char *const names[WAYS] = {
	"Work", "Calls", "Yield", "Sleep", "Pause", "PauseYield", "Stream", "Migrate", "Disable",
	"Prctl", "Signal", "Fork", "Mortal", "Reopen"
};

static const char *const codes[2][5] = {
	{ "0x1001e", "0x2001e", "0x3001e", "0x4001e", "0x600f4" },
	{ "0x10002", "0x20002", "0x30002", "0x40002", "0x500fa" },
};

/* What a process counts, in memory that it shares with its parent. */
struct counts {
	uint64_t rounds[WAYS];
	uint64_t ebbs[WAYS];
	uint64_t late[WAYS];	/* rounds that were over only when the way was given up */
	uint64_t lost[WAYS];
	uint64_t foreign[FOREIGN_KINDS];
};

static unsigned long processes = 64, rounds = 100, seed = 1;
static bool instructions, lossy;

/* Of this process. */
static unsigned long number, random_state;
static int ready[2];		/* a byte for each that has its session, or has failed */
static struct owned own;
static struct ebb *ebb;

static unsigned long below(unsigned long n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (random_state >> 16) % n;
}

/* 64 to 32767, short ones as often as long ones. */
static unsigned long any_period(void)
{
	unsigned long least = 64UL << below(9);

	return least + below(least);
}

static unsigned long milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000UL + now.tv_nsec / 1000000;
}

/* Ends a process in which something went wrong. */
static void must_at(int line, bool holds, const char *what)
{
	char reason[128];

	if (holds)
		return;
	printf("process %lu, line %d: %s (errno %d, reason: %s), state %d, wanted %lu, foreign",
	       number, line, what, errno, ebb_strerror(reason, sizeof(reason)), ebb_state(ebb),
	       own.wanted);
	for (int i = 0; i < FOREIGN_KINDS; i++)
		printf(" %lu", own.foreign[i]);
	printf("\n");
	if (write(ready[1], "", 1) == 1)
		_exit(1);
	abort();
}

#define must(condition)	must_at(__LINE__, condition, #condition)

/* Works until all EBBs came that are wanted, or they can be taken for lost. */
static void wait_for_ebbs(unsigned long time)
{
	unsigned long begin = milliseconds();

	do {
		for (int i = 0; i < PATIENCE && own.wanted; i++)
			work(1000);
	} while (own.wanted && milliseconds() - begin < time);
}

/* Asks for so many EBBs, and lets the counter run from the period before its overflow. */
static void arm(unsigned long n, unsigned long period)
{
	own.wanted = n;
	must(!ebb_set_period(ebb, 0, period, 0));
	must(!ebb_resume(ebb));
}

/* Opens the session and has it stand still, as it does after a round. */
static void open_session(void)
{
	const char *code = codes[instructions][number % 5];
	unsigned int branches = 0;

	if (number % 8 >= 6)
		branches = number % 8 == 6 ? EBB_BHRB_ANY : EBB_BHRB_CALLS;
	ebb = ebb_open(code, 1000, branches);
	must(ebb);
	own.counter = ebb_counter(ebb, 0);
	own.wanted = 1;
	must(!ebb_start(ebb, own_only, &own, number % 3));
	wait_for_ebbs(PATIENCE_MS);
	must(!own.wanted || lossy);
}

static void reopen(void)
{
	ebb_close(ebb);
	own.wanted = 0;
	open_session();
}

/* A process that ends about when an EBB of its own is due. */
static void mortal(void)
{
	unsigned long period = any_period(), rest = below(4);

	open_session();
	arm(1, period);
	work(period * rest / 2);
	if (rest % 2)
		ebb_close(ebb);
	for (int i = 0; i < FOREIGN_KINDS; i++)
		must(!own.foreign[i]);
	_exit(0);
}

/* Has a child do so, and waits for its end. */
static void in_child(void (*body)(void))
{
	int status = 0;
	pid_t child = fork();

	must(child >= 0);
	if (!child) {
		if (body)
			body();
		_exit(0);
	}
	must(waitpid(child, &status, 0) == child && !status);
}

/* One step of passing the time. */
static void step(enum way way)
{
	static const struct timespec moment = { .tv_nsec = 20000 };
	cpu_set_t cpus;

	switch (way) {
	case CALLS:
		for (int i = 0; i < 5; i++)
			getppid();
		break;
	case YIELD:
		sched_yield();
		break;
	case SLEEP:
		nanosleep(&moment, NULL);
		break;
	case PAUSE:
	case PAUSE_YIELD:
		must(!ebb_pause(ebb));
		own.closed = true;
		work(300);
		if (way == PAUSE_YIELD)
			sched_yield();
		own.closed = false;
		/* Else it has stopped at its last EBB, and resuming would have it count again. */
		if (own.wanted)
			must(!ebb_resume(ebb));
		break;
	case MIGRATE:
		CPU_ZERO(&cpus);
		CPU_SET(below(sysconf(_SC_NPROCESSORS_CONF)), &cpus);
		/* It goes on as before if the CPU is away. */
		sched_setaffinity(0, sizeof(cpus), &cpus);
		break;
	case DISABLE:
		must(!ioctl(ebb_fd(ebb), PERF_EVENT_IOC_DISABLE, 0));
		must(!ioctl(ebb_fd(ebb), PERF_EVENT_IOC_ENABLE, 0));
		break;
	case PRCTL:
		must(!prctl(PR_TASK_PERF_EVENTS_DISABLE, 0, 0, 0, 0));
		must(!prctl(PR_TASK_PERF_EVENTS_ENABLE, 0, 0, 0, 0));
		break;
	case SIGNAL:
		raise(SIGUSR1);
		break;
	case FORK:
		in_child(NULL);
		break;
	case MORTAL:
		in_child(mortal);
		break;
	default:
		break;
	}
}

static void one_round(struct counts *counts)
{
	enum way way = below(WAYS);
	unsigned long asked = way == STREAM ? 50 : 1, period = any_period();
	unsigned long steps = way == FORK || way == MORTAL ? 20 : 300;
	cpu_set_t cpus;

	steps += asked * (period / 500 + 2);
	arm(asked, period);
	if (way == REOPEN) {
		work(below(2 * period) + 1);
		counts->ebbs[way] += 1 - own.wanted;
		ebb_close(ebb);
		own.wanted = 0;
		/* From here on an EBB would be one too many. */
		work(1000);
		open_session();
	} else {
		for (; own.wanted && steps; steps--) {
			step(way);
			work(1000);
		}
		if (way == MIGRATE) {
			memset(&cpus, 0xff, sizeof(cpus));
			sched_setaffinity(0, sizeof(cpus), &cpus);
		}
		if (own.wanted) {
			counts->late[way]++;
			wait_for_ebbs(lossy ? 0 : PATIENCE_MS);
		}
		counts->ebbs[way] += asked - own.wanted;
		counts->lost[way] += own.wanted;
	}
	for (int i = 0; i < FOREIGN_KINDS; i++) {
		counts->foreign[i] = own.foreign[i];
		must_at(__LINE__, !own.foreign[i], names[way]);
	}
	must_at(__LINE__, !own.wanted || lossy, names[way]);
	if (own.wanted)
		reopen();
	counts->rounds[way]++;
}

static void nothing(int signal)
{
	(void)signal;
}

static void process(struct counts *counts, int start)
{
	char byte = 0;

	random_state = (seed * 0x9e3779b97f4a7c15) ^ ((number + 1) << 32) ^ 1;
	for (int i = 0; i < 8; i++)
		below(1);
	signal(SIGUSR1, nothing);
	open_session();
	must(write(ready[1], &byte, 1) == 1 && !read(start, &byte, 1));
	for (unsigned long i = 0; i < rounds; i++)
		one_round(counts);
	ebb_close(ebb);
	_exit(0);
}

static bool print_counts(const struct counts *counts)
{
	uint64_t sums[4] = { 0 }, foreign = 0;

	for (unsigned int way = 0; way < WAYS; way++) {
		uint64_t n[4] = { 0 };

		for (unsigned long i = 0; i < processes; i++) {
			n[0] += counts[i].rounds[way];
			n[1] += counts[i].ebbs[way];
			n[2] += counts[i].late[way];
			n[3] += counts[i].lost[way];
		}
		if (n[0])
			printf("%-11s rounds %lu ebbs %lu late %lu lost %lu\n", names[way],
			       n[0], n[1], n[2], n[3]);
		for (int i = 0; i < 4; i++)
			sums[i] += n[i];
	}
	for (unsigned long i = 0; i < processes; i++)
		for (int kind = 0; kind < FOREIGN_KINDS; kind++)
			foreign += counts[i].foreign[kind];
	printf("total: processes %lu rounds %lu ebbs %lu late %lu lost %lu foreign %lu\n",
	       processes, sums[0], sums[1], sums[2], sums[3], foreign);
	return !foreign && 4 * sums[1] >= sums[0];
}

/* Waits for the processes; false if one has failed. One that hangs ends with the guest's time. */
static bool watch(void)
{
	bool sound = true;

	for (unsigned long i = 0; i < processes; i++) {
		int status;

		sound &= wait(&status) > 0 && !status;
	}
	return sound;
}

static void parse(char **argv)
{
	for (argv++; *argv; argv++) {
		static const char *const numbers[] = { "--processes", "--rounds", "--seed" };
		unsigned long *const values[] = { &processes, &rounds, &seed };
		unsigned int i = 0;

		instructions |= !strcmp(*argv, "--instructions");
		lossy |= !strcmp(*argv, "--lossy");
		if (!strcmp(*argv, "--instructions") || !strcmp(*argv, "--lossy"))
			continue;
		while (i < ARRAY_SIZE(numbers) && strcmp(*argv, numbers[i]))
			i++;
		if (i == ARRAY_SIZE(numbers) || !argv[1]) {
			fprintf(stderr, "%s: the options are those of ebb_stress\n", *argv);
			exit(2);
		}
		*values[i] = strtoul(*++argv, NULL, 10);
	}
}

int main(int argc, char **argv)
{
	struct counts *counts;
	struct ebb *held;
	int start[2];
	bool sound;
	char byte;

	(void)argc;
	parse(argv);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!ebb_supported()) {
		printf("the kernel offers no EBB on this machine\n");
		return 4;
	}
	counts = mmap(NULL, processes * sizeof(*counts) + 1, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	/* Held all the time, so that the module cannot go. */
	held = ebb_open("cycles", 0, 0);
	must(counts != MAP_FAILED && held && !pipe(ready) && !pipe(start));
	for (number = 0; number < processes; number++) {
		pid_t child = fork();

		must(child >= 0);
		if (!child) {
			close(start[1]);
			process(&counts[number], start[0]);
		}
	}
	for (unsigned long i = 0; i < processes; i++)
		must(read(ready[0], &byte, 1) == 1);
	printf("ready\n");
	close(start[1]);
	sound = watch();
	sound &= print_counts(counts);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	ebb_close(held);
	return !sound;
}
