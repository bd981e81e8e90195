/* SPDX-License-Identifier: GPL-2.0 */
/* A handler for EBB_SAVE_GPRS, compiled without vector and floating-point registers. */
#ifndef _LIBEBB_HANDLERS_H
#define _LIBEBB_HANDLERS_H

#include <ebb.h>

/* Results of note(), which is called in a loop of the program. */
struct notes {
	uint64_t loop, loop_end;	/* an EBB at the first address continues at the second */
	uint64_t count;
	uint64_t number, time;
	uint64_t gpr[32];
	uint32_t gprs;			/* a bit for each readable register */
	uint64_t lr, ctr, cr, xer, tar;
	int overflowed;
	uint32_t pmc1, pmc3, none;
	uint64_t mmcr2_first, mmcr2_last;
	int siers;			/* a bit for each number of a readable SIER */
	int addresses;			/* how many of SIAR and SDAR are valid */
	uint64_t branch_count;
	struct ebb_branch branches[32];
};

void note(struct ebb_context *context, void *user);

#endif
