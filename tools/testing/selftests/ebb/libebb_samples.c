// SPDX-License-Identifier: GPL-2.0
/* Reads the sampled instruction with libebb: SIAR, SDAR, SIER, SIER2 and SIER3. */
#define _GNU_SOURCE
#include <asm/cputable.h>
#include <asm/ptrace.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>

#include "libebb_test.h"

#define SIARV	0x400000UL	/* SIER: SIAR is valid */
#define SDARV	0x200000UL	/* SIER: SDAR is valid */
#define OTHERS	0x5a5aUL	/* other bits of SIER */
#define SE	1UL		/* MMCRA: marked instructions are sampled */
#define MMCRA_USER	0x3ff80000UL	/* the bits of MMCRA that a program sees */

/* Values that a processor with samples could have in the registers; QEMU has zeroes there. */
static const struct sample {
	uint64_t mmcra, siar, sdar, sier, sier2, sier3;
} samples[] = {
	{ SE, 0x1234000, 0x5678000, SIARV | SDARV | OTHERS, 0x2222, 0x3333 },
	{ SE | 4, 0x1234004, 0x5678008, SIARV, 0x2222000, 0x3333000 },
	{ SE, 0x1234008, 0x5678010, SDARV | OTHERS, 0, 1UL << 63 },
	{ SE, 0x123400c, 0x5678018, OTHERS, 1UL << 63, 0 },
	/* For unmarked instructions SIER does not indicate whether the addresses are valid. */
	{ 0, 0x1234010, 0x5678020, OTHERS, 5, 6 },
	{ 4, 0x1234014, 0, SIARV | SDARV, 7, 8 },
	{ 0, 0, 0x5678028, SIARV, 9, 10 },
};

static const struct sample *sample;

/* Instructions of the library that read these registers, each replaced by an illegal one. */
static struct replaced {
	uint32_t *place, instruction;
} replaced[16];
static unsigned int replaced_count;

#define MFSPR	0x7c0002a6U

/* Returns the register that an mfspr reads. */
static unsigned int spr_of(uint32_t instruction)
{
	return (instruction >> 16 & 31) | (instruction >> 6 & 0x3e0);
}

static bool is_of_a_sample(unsigned int spr)
{
	return spr == 736 || spr == 737 || spr == 768 || spr == 770 || spr == 780 || spr == 781;
}

/* Replaces those instructions of a function. */
static void replace(const void *function)
{
	const long page = sysconf(_SC_PAGESIZE);
	uint32_t *place = (uint32_t *)function;
	char *start = (char *)((unsigned long)place & -page);

	check(!mprotect(start, 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC));
	for (; *place != 0x4e800020U /* blr */; place++) {
		if ((*place & 0xfc0007ffU) != MFSPR || !is_of_a_sample(spr_of(*place)))
			continue;
		if (replaced_count == ARRAY_SIZE(replaced))
			abort();
		replaced[replaced_count++] = (struct replaced){ place, *place };
		*place = 0;
		__builtin___clear_cache((char *)place, (char *)(place + 1));
	}
}

/* Executes a replaced instruction with the values of @sample. */
static void emulate(int number, siginfo_t *info, void *ucontext)
{
	struct pt_regs *regs = ((ucontext_t *)ucontext)->uc_mcontext.regs;
	struct replaced *found = NULL;
	uint64_t value = 0;

	(void)number;
	(void)info;
	for (unsigned int i = 0; i < replaced_count; i++)
		if ((unsigned long)replaced[i].place == regs->nip)
			found = &replaced[i];
	if (!found)
		abort();
	switch (spr_of(found->instruction)) {
	case 768:
		value = sample->sier;
		break;
	case 770:
		value = sample->mmcra & MMCRA_USER;
		break;
	case 780:
		value = sample->siar;
		break;
	case 781:
		value = sample->sdar;
		break;
	case 736:
		value = sample->sier2;
		break;
	case 737:
		value = sample->sier3;
		break;
	}
	regs->gpr[found->instruction >> 21 & 31] = value;
	regs->nip += 4;
}

