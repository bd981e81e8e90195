/* SPDX-License-Identifier: GPL-2.0 */
/* What the programs share that ebbprof profiles. */
#ifndef EBBPROF_WORK_H
#define EBBPROF_WORK_H

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* A function that executes ten instructions for each of so many rounds, and hardly any more. */
#define WORK(name)							\
	void name(unsigned long rounds)					\
	{								\
		__asm__ volatile("mtctr %0\n"				\
				 "1:\t.rept 9\n\tnop\n\t.endr\n\tbdnz 1b" \
				 : : "r"(rounds) : "ctr");		\
	}

void fifth(unsigned long rounds);

#ifdef WITH_HALF
WORK(half)

/* So many passes of half(), of 5000 instructions each. */
static void work(unsigned long passes)
{
	for (unsigned long n = 0; n < passes; n++)
		half(500);
}
#endif

/* Calls a function in a thread of its own, to its end. */
static inline void in_a_thread(void *(*function)(void *))
{
	pthread_t id;

	if (pthread_create(&id, NULL, function, NULL) || pthread_join(id, NULL))
		exit(1);
}

/* Of a table of so many bytes, whose entries begin with a name, the one with this name; or NULL. */
static inline const void *find_way(const void *ways, size_t size, size_t entry, const char *name)
{
	for (const char *way = ways, *end = way + size; way < end; way += entry)
		if (!strcmp(*(const char *const *)way, name))
			return way;
	return NULL;
}

#endif
