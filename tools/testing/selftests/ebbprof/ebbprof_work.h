/* SPDX-License-Identifier: GPL-2.0 */
/* Functions that the programs to profile share. */
#ifndef EBBPROF_WORK_H
#define EBBPROF_WORK_H

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/*
 * Defines a function that executes ten instructions for each of @rounds rounds, and very few
 * more.
 */
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

/* Executes this number of passes of half(), of 5000 instructions each. */
static void work(unsigned long passes)
{
	for (unsigned long n = 0; n < passes; n++)
		half(500);
}
#endif

/* Runs a function in a new thread until it ends. */
static inline void in_a_thread(void *(*function)(void *))
{
	pthread_t id;

	if (pthread_create(&id, NULL, function, NULL) || pthread_join(id, NULL))
		exit(1);
}

/*
 * Returns the entry with this name in a table of @size bytes, whose entries begin with a name,
 * or NULL.
 */
static inline const void *find_way(const void *ways, size_t size, size_t entry, const char *name)
{
	for (const char *way = ways, *end = way + size; way < end; way += entry)
		if (!strcmp(*(const char *const *)way, name))
			return way;
	return NULL;
}

#endif
