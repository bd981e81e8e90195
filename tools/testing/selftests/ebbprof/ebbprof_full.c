// SPDX-License-Identifier: GPL-2.0
/*
 * Programs that record themselves: one whose file has no room for a while, and one that executes
 * another program while its child continues.
 *
 * usage: ebbprof_full dump FILE FILLER PASSES
 *        ebbprof_full exec FILE
 */
#include <ebbprof.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WITH_HALF
#include "ebbprof_work.h"

#define PERIOD 1009

/* There is no room for the sections after the records at first, and there is some later. */
static int without_room(const char *filler, unsigned long passes)
{
	int status;

	work(passes);
	/* Wait until the samples are written. */
	ebbprof_pause();
	usleep(100000);
	status = ebbprof_dump();
	printf("dump: %d, %s\n", status, status ? strerror(errno) : "");
	unlink(filler);
	ebbprof_resume();
	work(passes);
	status = ebbprof_stop();
	printf("stop: %d, %s\n", status, status ? strerror(errno) : "");
	return status != 0;
}

int main(int argc, char **argv)
{
	if (argc < 3 || ebbprof_start(argv[2], "cycles", PERIOD, 0))
		return 2;
	if (!strcmp(argv[1], "dump") && argc == 5)
		return without_room(argv[3], strtoul(argv[4], NULL, 0));
	work(400);
	if (!fork()) {
		/* The child has the socket to the process that writes the file. */
		sleep(30);
		_exit(0);
	}
	execlp("sleep", "sleep", "30", NULL);
	return 2;
}
