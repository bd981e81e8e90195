// SPDX-License-Identifier: GPL-2.0
/*
 * Calls each function of libebb, and provokes each errno, from a C program; the tests of the crate
 * check what the functions do. Also: a thread that is cancelled, a program that handles SIGILL
 * itself, a program without memory, and two copies of the library in one program (second_* are the
 * functions of the other copy).
 */
#define _GNU_SOURCE
#include <asm/cputable.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "libebb_handlers.h"
#include "libebb_test.h"

struct ebb *second_ebb_open(const char *event, uint64_t period, unsigned int flags);
int second_ebb_start(struct ebb *ebb, ebb_handler handler, void *user, unsigned int save);
uint64_t second_ebb_count(const struct ebb *ebb);
void second_ebb_close(struct ebb *ebb);

static bool is_v31(void)
{
	return getauxval(AT_HWCAP2) & PPC_FEATURE2_ARCH_3_1;
}

/* Starts a session of cycles. */
static struct ebb *started(ebb_handler handler, void *user, unsigned int flags, unsigned int save)
{
	struct ebb *ebb = ebb_open("cycles", PERIOD, flags);

	check(ebb && ebb_state(ebb) == EBB_IDLE && !ebb_start(ebb, handler, user, save));
	check(ebb_state(ebb) == EBB_RUNNING);
	return ebb;
}

/*
 * A loop in which the registers have values that occur nowhere else. It ends at an EBB, or after
 * LOOP_CTR rounds, far more than a period has. An EBB finds the remaining rounds in CTR: a number
 * below the addresses of code, which the entry of the library has in CTR.
 */
#define LOOP_CTR	0x01110000

extern const uint32_t registers_loop[] __attribute__((visibility("hidden")));
extern const uint32_t registers_end[] __attribute__((visibility("hidden")));

static noipa void hold_registers(void)
{
	__asm__ volatile("mflr 10\n\t"
			 "lis 9, %0\n\tmtctr 9\n\t"
			 "lis 9, 0x2222\n\tmtcr 9\n\t"
			 "lis 9, 0x3333\n\tmtlr 9\n\t"
			 "lis 9, 0xa000\n\tmtxer 9\n\t"
			 "lis 9, 0x4444\n\tmtspr 815, 9\n\t"
			 "lis 14, 0x1414\n\t"
			 "lis 31, 0x3131\n"
			 "registers_loop:\n\t"
			 "bdnz registers_loop\n"
			 "registers_end:\n\t"
			 "mtlr 10"
			 : : "i" (LOOP_CTR >> 16)
			 : "r9", "r10", "r14", "r31", "ctr", "lr", "xer", "cr0", "cr1",
			   "cr2", "cr3", "cr4", "cr5", "cr6", "cr7", "memory");
}

/* What a handler reads and writes, at each level of saving. */
static void handlers_functions(void)
{
	static struct notes notes;
	/* If the thread is switched out just before the EBB, the BHRB is empty: repeat that. */
	unsigned int empty = 0;

	for (unsigned int save = EBB_SAVE_GPRS; save <= EBB_SAVE_FULL && !failures; save++) {
		struct ebb *ebb;

		memset(&notes, 0, sizeof(notes));
		notes.loop = (uint64_t)registers_loop;
		notes.loop_end = (uint64_t)registers_end;
		ebb = started(note, &notes, EBB_BHRB_ANY, save);
		hold_registers();
		hold_registers();
		check(notes.count == 2 && notes.number >= 2 && notes.time);
		check(notes.gprs == (save == EBB_SAVE_GPRS ? 0x3fff : 0xffffffff));
		check(notes.gpr[9] == 0x44440000);
		if (save != EBB_SAVE_GPRS)
			check(notes.gpr[14] == 0x14140000 && notes.gpr[31] == 0x31310000);
		check(notes.ctr && notes.ctr <= LOOP_CTR && notes.cr == 0x22220000);
		check(notes.lr == 0x33330000 && notes.tar == 0x44440000);
		check((uint32_t)notes.xer == 0xa0000000);
		check(notes.overflowed && notes.pmc1 >= 0x80000000U);
		check(notes.pmc3 == 0x1234 && !notes.none);
		check(!notes.mmcr2_first);
		check(notes.mmcr2_last == (EBB_MMCR2_FCP(2) | EBB_MMCR2_FCP(6)));
		/* SIER2 and SIER3 exist from POWER10 on. SIAR and SDAR may be invalid. */
		check(notes.siers == (is_v31() ? 0xe : 0x2) && notes.addresses <= 2);
		check(notes.branch_count <= 32);
		check(ebb_state(ebb) == EBB_PAUSED && stands(ebb));
		ebb_close(ebb);
		if (is_v31() && !notes.branch_count && ++empty < 20)
			save--;
	}
	check(empty < 20);
	/* FC1P and FC6P are bits 1 and 46 of 64. */
	check(EBB_MMCR2_FCP(1) == 1UL << 62 && EBB_MMCR2_FCP(6) == 1UL << 17);
	check(!EBB_MMCR2_FCP(0) && !EBB_MMCR2_FCP(7) && !EBB_MMCR2_FCP(8));
}

