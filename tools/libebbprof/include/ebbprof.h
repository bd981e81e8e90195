/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * libebbprof: has a program profile parts of itself by Event Based Branches (EBB), without
 * a kernel entry for each sample, for C and C++. ebbprof(3) has an example.
 *
 * The samples go to a perf.data file, which ebbprof(1) and perf(1) read. Another process,
 * `ebbprof collect`, writes it: ebbprof is looked for on the PATH.
 *
 * Functions that return int return 0, or -1 with errno set; ebbprof_strerror() then has the
 * reason. They are for any thread, but not for a signal's or an EBB's handler.
 */
#ifndef _EBBPROF_H
#define _EBBPROF_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of ebbprof_start(). */
#define EBBPROF_CALLERS	0x1U	/* take the callers of each sample, too */

/*
 * Begins a recording: @file (NULL: "perf.data") gets a sample of the calling thread every
 * @period counts (0: 100003; 100 at least) of @event (NULL: "cycles"; ebbprof(1) says how
 * events are named), and of all threads and children of fork() that begin from then on.
 */
int ebbprof_start(const char *file, const char *event, uint64_t period, unsigned int flags);

/* Has the calling thread sampled, too: one that was there before ebbprof_start(). */
int ebbprof_sample_thread(void);

/* Takes no samples of this process until ebbprof_resume(). */
int ebbprof_pause(void);
int ebbprof_resume(void);

/* Has the file complete with the samples up to now; the recording goes on. */
int ebbprof_dump(void);

/* Ends the recording; the file is complete. The end of the program does the same. */
int ebbprof_stop(void);

/* Writes why the last call of this thread that failed did so; returns @buffer. */
char *ebbprof_strerror(char *buffer, size_t size);

#ifdef __cplusplus
}
#endif

#endif
