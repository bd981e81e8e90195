// SPDX-License-Identifier: GPL-2.0
/*
 * Event Based Branches of a C program that uses <linux/ebb_pmu.h> and no library. Uses each
 * constant of the header for its purpose.
 */
#define _GNU_SOURCE
#include <asm/cputable.h>
#include <kselftest.h>
#include <linux/ebb_pmu.h>
#include <linux/perf_event.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#define CYCLES		0x1001eULL	/* PM_CYC on PMC1 */
#define PERIOD		10000
#define OVERFLOW	0x80000000UL
#define EBBS		1000

#define __stringify_1(x)	#x
#define __stringify(x)	__stringify_1(x)
#define barrier()	({ __asm__ volatile("" : : : "memory"); })

#define mfspr(name)	({ \
	unsigned long value; \
	__asm__ volatile("mfspr %0, " __stringify(name) : "=r" (value) : : "memory"); \
	value; \
})
#define mtspr(name, new)	({ \
	unsigned long value = (unsigned long)(new); \
	__asm__ volatile("mtspr " __stringify(name) ", %0" : : "r" (value) : "memory"); \
})

/* Data that the handler below counts, reads and writes, at the offsets that it uses. */
struct {
	unsigned long count;	/* 0 */
	unsigned long bescr;	/* 8: at the last EBB */
	unsigned long pmc1;	/* 16 */
	unsigned long reload;	/* 24: for PMC1 */
	unsigned long enable;	/* 32: for BESCR; rfebb 1 adds GE */
	unsigned long resume;	/* 40: for MMCR0 */
	unsigned long freeze;	/* 48: for MMCR0 before BESCR: clears PMAO */
} ebb = {
	.reload = OVERFLOW - PERIOD,
	.enable = EBB_PMU_BESCR_PME,
	.resume = EBB_PMU_MMCR0_PMAE,
	.freeze = EBB_PMU_MMCR0_FC,
};

void ebb_entry(void);

/*
 * An EBB may come between any two instructions: the handler saves the registers that it changes,
 * below the 512 bytes under r1 that belong to the program. It takes its own address from EBBHR, as
 * r2 may have any value.
 */
__asm__("	.text\n"
"	.balign	128\n"
"	.globl	ebb_entry\n"
"	.type	ebb_entry, @function\n"
"ebb_entry:\n"
"	stdu	1, -576(1)\n"
"	std	3, 32(1)\n"
"	std	4, 40(1)\n"
"	mfspr	4, " __stringify(EBB_PMU_SPR_EBBHR) "\n"
"	addis	4, 4, (ebb - ebb_entry)@ha\n"
"	addi	4, 4, (ebb - ebb_entry)@l\n"
"	ld	3, 0(4)\n"
"	addi	3, 3, 1\n"
"	std	3, 0(4)\n"
"	mfspr	3, " __stringify(EBB_PMU_SPR_BESCR) "\n"
"	std	3, 8(4)\n"
"	mfspr	3, " __stringify(EBB_PMU_SPR_PMC1) "\n"
"	std	3, 16(4)\n"
"	ld	3, 24(4)\n"
"	mtspr	" __stringify(EBB_PMU_SPR_PMC1) ", 3\n"
"	ld	3, 48(4)\n"
"	mtspr	" __stringify(EBB_PMU_SPR_MMCR0) ", 3\n"
"	ld	3, 32(4)\n"
"	mtspr	" __stringify(EBB_PMU_SPR_BESCR) ", 3\n"
"	ld	3, 40(4)\n"
"	mtspr	" __stringify(EBB_PMU_SPR_MMCR0) ", 3\n"
"	ld	3, 32(1)\n"
"	ld	4, 40(1)\n"
"	addi	1, 1, 576\n"
"	rfebb	1\n"
"	.size	ebb_entry, . - ebb_entry\n");

static int failures;
/* Why the current test cannot run here, or NULL. */
static const char *skip;

static void check_at(int line, bool holds, const char *what)
{
	if (!holds) {
		ksft_print_msg("line %d: %s\n", line, what);
		failures++;
	}
}

#define check(condition)	check_at(__LINE__, condition, #condition)

/* Opens an EBB event on this thread and puts it on the PMU. */
static int open_event(unsigned long long config)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_RAW,
		.size = sizeof(attr),
		.config = EBB_PMU_CONFIG_EBB | config,
		.disabled = 1,
		.pinned = 1,
		.exclusive = 1,
		.exclude_kernel = 1,
		.exclude_hv = 1,
	};
	unsigned long long count;
	int fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd >= 0 && !ioctl(fd, PERF_EVENT_IOC_ENABLE, 0) &&
	    read(fd, &count, sizeof(count)) == sizeof(count))
		return fd;
	ksft_exit_fail_perror("no EBB event");
}

/* Works until there were n EBBs, or for ten times as long as the whole test takes. */
static void wait_for(unsigned long n)
{
	for (unsigned long i = 0; i < 10 * EBBS * PERIOD && ebb.count < n; i++)
		barrier();
}

