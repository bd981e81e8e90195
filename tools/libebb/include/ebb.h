/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * libebb: Event Based Branches (EBB) of the POWER performance monitor, for C and C++.
 *
 * When a performance counter overflows, the processor branches to a handler in the
 * program, without the kernel. ebb(7) tells how a program uses them, ebb(3) what each
 * function does.
 *
 * Functions that return int return 0, or -1 with errno set, unless said otherwise;
 * ebb_strerror() then has the reason.
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
 * A handler. It runs between any two instructions of the thread, on its stack: it
 * may do what a signal handler may, and must return.
 */
typedef void (*ebb_handler)(struct ebb_context *context, void *user);

/* Flags of ebb_open(): record branches in the BHRB, and which. */
#define EBB_BHRB_ANY		0x1U	/* all branches */
#define EBB_BHRB_CALLS		0x3U	/* branches that set LR */
#define EBB_BHRB_INDIRECT	0x5U	/* indirect branches; POWER10 and later */
#define EBB_BHRB_CONDITIONAL	0x7U	/* conditional branches; POWER10 and later */

/* Save levels of ebb_start(): what is safe from the handler, and what it can read. */
#define EBB_SAVE_GPRS		0U	/* the handler uses no vector or FP register */
#define EBB_SAVE_ALL_GPRS	1U	/* the same; it can also read r14 to r31 */
#define EBB_SAVE_FULL		2U	/* any function may be the handler */

/* What ebb_state() returns. */
#define EBB_IDLE	0	/* not started */
#define EBB_RUNNING	1	/* EBBs come */
#define EBB_PAUSED	2	/* by ebb_pause() or EBB_STOP; ebb_resume() goes on */
#define EBB_EVICTED	3	/* another event or driver has the PMU; ebb_resume() asks for it */
#define EBB_FOREIGN	4	/* EBBHR is somebody else's; only the thread itself can tell */
#define EBB_GONE	5	/* this is the child of a fork, which has no EBBs */
#define EBB_ENDED	6	/* the thread has ended */

/* How the counters go on after the handler. */
#define EBB_RESTART	0U	/* those that have overflowed are reloaded; the default */
#define EBB_KEEP	1U	/* as the handler left them, see ebb_context_set_counter() */
#define EBB_STOP	2U	/* they stand, and no EBB comes, until ebb_resume() */

/* Whether the kernel offers EBBs on this machine: 1 or 0. */
int ebb_supported(void);

/*
 * Opens the event named by @event for the calling thread, with an EBB every @period
 * counts (0: it only counts, by 31 bits). NULL, with errno, if it is refused.
 *
 * @event is "cycles", "instructions", a code as "0x1001e" or "r1001e", fields of a
 * code as "pmc=1,pmcxsel=0x1e", or a name of the PMU's events/ in sysfs.
 */
struct ebb *ebb_open(const char *event, uint64_t period, unsigned int flags);

/* Opens one more event beside the first, before ebb_start(); returns its number, 1 to 5. */
int ebb_add(struct ebb *ebb, const char *event, uint64_t period);

/* The counter, 1 to 6, of event @event; the first has number 0. */
int ebb_counter(const struct ebb *ebb, unsigned int event);

/*
 * Sets the period of event @event, 1 to 2^63, and by how many counts each may be longer
 * or shorter, by chance. After ebb_start() in the thread itself only, also in the handler.
 */
int ebb_set_period(struct ebb *ebb, unsigned int event, uint64_t period, uint64_t jitter);

/*
 * Installs @handler on the calling thread and lets EBBs come. EBUSY if another pinned event
 * has the PMU: ebb_resume() then asks for it again.
 */
int ebb_start(struct ebb *ebb, ebb_handler handler, void *user, unsigned int save);

/*
 * Reads the counter of event @event, in the thread itself, after ebb_start(). It overflows at
 * 0x80000000; that of an event without a period begins at 0. EBUSY if it is not there: the session
 * is paused, or another pinned event has the PMU; ENODEV if another driver.
 */
int ebb_read(const struct ebb *ebb, unsigned int event, uint32_t *value);

/* Stops events and EBBs; from any thread. */
int ebb_pause(struct ebb *ebb);

/*
 * Goes on after ebb_pause(), EBB_STOP or an eviction; from any thread. EPERM if only the
 * thread itself can do that, EBUSY if another pinned event has the PMU, ENODEV if another driver.
 */
int ebb_resume(struct ebb *ebb);

