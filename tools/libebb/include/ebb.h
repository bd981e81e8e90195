/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * libebb: Event Based Branches (EBB) of the POWER performance monitor, for C and C++.
 *
 * When a performance counter overflows, the processor branches to a handler in the
 * program, without the kernel. ebb(7) describes how programs use EBBs, and section 3
 * of the manual has a page for each function.
 *
 * Functions that return int return 0 on success, or -1 with errno set, unless noted
 * otherwise; ebb_strerror() then returns the reason.
 */
#ifndef _EBB_H
#define _EBB_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The EBBs of a thread: an event or a group of up to six, and a handler. */
struct ebb;

/* One EBB, as its handler sees it; valid until the handler returns. */
struct ebb_context;

/*
 * A handler. It runs between any two instructions of the thread, on the thread's stack.
 * The rules for signal handlers apply; see ebb(7).
 */
typedef void (*ebb_handler)(struct ebb_context *context, void *user);

/* Flags of ebb_open(): the branches to record in the BHRB. */
#define EBB_BHRB_ANY		0x1U	/* all branches */
#define EBB_BHRB_CALLS		0x3U	/* branches that set LR */
#define EBB_BHRB_INDIRECT	0x5U	/* indirect branches; POWER10 and later */
#define EBB_BHRB_CONDITIONAL	0x7U	/* conditional branches; POWER10 and later */

/* Save levels of ebb_start(): the registers that the library saves for the program. */
#define EBB_SAVE_GPRS		0U	/* the handler uses no vector or FP register */
#define EBB_SAVE_ALL_GPRS	1U	/* as before, and the handler can read r14 to r31 */
#define EBB_SAVE_FULL		2U	/* any function may be the handler */

/* Values of ebb_state(). */
#define EBB_IDLE	0	/* not started */
#define EBB_RUNNING	1	/* EBBs occur */
#define EBB_PAUSED	2	/* by ebb_pause() or EBB_STOP; ebb_resume() continues */
#define EBB_EVICTED	3	/* another event or driver has the PMU; ebb_resume() requests it */
#define EBB_FOREIGN	4	/* other code owns EBBHR; only reported on the thread itself */
#define EBB_GONE	5	/* this is the child of a fork, which has no EBBs */
#define EBB_ENDED	6	/* the thread has ended */

/* Arguments of ebb_rearm(): how the counters continue after the handler. */
#define EBB_RESTART	0U	/* reload those that have overflowed; the default */
#define EBB_KEEP	1U	/* as the handler left them, see ebb_context_set_counter() */
#define EBB_STOP	2U	/* freeze them, with no EBBs until ebb_resume() */

/* Returns 1 if the kernel offers EBBs on this machine, else 0. */
int ebb_supported(void);

/*
 * Opens the event named by @event for the calling thread, with an EBB every @period
 * counts (0: the event only counts, modulo 2^31). Returns NULL with errno set on failure.
 *
 * @event is "cycles", "instructions", a code such as "0x1001e" or "r1001e", fields of a
 * code such as "pmc=1,pmcxsel=0x1e", or a name from the PMU's events/ in sysfs.
 */
struct ebb *ebb_open(const char *event, uint64_t period, unsigned int flags);

/* Adds an event to the session, before ebb_start(). Returns its number, 1 to 5. */
int ebb_add(struct ebb *ebb, const char *event, uint64_t period);

/* Returns the counter, 1 to 6, of event @event; the first event has number 0. */
int ebb_counter(const struct ebb *ebb, unsigned int event);

/*
 * Sets the period of event @event, 1 to 2^63, and by how many counts each period may be
 * longer or shorter at random. After ebb_start() only the thread itself may call this, also
 * in the handler.
 */
int ebb_set_period(struct ebb *ebb, unsigned int event, uint64_t period, uint64_t jitter);

/*
 * Installs @handler on the calling thread and turns EBBs on. Fails with EBUSY if another
 * pinned event has the PMU; ebb_resume() then requests it again.
 */
int ebb_start(struct ebb *ebb, ebb_handler handler, void *user, unsigned int save);

/*
 * Reads the counter of event @event, in the thread itself, after ebb_start(). It overflows at
 * 0x80000000; that of an event without a period begins at 0. Fails with EBUSY if the session is
 * paused or another pinned event has the PMU, and with ENODEV if another driver has it.
 */
int ebb_read(const struct ebb *ebb, unsigned int event, uint32_t *value);

/* Stops events and EBBs. Any thread may call this. */
int ebb_pause(struct ebb *ebb);

/*
 * Continues after ebb_pause(), EBB_STOP or an eviction. Any thread may call this. Fails with
 * EPERM if only the thread itself can continue, with EBUSY if another pinned event has the PMU,
 * and with ENODEV if another driver has it.
 */
int ebb_resume(struct ebb *ebb);

