// SPDX-License-Identifier: GPL-2.0
/* An object that programs load late: of a function with a frame, to which LR leads mostly. */
#include "ebbprof_work.h"

WORK(deep)

void late(unsigned long rounds)
{
	for (unsigned long n = 0; n < rounds; n++)
		deep(1);
}

/* Another one. */
WORK(other)
