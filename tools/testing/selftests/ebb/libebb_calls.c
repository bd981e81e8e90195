// SPDX-License-Identifier: GPL-2.0
/* Each function of libebb does what ebb.h says, for a C program. */
#define _GNU_SOURCE
#include <asm/cputable.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libebb_handlers.h"
#include "libebb_test.h"

/* Of the program, or of the shared object that this is in. */
extern char __ehdr_start __attribute__((visibility("hidden")));
extern char etext __attribute__((visibility("hidden")));

static struct notes notes;

/* A session of cycles that runs note(). */
static struct ebb *started(unsigned int flags, unsigned int save)
{
	struct ebb *ebb = ebb_open("cycles", PERIOD, flags);

	memset(&notes, 0, sizeof(notes));
	notes.text = (uint64_t)&__ehdr_start;
	notes.text_end = (uint64_t)&etext;
	check(ebb && ebb_state(ebb) == EBB_IDLE);
	check(!ebb_start(ebb, note, &notes, save));
	check(ebb_state(ebb) == EBB_RUNNING);
	return ebb;
}

static void context(void)
{
	struct ebb *ebb = started(0, EBB_SAVE_GPRS);
	uint64_t first, thread_pointer, stack_pointer = (uint64_t)__builtin_frame_address(0);

	check(goes_on(ebb, 1));
	first = notes.time;
	check(goes_on(ebb, 100));
	ebb_pause(ebb);
	check(notes.count == ebb_count(ebb) && notes.number == notes.count);
	/* The loop of work(); the others come in the libraries, where the kernel was called. */
	check(notes.inside > 50 && notes.inside_lr > 50);
	check(notes.time > first);
	check(notes.overflowed && notes.pmc1 >= 0x80000000U);
	check(notes.gprs == 0x3fff);
	__asm__("mr %0, 13" : "=r" (thread_pointer));
	check(notes.gpr[13] == thread_pointer);
	check(notes.gpr[1] <= stack_pointer && notes.gpr[1] + 4096 > stack_pointer);
	ebb_close(ebb);
}

/* r14 to r31 hold what the program has there. */
static void all_gprs(void)
{
	struct ebb *ebb = started(0, EBB_SAVE_ALL_GPRS);
	uint64_t target = ebb_count(ebb) + 20;

	for (int i = 0; i < 1000 && ebb_count(ebb) < target; i++) {
		__asm__ volatile("lis 14, 0x1414\n\t"
				 "lis 31, 0x3131\n\t"
				 "mtctr %0\n\t"
				 "1: bdnz 1b" : : "r" (20000UL) : "r14", "r31", "ctr");
	}
	ebb_pause(ebb);
	check(ebb_count(ebb) >= target);
	check(notes.gprs == 0xffffffff);
	/* Most EBBs come in the loop, but those of the kernel's work anywhere. */
	check(notes.marked >= 10);
	ebb_close(ebb);
}

void moved_loop(void);
extern char moved_from[], moved_to[];
__asm__("	.text\n"
"	.balign	16\n"
"	.globl	moved_loop, moved_from, moved_to\n"
"	.type	moved_loop, @function\n"
"moved_loop:\n"
"moved_from:\n"
"	b	moved_from\n"
"moved_to:\n"
"	blr\n"
"	.size	moved_loop, . - moved_loop\n");

/* A loop without an end is left by the address at which the program goes on. */
static void resume_address(void)
{
	struct ebb *ebb = started(0, EBB_SAVE_GPRS);

	notes.move_to = (uint64_t)moved_to;
	notes.move_from = (uint64_t)moved_from;
	barrier();
	moved_loop();
	check(notes.moved == 1);
	notes.move_from = 0;
	check(goes_on(ebb, 10));
	ebb_close(ebb);
}

static void branches(void)
{
	struct ebb *ebb = started(EBB_BHRB_ANY, EBB_SAVE_GPRS);
	unsigned long with_address = 0, own = 0;

	check(goes_on(ebb, 20));
	ebb_pause(ebb);
	check(notes.branch_count <= 32);
	for (uint64_t i = 0; i < notes.branch_count; i++) {
		with_address += notes.branches[i].from || notes.branches[i].to;
		/* Those by which the handler calls the library, before it reads the buffer. */
		own += notes.branches[i].from - (uint64_t)note < 1024;
	}
	check(with_address == notes.branch_count && !own);
	if (getauxval(AT_HWCAP2) & PPC_FEATURE2_ARCH_3_1)
		check(notes.branched >= 10);
	ebb_close(ebb);
}

