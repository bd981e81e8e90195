// SPDX-License-Identifier: GPL-2.0
/*
 * Programs that do unusual things to their files, stacks and memory, which a recorder must survive,
 * or that print how they were started.
 *
 * usage: ebbprof_runs WAY [ARGUMENT]...
 *
 * WAY is one of the names in `ways` in main().
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define WITH_HALF
#include "ebbprof_work.h"

static char **arguments;

WORK(leaf)

/* Has a frame. Most of the time, LR holds an address in this function. */
void outer(unsigned long rounds)
{
	for (unsigned long n = 0; n < rounds; n++)
		leaf(1);
}

static const char *action_of(int number)
{
	struct sigaction action;

	if (sigaction(number, NULL, &action))
		exit(1);
	if (action.sa_handler == SIG_IGN)
		return "ignored";
	return action.sa_handler == SIG_DFL ? "default" : "handled";
}

/* Prints the state with which the program begins. */
static int begins(void)
{
	printf("%s: SIGPIPE %s, SIGCHLD %s, SIGINT %s\n", arguments[0], action_of(SIGPIPE),
	       action_of(SIGCHLD), action_of(SIGINT));
	return 0;
}

/* Runs a command with the given signals ignored, which some shells cannot do. */
static int ignores(void)
{
	char **argument = arguments + 2;

	for (; *argument && isdigit(**argument); argument++)
		signal(atoi(*argument), SIG_IGN);
	execvp(*argument, argument);
	return 1;
}

static atomic_int signals;

static void on_signal(int number)
{
	signals++;
	(void)number;
}

/* Works until a signal arrives, and counts signals for a while. */
static int interrupted(void)
{
	int number = atoi(arguments[2]);
	struct sigaction action = { .sa_handler = on_signal };

	if (sigaction(number, &action, NULL))
		return 1;
	while (!signals)
		work(10);
	work(1000);
	printf("%d signals\n", signals);
	return 3;
}

static unsigned long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

typedef void (*work_fn)(unsigned long rounds);

/* Works in a function of an object for this number of milliseconds. */
static void works_in(void *handle, const char *name, unsigned long milliseconds)
{
	unsigned long long end = now() + milliseconds * 1000000;
	work_fn function = (work_fn)dlsym(handle, name);

	if (!function)
		exit(1);
	while (now() < end)
		function(300);
}

static void *loaded(const char *path)
{
	void *handle = dlopen(path, RTLD_NOW);

	if (!handle) {
		puts(dlerror());
		exit(1);
	}
	return handle;
}

/* Loads two objects, one soon after the other. */
static int loads(void)
{
	void *first = loaded(arguments[2]), *second;

	works_in(first, "late", 20);
	second = loaded(arguments[3]);
	works_in(first, "late", 40);
	works_in(second, "late", 60);
	return 0;
}

static void *loads_last(void *unused)
{
	/* Wait until the recorder has noticed that the first thread has ended. */
	usleep(300000);
	works_in(loaded(arguments[2]), "other", 40);
	return unused;
}

/* The first thread ends before another one loads an object. */
static int orphans(void)
{
	pthread_t id;

	if (pthread_create(&id, NULL, loads_last, NULL))
		return 1;
	pthread_exit(NULL);
}

static void waits(int number)
{
	usleep(300000);
	(void)number;
}

/* Works and ends while the recorder is stopped. */
static void *works_unseen(void *unused)
{
	pid_t recorder = getppid();

	kill(recorder, SIGSTOP);
	if (!fork()) {
		usleep(100000);
		_exit(kill(recorder, SIGCONT));
	}
	outer(100000);
	/* Unlike exit(), this does not make the library report the mappings again. */
	_exit(!!unused);
}

/*
 * The first thread ends before the last one is recorded. The last thread waits in a handler
 * until then.
 */
static int hands_over(void)
{
	pthread_attr_t attr;
	sigset_t set;
	pthread_t id;

	signal(SIGUSR1, waits);
	sigemptyset(&set);
	pthread_attr_init(&attr);
	pthread_attr_setsigmask_np(&attr, &set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	kill(getpid(), SIGUSR1);
	if (pthread_create(&id, &attr, works_unseen, NULL))
		return 1;
	pthread_exit(NULL);
}

/* The recorder reads samples in an object whose file is truncated in the meantime. */
static int truncates(void)
{
	void *handle = loaded(arguments[2]);

	works_in(handle, "late", 30);
	kill(getppid(), SIGSTOP);
	works_in(handle, "other", 2);
	/* This waits a tenth of a second for the recorder. */
	dlclose(handle);
	if (truncate(arguments[2], 0))
		return 1;
	kill(getppid(), SIGCONT);
	work(400);
	return 0;
}

static void overwrites_file(const char *path, const char *from)
{
	int in = open(from, O_RDONLY), out = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0755);
	struct stat data;

	if (in < 0 || out < 0 || fstat(in, &data) ||
	    sendfile(out, in, NULL, data.st_size) != data.st_size)
		exit(1);
	close(in);
	close(out);
}