static void sessions_functions(void)
{
	struct ebb *ebb = ebb_open("cycles", PERIOD, EBB_BHRB_CALLS);
	uint32_t value;

	check(ebb && ebb_state(ebb) == EBB_IDLE && ebb_fd(ebb) >= 0 && ebb_counter(ebb, 0) == 1);
	check(ebb_add(ebb, "pmc=3,pmcxsel=0x1e", 0) == 1 && ebb_counter(ebb, 1) == 3);
	check(!ebb_set_period(ebb, 0, 2 * PERIOD, PERIOD));
	check(!ebb_start(ebb, nothing, NULL, EBB_SAVE_FULL));
	check(ebb_state(ebb) == EBB_RUNNING && goes_on(ebb, 20));
	check(!ebb_read(ebb, 0, &value) && value >= 0x80000000U - 3 * PERIOD);
	check(!ebb_pause(ebb) && ebb_state(ebb) == EBB_PAUSED && stands(ebb));
	check(!ebb_resume(ebb) && ebb_state(ebb) == EBB_RUNNING && goes_on(ebb, 20));
	check(ebb_count(ebb) >= 40);
	ebb_close(ebb);
}

/* Whether a call fails with this errno. Clears errno first, so that an old value does not count. */
#define fails(number, call)	({ errno = 0; (call) == -1 && errno == (number); })

static void refusals(void)
{
	char reason[128];
	uint32_t value;
	struct ebb *ebb;

	check(!ebb_open("no-such-event", PERIOD, 0) && errno == ENOENT);
	check(strstr(ebb_strerror(reason, sizeof(reason)), "no event"));
	check(!ebb_open(NULL, PERIOD, 0) && errno == ENOENT);
	check(!ebb_open("cycles", PERIOD, 8) && errno == EINVAL);
	check(!ebb_open("0x700fa", PERIOD, 0) && errno == EINVAL);
	ebb = ebb_open("cycles", PERIOD, 0);
	check(fails(EINVAL, ebb_start(ebb, NULL, NULL, 0)));
	check(fails(EINVAL, ebb_start(ebb, nothing, NULL, 3)));
	check(fails(EINVAL, ebb_read(ebb, 0, &value)) && fails(EINVAL, ebb_resume(ebb)));
	check(fails(ENOENT, ebb_counter(ebb, 1)));
	check(fails(ENOENT, ebb_set_period(ebb, 1, PERIOD, 0)));
	check(fails(EINVAL, ebb_set_period(ebb, 0, 5, 5)));
	check(!strcmp(ebb_strerror(reason, 5), "a pe"));
	ebb_close(ebb);
	/* By then another session may have this address. */
	check(fails(ESRCH, ebb_pause(ebb)) && fails(ESRCH, ebb_resume(ebb)));
	check(fails(ESRCH, ebb_state(ebb)) && fails(ESRCH, ebb_fd(ebb)) && !ebb_count(ebb));
	ebb_close(ebb);
	check(fails(EINVAL, ebb_pause(NULL)) && fails(EINVAL, ebb_add(NULL, "cycles", 0)));
	ebb_close(NULL);
}