static void group(void)
{
	struct ebb *ebb = ebb_open("cycles", PERIOD, 0);
	char reason[128];

	memset(&notes, 0, sizeof(notes));
	check(ebb_counter(ebb, 0) == 1);
	check(ebb_add(ebb, "instructions", 0) == 1 && ebb_counter(ebb, 1) == 2);
	check(ebb_add(ebb, "0x20002", 0) == -1 && errno == EINVAL);
	check(ebb_add(ebb, "pmc=3,pmcxsel=0x1e", 0) == 2 && ebb_counter(ebb, 2) == 3);
	check(ebb_counter(ebb, 3) == -1 && errno == ENOENT);
	check(strstr(ebb_strerror(reason, sizeof(reason)), "no event of this number"));
	check(!ebb_set_period(ebb, 0, 5000, 1000));
	check(!ebb_start(ebb, note, &notes, EBB_SAVE_GPRS));
	check(goes_on(ebb, 100));
	check(!ebb_set_period(ebb, 0, 1ULL << 40, 0));
	goes_on(ebb, 1);
	check(stands(ebb));
	ebb_close(ebb);
}

static long pause_it(struct ebb *ebb)
{
	return ebb_pause(ebb);
}

static long resume_it(struct ebb *ebb)
{
	return ebb_resume(ebb) ? errno : 0;
}

static long close_it(struct ebb *ebb)
{
	ebb_close(ebb);
	return 0;
}

struct errand {
	long (*function)(struct ebb *ebb);
	struct ebb *ebb;
	bool created;
	long result;
};

static void *do_errand(void *argument)
{
	struct errand *errand = argument;

	while (!__atomic_load_n(&errand->created, __ATOMIC_ACQUIRE))
		sched_yield();
	errand->result = errand->function(errand->ebb);
	return NULL;
}

/*
 * What @function returns on a thread of its own, once this one is out of pthread_create(): that
 * blocks SIGILL, and an EBB that finds the PMU gone would end the process there.
 */