static void takes_ebbs(void)
{
	int fd = open_event(CYCLES);
	unsigned long count;

	mtspr(EBB_PMU_SPR_MMCR0, EBB_PMU_MMCR0_FC);
	mtspr(EBB_PMU_SPR_PMC1, ebb.reload);
	mtspr(EBB_PMU_SPR_EBBHR, ebb_entry);
	mtspr(EBB_PMU_SPR_BESCR, EBB_PMU_BESCR_GE | EBB_PMU_BESCR_PME);
	mtspr(EBB_PMU_SPR_MMCR0, EBB_PMU_MMCR0_PMAE);
	wait_for(EBBS);
	mtspr(EBB_PMU_SPR_MMCR0, EBB_PMU_MMCR0_FC);
	count = ebb.count;
	check(count >= EBBS);
	check((ebb.bescr & EBB_PMU_BESCR_PMEO) && !(ebb.bescr & EBB_PMU_BESCR_GE));
	check(ebb.pmc1 >= OVERFLOW && ebb.pmc1 < OVERFLOW + PERIOD);

	/* No EBB comes while the counters are frozen, and one for an alert of the program's own. */
	for (int i = 0; i < 10 * PERIOD; i++)
		barrier();
	check(ebb.count == count);
	ebb.resume = EBB_PMU_MMCR0_FC;
	mtspr(EBB_PMU_SPR_PMC1, OVERFLOW);
	mtspr(EBB_PMU_SPR_MMCR0, EBB_PMU_MMCR0_FC | EBB_PMU_MMCR0_PMAO);
	wait_for(count + 1);
	check(ebb.count == count + 1);
	check(mfspr(EBB_PMU_SPR_BESCR) == (EBB_PMU_BESCR_GE | EBB_PMU_BESCR_PME));
	mtspr(EBB_PMU_SPR_BESCR, 0);
	close(fd);
}

/* Does not check BESCRS and BESCRR, which QEMU ignores. */
static void registers(void)
{
	int fd = open_event(CYCLES);

	check(mfspr(EBB_PMU_SPR_MMCR0) == EBB_PMU_MMCR0_PMAE);
	mtspr(EBB_PMU_SPR_MMCR0, EBB_PMU_MMCR0_FC);
	mtspr(EBB_PMU_SPR_MMCR2, EBB_PMU_MMCR2_USER);
	check(mfspr(EBB_PMU_SPR_MMCR2) == EBB_PMU_MMCR2_USER);
	mtspr(EBB_PMU_SPR_PMC1, 0x1234);
	check(mfspr(EBB_PMU_SPR_PMC1) == 0x1234);
	/* MMCR1[PMC1SEL] is the selector of the event's code. */
	check((mfspr(EBB_PMU_SPR_MMCR1) >> 24 & 0xff) == (CYCLES & 0xff));
	/* A new event has sampled nothing. */
	check(!(mfspr(EBB_PMU_SPR_SIAR) | mfspr(EBB_PMU_SPR_SDAR) | mfspr(EBB_PMU_SPR_SIER)));
	if (getauxval(AT_HWCAP2) & PPC_FEATURE2_ARCH_3_1)
		check(!(mfspr(EBB_PMU_SPR_SIER2) | mfspr(EBB_PMU_SPR_SIER3) |
			mfspr(EBB_PMU_SPR_MMCR3)));
	close(fd);

	/* The registers of the EBB facility need no event. */
	mtspr(EBB_PMU_SPR_EBBRR, 0x1000);
	check(mfspr(EBB_PMU_SPR_EBBRR) == 0x1000);
	mtspr(EBB_PMU_SPR_TAR, 0x2000);
	check(mfspr(EBB_PMU_SPR_TAR) == 0x2000);
}

/*
 * The filter of the BHRB is MMCRA[IFM], bits 32 and 33. QEMU shows a program all of MMCRA. By the
 * ISA a program sees only the threshold counter, and IFM reads as 0.
 */
static void branch_filters(void)
{
	static const unsigned long long filters[] = {
		EBB_PMU_IFM_ANY, EBB_PMU_IFM_CALL, EBB_PMU_IFM_IND, EBB_PMU_IFM_COND,
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(filters); i++) {
		int fd = open_event(CYCLES | EBB_PMU_CONFIG_BHRB |
				    filters[i] << EBB_PMU_CONFIG_IFM_SHIFT);
		unsigned long mmcra = mfspr(EBB_PMU_SPR_MMCRA);

		if (filters[i] && !(mmcra & ~EBB_PMU_MMCRA_USER))
			skip = "MMCRA shows only the threshold counter";
		else
			check((mmcra >> 30 & 3) == filters[i]);
		close(fd);
	}
}

int main(void)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} tests[] = {
		{ "takes_ebbs", takes_ebbs },
		{ "registers", registers },
		{ "branch_filters", branch_filters },
	};

	ksft_print_header();
	if (!(getauxval(AT_HWCAP2) & PPC_FEATURE2_EBB))
		ksft_exit_skip("the kernel offers no EBB on this machine\n");
	ksft_set_plan(ARRAY_SIZE(tests));
	for (unsigned int i = 0; i < ARRAY_SIZE(tests); i++) {
		failures = 0;
		skip = NULL;
		tests[i].run();
		if (skip && !failures)
			ksft_test_result_skip("%s: %s\n", tests[i].name, skip);
		else
			ksft_test_result(!failures, "%s\n", tests[i].name);
	}
	ksft_finished();
}
