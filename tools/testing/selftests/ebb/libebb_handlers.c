// SPDX-License-Identifier: GPL-2.0
/* Handlers for EBB_SAVE_GPRS, compiled without vector and floating-point registers. */
#include "libebb_handlers.h"

void note(struct ebb_context *context, void *user)
{
	struct notes *notes = user;
	uint64_t address = ebb_context_address(context), lr = ebb_context_lr(context);

	notes->count++;
	notes->inside += address >= notes->text && address < notes->text_end;
	notes->inside_lr += lr >= notes->text && lr < notes->text_end;
	notes->time = ebb_context_time_base(context);
	notes->number = ebb_context_number(context);
	notes->gprs = 0;
	for (unsigned int n = 0; n < 32; n++)
		if (ebb_context_gpr(context, n, &notes->gpr[n]))
			notes->gprs |= 1U << n;
	notes->marked += notes->gpr[14] == 0x14140000 && notes->gpr[31] == 0x31310000;
	notes->pmc1 = ebb_context_counter(context, 1);
	notes->overflowed = ebb_context_overflowed(context, 1);
	notes->branch_count = ebb_context_branches(context, notes->branches, 32);
	notes->branched += notes->branch_count > 0;
	if (notes->move_from && address == notes->move_from) {
		ebb_set_resume_address(context, notes->move_to);
		notes->moved++;
	}
	if (notes->rearm_at == notes->number)
		ebb_rearm(context, notes->rearm);
}

void record(struct ebb_context *context, void *user)
{
	struct profile *profile = user;

	if (profile->used == BUFFER) {
		profile->current ^= 1;
		profile->used = 0;
		profile->swaps++;
	}
	profile->buffers[profile->current][profile->used++] = ebb_context_address(context);
}

void own_only(struct ebb_context *context, void *user)
{
	struct owned *own = user;
	int due = ebb_context_overflowed(context, own->counter);

	for (unsigned int n = 1; n <= 6; n++)
		if (n != own->counter)
			own->foreign[FOREIGN_OTHER] += ebb_context_overflowed(context, n);
	own->foreign[FOREIGN_NOT_OWN] += !due;
	own->foreign[FOREIGN_PAUSED] += own->closed;
	own->foreign[FOREIGN_UNASKED] += !own->wanted;
	if (!own->wanted || (due && !--own->wanted))
		ebb_rearm(context, EBB_STOP);
	else if (!due)
		ebb_rearm(context, EBB_KEEP);
}