static long elsewhere(long (*function)(struct ebb *ebb), struct ebb *ebb)
{
	struct errand errand = { .function = function, .ebb = ebb, .result = -1 };
	pthread_t thread;

	check(!pthread_create(&thread, NULL, do_errand, &errand));
	__atomic_store_n(&errand.created, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	return errand.result;
}

static void pause_and_resume(void)
{
	struct ebb *ebb = started(0, EBB_SAVE_GPRS);

	for (int i = 0; i < 5; i++) {
		long status;

		check(!ebb_pause(ebb) && ebb_state(ebb) == EBB_PAUSED && stands(ebb));
		check(elsewhere(resume_it, ebb) == EPERM);
		check(!ebb_resume(ebb) && ebb_state(ebb) == EBB_RUNNING && goes_on(ebb, 10));
		check(!elsewhere(pause_it, ebb) && ebb_state(ebb) == EBB_PAUSED && stands(ebb));
		status = elsewhere(resume_it, ebb);
		check(!status || (status == EPERM && !ebb_resume(ebb)));
		check(goes_on(ebb, 10));
	}
	notes.rearm = EBB_STOP;
	notes.rearm_at = ebb_count(ebb) + 5;
	goes_on(ebb, 10);
	check(ebb_state(ebb) == EBB_PAUSED && ebb_count(ebb) == notes.rearm_at && stands(ebb));
	check(!ebb_resume(ebb) && goes_on(ebb, 10));
	check(!elsewhere(close_it, ebb));
	work(5 * PERIOD);
}

static void refusals(void)
{
	char reason[128];
	struct ebb *ebb;

	ebb = ebb_open("cpu-cycles", PERIOD, 0);
	check(ebb && (ebb_counter(ebb, 0) == 1 || ebb_counter(ebb, 0) == 6));
	ebb_close(ebb);
	check(!ebb_open("no-such-event", PERIOD, 0) && errno == ENOENT);
	check(strstr(ebb_strerror(reason, sizeof(reason)), "no event"));
	check(!ebb_open(NULL, PERIOD, 0) && errno == ENOENT);
	check(!ebb_open("cycles", PERIOD, 8) && errno == EINVAL);
	check(!ebb_open("0x700fa", PERIOD, 0) && errno == EINVAL);
	ebb = ebb_open("cycles", PERIOD, 0);
	check(ebb_start(ebb, NULL, NULL, 0) == -1 && errno == EINVAL);
	check(ebb_start(ebb, note, &notes, 3) == -1 && errno == EINVAL);
	check(ebb_resume(ebb) == -1 && errno == EINVAL);
	check(ebb_set_period(ebb, 0, 5, 5) == -1 && errno == EINVAL);
	check(!strcmp(ebb_strerror(reason, 5), "a pe"));
	ebb_close(ebb);
	ebb_close(NULL);
}

static void states(void)
{
	struct ebb *own, *ebb = started(0, EBB_SAVE_GPRS);
	struct pollfd fd = { .fd = ebb_fd(ebb), .events = POLLIN };
	unsigned long handler;
	int status;
	pid_t child;

	check(!poll(&fd, 1, 0));
	child = fork();
	if (!child) {
		failures = 0;
		check(ebb_state(ebb) == EBB_GONE);
		check(ebb_pause(ebb) == -1 && errno == ESRCH);
		own = started(0, EBB_SAVE_GPRS);
		check(goes_on(own, 10));
		ebb_close(ebb);
		check(goes_on(own, 10));
		_exit(failures != 0);
	}
	check(waitpid(child, &status, 0) == child && !status);
	check(goes_on(ebb, 10));
	ebb_pause(ebb);
	__asm__ volatile("mfspr %0, 804" : "=r" (handler));
	__asm__ volatile("mtspr 804, %0" : : "r" (handler + 4));
	check(ebb_state(ebb) == EBB_FOREIGN);
	check(ebb_resume(ebb) == -1 && errno == EBUSY);
	__asm__ volatile("mtspr 804, %0" : : "r" (handler));
	check(!ebb_resume(ebb) && goes_on(ebb, 10));
	ebb_close(ebb);
}

static sigjmp_buf way_out;

static void jump(int signal)
{
	siglongjmp(way_out, signal ? 2 : 1);
}

/* Leaves the handler by a jump, or has a signal's handler do so. */
static void leave(struct ebb_context *context, void *user)
{
	if (ebb_context_number(context) != 5)
		return;
	if (user)
		raise(SIGUSR1);
	else
		jump(0);
}

/* EBBs come back on after a jump out of the handler, or out of a signal on top of it. */
static void jumps(void)
{
	struct sigaction action = { .sa_handler = jump }, before;
	static struct ebb *ebb;
	static int jumped, way;

	sigaction(SIGUSR1, &action, &before);
	for (way = 1; way <= 2; way++) {
		ebb = ebb_open("cycles", PERIOD, 0);
		check(ebb && !ebb_start(ebb, leave, way == 2 ? &action : NULL, EBB_SAVE_FULL));
		jumped = sigsetjmp(way_out, 1);
		if (!jumped)
			work(100 * PERIOD);
		check(jumped == way && ebb_count(ebb) == 5);
		check(ebb_state(ebb) == EBB_PAUSED && stands(ebb));
		check(!ebb_resume(ebb) && goes_on(ebb, 20));
		ebb_close(ebb);
	}
	sigaction(SIGUSR1, &before, NULL);
}

struct lost {
	int fd;
	uint32_t value;
};

/* Loses the PMU in the middle, as to another pinned event, and reads it. */
static void lose(struct ebb_context *context, void *user)
{
	struct lost *lost = user;

	if (ebb_context_number(context) == 5) {
		ioctl(lost->fd, PERF_EVENT_IOC_DISABLE, 0);
		lost->value = ebb_context_counter(context, 1);
	}
}

static int stepped;

static void on_sigill(int signal_number, siginfo_t *info, void *ucontext)
{
	if (info->si_code > 0 && ebb_step_over(ucontext))
		stepped++;
	else
		signal(signal_number, SIG_DFL);
}

static void lose_and_resume(void)
{
	struct lost lost = { .value = ~0U };
	struct ebb *ebb = ebb_open("cycles", PERIOD, 0);

	lost.fd = ebb_fd(ebb);
	check(!ebb_start(ebb, lose, &lost, EBB_SAVE_FULL));
	goes_on(ebb, 10);
	check(ebb_count(ebb) == 5 && ebb_state(ebb) != EBB_RUNNING);
	/* Before, the PMU is still readable. */
	if (getauxval(AT_HWCAP2) & PPC_FEATURE2_ARCH_3_1)
		check(!lost.value);
	check(!ebb_resume(ebb) && goes_on(ebb, 20));
	ebb_close(ebb);
}

/* An access that traps in a handler is stepped over, by the library or the program. */
static void lost_in_handler(void)
{
	struct sigaction action = { .sa_sigaction = on_sigill }, before;

	lose_and_resume();
	action.sa_flags = SA_SIGINFO | SA_NODEFER;
	sigaction(SIGILL, &action, &before);
	stepped = 0;
	lose_and_resume();
	check(stepped > 0);
	sigaction(SIGILL, &before, NULL);
}

int main(void)
{
	static const struct test tests[] = {
		{ "context", context },
		{ "all_gprs", all_gprs },
		{ "resume_address", resume_address },
		{ "branches", branches },
		{ "group", group },
		{ "pause_and_resume", pause_and_resume },
		{ "refusals", refusals },
		{ "states", states },
		{ "jumps", jumps },
		{ "lost_in_handler", lost_in_handler },
	};

	return run_tests(tests, ARRAY_SIZE(tests));
}
