/* SPDX-License-Identifier: GPL-2.0 */
/* Handlers for EBB_SAVE_GPRS, compiled without vector and floating-point registers. */
#ifndef _LIBEBB_HANDLERS_H
#define _LIBEBB_HANDLERS_H

#include <ebb.h>

/* What note() finds in the context. */
struct notes {
	uint64_t count;
	uint64_t text, text_end;	/* the program's code: work(), not the libraries */
	uint64_t inside;	/* EBBs that came there */
	uint64_t inside_lr;	/* EBBs with an LR that leads there */
	uint64_t time;
	uint64_t number;
	uint64_t gpr[32];
	uint32_t gprs;		/* a bit for each that was readable */
	uint64_t marked;	/* EBBs with values in r14 and r31 that all_gprs() puts there */
	uint32_t pmc1;
	int overflowed;
	uint64_t branch_count;
	uint64_t branched;	/* EBBs with branches */
	struct ebb_branch branches[32];
	uint64_t move_from;	/* a program that is at this address ... */
	uint64_t move_to;	/* goes on at that */
	uint64_t moved;		/* EBBs in which it did */
	uint64_t rearm_at;	/* in this EBB the handler asks for ... */
	unsigned int rearm;	/* this */
};

void note(struct ebb_context *context, void *user);

/* As a profiler of a virtual machine: addresses into a buffer that is swapped when full. */
#define BUFFER	512
struct profile {
	uint64_t buffers[2][BUFFER];
	unsigned int current;
	unsigned int used;
	uint64_t swaps;
};

void record(struct ebb_context *context, void *user);

/* What is wrong with an EBB. */
enum {
	FOREIGN_UNASKED,	/* it came when none was asked for */
	FOREIGN_PAUSED,		/* it came while the session was paused */
	FOREIGN_NOT_OWN,	/* the session's own counter has not overflowed */
	FOREIGN_OTHER,		/* a counter overflowed that is not the session's */
	FOREIGN_KINDS
};

/* What a process of the stress knows of its EBBs; it has a barrier() wherever it waits for some. */
struct owned {
	unsigned int counter;
	uint64_t wanted;	/* still to come */
	int closed;		/* the session is paused */
	uint64_t foreign[FOREIGN_KINDS];
};

void own_only(struct ebb_context *context, void *user);

#endif