/*
 * Turns EBBs off, closes the events and frees @ebb. Any thread may call this. A handler that
 * runs on the session's thread at that time may use @ebb and @user until it returns.
 */
void ebb_close(struct ebb *ebb);

/* Returns the session's state: EBB_IDLE to EBB_ENDED. */
int ebb_state(const struct ebb *ebb);

/* Returns the number of EBBs since ebb_start(), also after the thread has ended. */
uint64_t ebb_count(const struct ebb *ebb);

/* Returns the first event's descriptor, for poll(2): POLLERR once the thread was evicted. */
int ebb_fd(const struct ebb *ebb);

/* Writes the reason why this thread's last failed call failed to @buffer, and returns @buffer. */
char *ebb_strerror(char *buffer, size_t size);

/*
 * For a program that handles SIGILL itself: skips the instruction at @ucontext if it is an
 * access of the library to a PMU that the thread has lost. Returns 1 if it was one, else 0.
 * @ucontext is the third argument of the signal handler.
 */
int ebb_step_over(void *ucontext);

/*
 * ebb_context_address() returns the interrupted address. The program continues there, unless
 * the EBB aborted a restartable sequence or ebb_set_resume_address() sets another address.
 */
uint64_t ebb_context_address(const struct ebb_context *context);
void ebb_set_resume_address(struct ebb_context *context, uint64_t address);

/*
 * Stores general purpose register @n of the program in *@value and returns 1. Returns 0 if it
 * was not saved: r14 to r31 under EBB_SAVE_GPRS.
 */
int ebb_context_gpr(const struct ebb_context *context, unsigned int n, uint64_t *value);

/* Return other registers of the program. */
uint64_t ebb_context_lr(const struct ebb_context *context);
uint64_t ebb_context_ctr(const struct ebb_context *context);
uint64_t ebb_context_cr(const struct ebb_context *context);
uint64_t ebb_context_xer(const struct ebb_context *context);
uint64_t ebb_context_tar(const struct ebb_context *context);

/* Stores the sampled instruction's address, SIAR, and returns 1; returns 0 if it is invalid. */
int ebb_context_siar(const struct ebb_context *context, uint64_t *address);

/*
 * Does the same for the operand's address, SDAR. It belongs to the sampled instruction only if
 * the event marks instructions.
 */
int ebb_context_sdar(const struct ebb_context *context, uint64_t *address);

/*
 * Stores attributes of the sampled instruction in *@value and returns 1: SIER, SIER2 or SIER3,
 * for @n of 1 to 3. Returns 0 if this processor lacks the register; only POWER10 and later have
 * the last two.
 */
int ebb_context_sier(const struct ebb_context *context, unsigned int n, uint64_t *value);

/* Returns the time base. */
uint64_t ebb_context_time_base(const struct ebb_context *context);

/* Returns the number of this EBB since ebb_start(), from 1. */
uint64_t ebb_context_number(const struct ebb_context *context);

/* Return the value of counter @pmc, 1 to 6, and whether it has overflowed; 0 for any other. */
uint32_t ebb_context_counter(const struct ebb_context *context, unsigned int pmc);
int ebb_context_overflowed(const struct ebb_context *context, unsigned int pmc);

/*
 * Loads a counter, which overflows at 0x80000000. With EBB_KEEP, load each counter that has
 * overflowed: otherwise the next EBB occurs at once (on POWER8: none occurs).
 */
void ebb_context_set_counter(struct ebb_context *context, unsigned int pmc, uint32_t value);

/* The bit of MMCR2 that freezes counter @pmc, 1 to 6, in problem state (FCnP). */
#define EBB_MMCR2_FCP(pmc) \
	(UINT64_C(0x4020100804020000) & (UINT64_C(1) << ((71 - 9 * (pmc)) & 63)))

/* Read and write MMCR2, of which a program can set these bits. It keeps the value. */
uint64_t ebb_context_mmcr2(const struct ebb_context *context);
void ebb_context_set_mmcr2(struct ebb_context *context, uint64_t value);

/* A branch recorded in the BHRB. */
struct ebb_branch {
	uint64_t from;	/* address of the branch; 0 if the buffer has only its target */
	uint64_t to;	/* target of the branch, if EBB_BRANCH_TARGET is set */
	uint64_t flags;
};

#define EBB_BRANCH_TARGET	0x1U	/* the buffer has the target */
#define EBB_BRANCH_MISPREDICTED	0x2U	/* the processor mispredicted the branch */

/* Reads up to @count branches, the most recent first. Returns their number. */
size_t ebb_context_branches(const struct ebb_context *context, struct ebb_branch *branches,
			    size_t count);

/* Sets how the counters continue: EBB_KEEP, EBB_STOP, or EBB_RESTART for any other value. */
void ebb_rearm(struct ebb_context *context, unsigned int rearm);

#ifdef __cplusplus
}
#endif

#endif