/* Keeps this thread on its CPU, and opens a pinned event of that CPU. */
static int pinned_event(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_RAW, .size = sizeof(attr), .config = 0x1001e, .pinned = 1,
	};
	cpu_set_t here;

	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	sched_setaffinity(0, sizeof(here), &here);
	return syscall(SYS_perf_event_open, &attr, -1, sched_getcpu(), -1, PERF_FLAG_FD_CLOEXEC);
}

static void *resume_elsewhere(void *ebb)
{
	uint32_t value;

	return (void *)(long)(fails(EPERM, ebb_resume(ebb)) &&
			      fails(EPERM, ebb_read(ebb, 0, &value)));
}

static void *start_and_end(void *place)
{
	*(struct ebb **)place = started(nothing, NULL, 0, EBB_SAVE_FULL);
	return NULL;
}

static void states(void)
{
	int status, other = pinned_event();
	struct ebb *ebb = ebb_open("cycles", PERIOD, 0), *second = ebb_open("0x20002", PERIOD, 0);
	unsigned long handler;
	pthread_t thread;
	uint32_t value;
	void *result;
	pid_t child;

	check(fails(EBUSY, ebb_start(ebb, nothing, NULL, EBB_SAVE_FULL)));
	check(ebb_state(ebb) == EBB_EVICTED && fails(EBUSY, ebb_read(ebb, 0, &value)));
	check(fails(EBUSY, ebb_resume(ebb)));
	close(other);
	check(!ebb_resume(ebb) && goes_on(ebb, 20));
	check(fails(EBUSY, ebb_add(ebb, "instructions", 0)));
	check(fails(EBUSY, ebb_start(second, nothing, NULL, EBB_SAVE_FULL)));
	ebb_pause(ebb);
	check(!pthread_create(&thread, NULL, resume_elsewhere, ebb));
	check(!pthread_join(thread, &result) && result);
	__asm__ volatile("mfspr %0, 804" : "=r" (handler));
	__asm__ volatile("mtspr 804, %0" : : "r" (handler + 4));
	check(ebb_state(ebb) == EBB_FOREIGN && fails(EBUSY, ebb_resume(ebb)));
	__asm__ volatile("mtspr 804, %0" : : "r" (handler));
	child = fork();
	if (!child)
		_exit(ebb_state(ebb) != EBB_GONE || !fails(ESRCH, ebb_pause(ebb)));
	check(waitpid(child, &status, 0) == child && !status);
	ebb_close(ebb);
	ebb_close(second);
	check(!pthread_create(&thread, NULL, start_and_end, &ebb) && !pthread_join(thread, NULL));
	check(ebb_state(ebb) == EBB_ENDED && fails(ESRCH, ebb_resume(ebb)));
	ebb_close(ebb);
}

/* No function of the library ends a thread that is to be cancelled: pthread_testcancel() does. */
static void *cancel_and_call(void *through)
{
	struct ebb *ebb;
	uint32_t value;

	pthread_cancel(pthread_self());
	ebb = started(nothing, NULL, 0, EBB_SAVE_FULL);
	check(goes_on(ebb, 20) && !ebb_read(ebb, 0, &value));
	check(!ebb_pause(ebb) && !ebb_resume(ebb));
	ebb_close(ebb);
	*(bool *)through = true;
	pthread_testcancel();
	return NULL;
}

static void cancelled(void)
{
	bool through = false;
	pthread_t thread;
	void *result;

	check(!pthread_create(&thread, NULL, cancel_and_call, &through));
	check(!pthread_join(thread, &result) && result == PTHREAD_CANCELED && through);
}

/* Disables the event in a handler, as if another pinned event had the PMU, and reads a counter. */
static void lose(struct ebb_context *context, void *user)
{
	if (ebb_context_number(context) == 5) {
		ioctl(*(int *)user, PERF_EVENT_IOC_DISABLE, 0);
		ebb_context_counter(context, 1);
	}
}

