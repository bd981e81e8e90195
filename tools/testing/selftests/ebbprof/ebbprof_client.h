/* SPDX-License-Identifier: GPL-2.0 */
/* File name, work and checks of the programs that profile parts of themselves. */
#ifndef EBBPROF_CLIENT_H
#define EBBPROF_CLIENT_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ebbprof.h>

#define WITH_HALF
#include "ebbprof_work.h"

static const char *file;
static unsigned long passes;

WORK(three_tenths)

static void do_half(void)
{
	work(passes);
}

/* Exits with a message if a call has failed. */
static void must(int status, const char *what)
{
	char reason[256];

	if (!status)
		return;
	printf("%s: %s: %s\n", what, strerror(errno), ebbprof_strerror(reason, sizeof(reason)));
	exit(1);
}

/* Exits unless the call has failed with the error `wanted`. */
static inline void refused(const char *what, int status, int wanted)
{
	char reason[256];

	if (status != -1 || errno != wanted) {
		printf("%s: %d, %s\n", what, status, strerror(errno));
		exit(1);
	}
	printf("%s: %s\n", what, ebbprof_strerror(reason, sizeof(reason)));
}

#endif