/*
 * Runs FILE twice, with the contents of one program and of another. Each runs long enough for
 * the recorder to notice it. In a folder of root, nothing else proves that the program may read
 * the file.
 */
static int rebuilds(void)
{
	for (int n = 3; n <= 4; n++) {
		int status;

		overwrites_file(arguments[2], arguments[n]);
		if (!fork()) {
			/* ebbprof_calls would trace itself if it had two arguments. */
			execl(arguments[2], arguments[2], n == 3 ? "plain" : "200000",
			      n == 3 ? "2000" : NULL, NULL);
			_exit(1);
		}
		if (wait(&status) < 0 || status)
			return 1;
	}
	return 0;
}

static ucontext_t main_context, other_context;

static void coroutine(void)
{
	outer(100000);
}

/* Works on a stack that the program has allocated. */
static int coroutines(void)
{
	const size_t size = 1 << 20;

	getcontext(&other_context);
	other_context.uc_stack.ss_sp = malloc(size);
	other_context.uc_stack.ss_size = size;
	other_context.uc_link = &main_context;
	makecontext(&other_context, coroutine, 0);
	return swapcontext(&main_context, &other_context);
}

void handles(int number)
{
	outer(300);
	/* This prevents a tail call. */
	__asm__ volatile("" : : "r"(number));
}

void raises(unsigned long rounds)
{
	for (unsigned long n = 0; n < rounds; n++) {
		leaf(1);
		raise(SIGUSR1);
	}
}

/* A handler runs on the stack of the interrupted code. */
static int handlers(void)
{
	struct sigaction action = { .sa_handler = handles };

	sigaction(SIGUSR1, &action, NULL);
	raises(500);
	return 0;
}

/* Returns the memory that ebbprof shares with this program, or NULL. */
static char *shared(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512], *found = NULL;
	unsigned long start;

	while (maps && !found && fgets(line, sizeof(line), maps))
		if (strstr(line, "/memfd:ebbprof") && strstr(line, " rw-s 00000000 ") &&
		    sscanf(line, "%lx", &start) == 1)
			found = (char *)start;
	fclose(maps);
	return found;
}

/* Offsets in the memory: the number of used slots, and the states of the slots. */
enum { USED = 212, STATES = 228, TAKEN = 1 };
/*
 * Offset of the first slot, size of a slot with the smallest ring, and offset of the process and
 * thread IDs in a slot.
 */
enum { FIRST = 64 << 10, SLOT = 128 << 10, IDS = 140 };

/* A thread was killed before it had filled in its slot. */
static int abandons(void)
{
	const int number = 5;
	char *memory = shared();
	pid_t child = fork();
	unsigned int ids[2] = { child, child };
	atomic_uint *states;
	int file;

	if (!child)
		_exit(0);
	waitpid(child, NULL, 0);
	if (!memory)
		return 0;
	file = open(getenv("EBBPROF"), O_RDWR);
	if (file < 0 || pwrite(file, ids, sizeof(ids), FIRST + number * SLOT + IDS) != sizeof(ids))
		return 1;
	states = (atomic_uint *)(memory + STATES);
	atomic_store(&states[number], TAKEN);
	atomic_store((atomic_uint *)(memory + USED), number + 1);
	usleep(600000);
	printf("the slot is %s\n", atomic_load(&states[number]) ? "taken" : "free");
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(void);
	} ways[] = {
		{ "begins", begins }, { "ignores", ignores }, { "interrupted", interrupted },
		{ "loads", loads }, { "truncates", truncates }, { "rebuilds", rebuilds },
		{ "coroutines", coroutines }, { "handlers", handlers },
		{ "abandons", abandons }, { "orphans", orphans }, { "hands_over", hands_over },
	}, *way;

	arguments = argv;
	way = argc > 1 ? find_way(ways, sizeof(ways), sizeof(*ways), argv[1]) : NULL;
	return way ? way->run() : 2;
}
