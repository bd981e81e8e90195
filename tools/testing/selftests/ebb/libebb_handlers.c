// SPDX-License-Identifier: GPL-2.0
/* A handler for EBB_SAVE_GPRS, compiled without vector and floating-point registers. */
#include "libebb_handlers.h"

/* Calls each function for handlers; the first EBB writes MMCR2, the second stops the session. */
void note(struct ebb_context *context, void *user)
{
	struct notes *notes = user;
	uint64_t value;

	if (ebb_context_address(context) != notes->loop)
		return;
	notes->count++;
	notes->number = ebb_context_number(context);
	notes->time = ebb_context_time_base(context);
	notes->gprs = 0;
	for (unsigned int n = 0; n < 32; n++)
		if (ebb_context_gpr(context, n, &notes->gpr[n]))
			notes->gprs |= 1U << n;
	notes->lr = ebb_context_lr(context);
	notes->ctr = ebb_context_ctr(context);
	notes->cr = ebb_context_cr(context);
	notes->xer = ebb_context_xer(context);
	notes->tar = ebb_context_tar(context);
	notes->overflowed = ebb_context_overflowed(context, 1);
	notes->pmc1 = ebb_context_counter(context, 1);
	ebb_context_set_counter(context, 3, 0x1234);
	ebb_context_set_counter(context, 7, 1);
	notes->pmc3 = ebb_context_counter(context, 3);
	notes->none = ebb_context_counter(context, 7);
	notes->mmcr2_last = ebb_context_mmcr2(context);
	if (notes->count == 1) {
		notes->mmcr2_first = notes->mmcr2_last;
		ebb_context_set_mmcr2(context, EBB_MMCR2_FCP(2) | EBB_MMCR2_FCP(6));
	}
	notes->siers = 0;
	for (unsigned int n = 0; n <= 4; n++)
		notes->siers |= ebb_context_sier(context, n, &value) << n;
	notes->addresses = ebb_context_siar(context, &value) + ebb_context_sdar(context, &value);
	notes->branch_count = ebb_context_branches(context, notes->branches, 32);
	ebb_set_resume_address(context, notes->loop_end);
	ebb_rearm(context, notes->count == 1 ? EBB_RESTART : EBB_STOP);
}
