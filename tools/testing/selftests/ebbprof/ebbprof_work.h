/* SPDX-License-Identifier: GPL-2.0 */
/* Functions that execute ten instructions for each of so many rounds, and hardly any more. */
#ifndef EBBPROF_WORK_H
#define EBBPROF_WORK_H

#define WORK(name)							\
	void name(unsigned long rounds)					\
	{								\
		__asm__ volatile("mtctr %0\n"				\
				 "1:\t.rept 9\n\tnop\n\t.endr\n\tbdnz 1b" \
				 : : "r"(rounds) : "ctr");		\
	}

void fifth(unsigned long rounds);

#endif