static void lose_and_resume(void)
{
	struct ebb *ebb = ebb_open("cycles", PERIOD, 0);
	int fd = ebb_fd(ebb);

	check(!ebb_start(ebb, lose, &fd, EBB_SAVE_FULL));
	goes_on(ebb, 10);
	check(ebb_count(ebb) == 5 && ebb_state(ebb) != EBB_RUNNING);
	check(!ebb_resume(ebb) && goes_on(ebb, 20));
	ebb_close(ebb);
}

static int stepped;

static void on_sigill(int signal_number, siginfo_t *info, void *ucontext)
{
	if (info->si_code > 0 && ebb_step_over(ucontext))
		stepped++;
	else
		signal(signal_number, SIG_DFL);
}

/* An access that traps in a handler is stepped over, first by the library, then by the program. */
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

static void *of_the_second(void *session)
{
	struct ebb *ebb = session ? session : second_ebb_open("cycles", PERIOD, 0);

	check(!second_ebb_start(ebb, nothing, NULL, EBB_SAVE_FULL));
	work(50 * PERIOD);
	check(second_ebb_count(ebb) > 10);
	second_ebb_close(ebb);
	return NULL;
}

/* On one thread the second copy's session is refused; on another thread it takes EBBs. */
static void two_copies(void)
{
	struct ebb *ebb = started(nothing, NULL, 0, EBB_SAVE_FULL);
	struct ebb *second = second_ebb_open("cycles", PERIOD, 0);
	pthread_t thread;

	check(second && fails(EBUSY, second_ebb_start(second, nothing, NULL, EBB_SAVE_FULL)));
	check(goes_on(ebb, 20));
	check(!pthread_create(&thread, NULL, of_the_second, NULL));
	check(goes_on(ebb, 20) && !pthread_join(thread, NULL));
	ebb_close(ebb);
	of_the_second(second);
	/* The first copy notices the trap, although the second one handled SIGILL last. */
	lose_and_resume();
}

static void without_memory(void)
{
	char reason[128];
	pid_t child = fork();
	int status;

	if (!child) {
		struct rlimit none = { 0, 0 };
		int sessions = 0;

		failures = 0;
		setrlimit(RLIMIT_AS, &none);
		/* Exhausts each size, as freed memory serves only requests of its own size. */
		for (size_t size = 1 << 20; size >= 16; size = size > 8192 ? size / 2 : size - 16)
			while (malloc(size))
				;
		/* Memory of closed sessions serves new ones. */
		while (sessions < 64 && ebb_open("cycles", PERIOD, 0))
			sessions++;
		check(sessions < 64 && errno == ENOMEM);
		check(strstr(ebb_strerror(reason, sizeof(reason)), "out of memory"));
		_exit(failures != 0);
	}
	check(waitpid(child, &status, 0) == child && !status);
}

/* The example of ebb(7), in the same folder, takes EBBs and prints their number. */
static void example(void)
{
	unsigned long long count = 0, last = 0;
	char path[256], *name;
	FILE *output;
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);

	path[length < 0 ? 0 : length] = 0;
	name = strrchr(path, '/');
	check(name && name + sizeof("/libebb_example") < path + sizeof(path));
	strcpy(name, "/libebb_example");
	output = popen(path, "r");
	check(output && fscanf(output, "%llu EBBs, the last at %llx", &count, &last) == 2);
	check(count > 100 && last > 4096);
	check(output && !pclose(output));
}

int main(void)
{
	static const struct test tests[] = {
		{ "handlers_functions", handlers_functions },
		{ "sessions_functions", sessions_functions },
		{ "refusals", refusals },
		{ "states", states },
		{ "cancelled", cancelled },
		{ "lost_in_handler", lost_in_handler },
		{ "two_copies", two_copies },
		{ "without_memory", without_memory },
		{ "example", example },
	};

	return run_tests(tests, ARRAY_SIZE(tests));
}