/* Registers that a handler reads; all ones for a register that it cannot read. */
struct seen {
	struct sample sample;
	int others;		/* how many SIERs with an invalid number it can read */
};

static void see(struct ebb_context *context, void *user)
{
	struct seen *seen = user;
	uint64_t value;

	memset(&seen->sample, 0xff, sizeof(seen->sample));
	seen->others = ebb_context_sier(context, 0, &value) + ebb_context_sier(context, 4, &value);
	if (ebb_context_siar(context, &value))
		seen->sample.siar = value;
	if (ebb_context_sdar(context, &value))
		seen->sample.sdar = value;
	if (ebb_context_sier(context, 1, &value))
		seen->sample.sier = value;
	if (ebb_context_sier(context, 2, &value))
		seen->sample.sier2 = value;
	if (ebb_context_sier(context, 3, &value))
		seen->sample.sier3 = value;
}

static bool is_v31(void)
{
	return getauxval(AT_HWCAP2) & PPC_FEATURE2_ARCH_3_1;
}

/* Returns the address that a handler must see. */
static uint64_t known(uint64_t address, uint64_t valid)
{
	return address && (!(sample->mmcra & SE) || sample->sier & valid) ? address : ~0UL;
}

static void see_samples(void)
{
	struct sigaction action = { .sa_sigaction = emulate, .sa_flags = SA_SIGINFO | SA_NODEFER };
	static struct seen seen;
	/*
	 * Makes the library install its handler of SIGILL. The period is too long for an EBB, which
	 * would execute the instructions that are to be replaced.
	 */
	struct ebb *ebb = ebb_open("cycles", 1 << 30, 0);

	check(!ebb_start(ebb, see, &seen, EBB_SAVE_FULL));
	ebb_close(ebb);
	/* Replaces the library's handler, which stays replaced when the next session starts. */
	sigaction(SIGILL, &action, NULL);
	replace(ebb_context_siar);
	replace(ebb_context_sdar);
	replace(ebb_context_sier);
	for (size_t i = 0; i < ARRAY_SIZE(samples); i++) {
		sample = &samples[i];
		/* Cycles, or cycles of marked instructions, which QEMU counts as cycles. */
		ebb = ebb_open(sample->mmcra & SE ? "0x1011e" : "0x1001e", PERIOD, 0);
		check(ebb && !ebb_start(ebb, see, &seen, EBB_SAVE_FULL));
		check(goes_on(ebb, 5) && !ebb_pause(ebb));
		check(seen.sample.sier == sample->sier);
		check(seen.sample.sier2 == (is_v31() ? sample->sier2 : ~0UL));
		check(seen.sample.sier3 == (is_v31() ? sample->sier3 : ~0UL));
		check(seen.sample.siar == known(sample->siar, SIARV));
		check(seen.sample.sdar == known(sample->sdar, SDARV));
		ebb_close(ebb);
	}
}

/*
 * The child replaces instructions that it has not executed before: with pages of 64 KiB, QEMU
 * continues to use its translations of the old ones, as it discards only those of the first 4 KiB.
 */
static void sampled_instruction(void)
{
	struct ebb *ebb = ebb_open("cycles", PERIOD, 0);
	static struct seen seen;
	int status;
	pid_t child;

	check(!ebb_start(ebb, see, &seen, EBB_SAVE_FULL) && goes_on(ebb, 5));
	check(!seen.others && seen.sample.sier != ~0UL);
	/* Where SIER2 does not exist a read would trap, and look like a loss of the PMU. */
	check((seen.sample.sier2 != ~0UL) == is_v31() && (seen.sample.sier3 != ~0UL) == is_v31());
	check(ebb_state(ebb) == EBB_RUNNING);
	ebb_close(ebb);
	child = fork();
	if (!child) {
		failures = 0;
		see_samples();
		_exit(failures != 0);
	}
	check(waitpid(child, &status, 0) == child && !status);
}

int main(void)
{
	static const struct test tests[] = {
		{ "sampled_instruction", sampled_instruction },
	};

	return run_tests(tests, ARRAY_SIZE(tests));
}