/*
 * Turns EBBs off, closes the events and frees @ebb; from any thread. A handler that runs on
 * the session's thread meanwhile may use @ebb and @user until it returns.
 */
void ebb_close(struct ebb *ebb);

/* What it is doing: EBB_IDLE to EBB_ENDED. */
int ebb_state(const struct ebb *ebb);

/* Number of EBBs since ebb_start(), also when the thread has ended. */
uint64_t ebb_count(const struct ebb *ebb);

/* The first event's descriptor, for poll(2): POLLERR once the thread was evicted. */
int ebb_fd(const struct ebb *ebb);

/* Writes why the last call of this thread that failed did so; returns @buffer. */
char *ebb_strerror(char *buffer, size_t size);

/*
 * For a program that handles SIGILL itself: steps over an access of the library to a PMU
 * that is gone; 1 if it was one. @ucontext is the third argument of the signal's handler.
 */
int ebb_step_over(void *ucontext);

/*
 * The interrupted address, at which the program goes on unless it is in a restartable sequence, and
 * another to go on at.
 */
uint64_t ebb_context_address(const struct ebb_context *context);
void ebb_set_resume_address(struct ebb_context *context, uint64_t address);

/*
 * A general purpose register of the program: 1, and *@value is set, or 0 for one that
 * was not saved: r14 to r31 under EBB_SAVE_GPRS.
 */
int ebb_context_gpr(const struct ebb_context *context, unsigned int n, uint64_t *value);

/* Other registers of the program. */
uint64_t ebb_context_lr(const struct ebb_context *context);
uint64_t ebb_context_ctr(const struct ebb_context *context);
uint64_t ebb_context_cr(const struct ebb_context *context);
uint64_t ebb_context_xer(const struct ebb_context *context);
uint64_t ebb_context_tar(const struct ebb_context *context);

/* The sampled instruction's address, SIAR: 1, and *@address is set, or 0 if it is invalid. */
int ebb_context_siar(const struct ebb_context *context, uint64_t *address);

/* The address of an operand, SDAR, in the same way; unless the event marks instructions, any's. */
int ebb_context_sdar(const struct ebb_context *context, uint64_t *address);

/*
 * What is known of it: SIER, SIER2 or SIER3, by @n of 1 to 3: 1, and *@value is set, or 0 for one
 * that this processor lacks; the last two are there from POWER10 on.
 */
int ebb_context_sier(const struct ebb_context *context, unsigned int n, uint64_t *value);

/* The time base. */
uint64_t ebb_context_time_base(const struct ebb_context *context);

/* Number of this EBB since ebb_start(), from 1. */
uint64_t ebb_context_number(const struct ebb_context *context);

/* The value of counter @pmc, 1 to 6, and whether it has overflowed; 0 of any other. */
uint32_t ebb_context_counter(const struct ebb_context *context, unsigned int pmc);
int ebb_context_overflowed(const struct ebb_context *context, unsigned int pmc);

/*
 * Loads a counter, which overflows at 0x80000000. With EBB_KEEP each that has overflowed is to
 * be loaded so: else the next EBB comes at once (POWER8: none comes).
 */
void ebb_context_set_counter(struct ebb_context *context, unsigned int pmc, uint32_t value);

/* The bit of MMCR2 by which counter @pmc, 1 to 6, stands still in programs (FCnP). */
#define EBB_MMCR2_FCP(pmc) \
	(UINT64_C(0x4020100804020000) & (UINT64_C(1) << ((71 - 9 * (pmc)) & 63)))

/* MMCR2, of which a program sets these bits. It stays so until it is changed. */
uint64_t ebb_context_mmcr2(const struct ebb_context *context);
void ebb_context_set_mmcr2(struct ebb_context *context, uint64_t value);

/* A branch of the BHRB. */
struct ebb_branch {
	uint64_t from;	/* its address; 0 if the buffer has only its target */
	uint64_t to;	/* its target, with EBB_BRANCH_TARGET */
	uint64_t flags;
};

#define EBB_BRANCH_TARGET	0x1U	/* the buffer knows the target */
#define EBB_BRANCH_MISPREDICTED	0x2U	/* the processor had predicted it otherwise */

/* Reads up to @count branches, the most recent first; returns how many there are. */
size_t ebb_context_branches(const struct ebb_context *context, struct ebb_branch *branches,
			    size_t count);

/* How the counters go on: EBB_RESTART, as does any other value, EBB_KEEP or EBB_STOP. */
void ebb_rearm(struct ebb_context *context, unsigned int rearm);

#ifdef __cplusplus
}
#endif

#endif
