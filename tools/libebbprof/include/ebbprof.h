/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * libebbprof: lets a C or C++ program profile parts of itself with Event Based Branches
 * (EBB), without entering the kernel for each sample. ebbprof(3) has an example.
 *
 * The samples go to a perf.data file, which ebbprof(1) and perf(1) read. Another process,
 * `ebbprof collect`, writes it; ebbprof must be on the PATH.
 *
 * Functions that return int return 0 on success, or -1 with errno set; ebbprof_strerror()
 * then returns the reason. Any thread may call them, but no handler of a signal or an EBB.
 */
#ifndef _EBBPROF_H
#define _EBBPROF_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of ebbprof_start(). */
#define EBBPROF_CALLERS	0x1U	/* record the callers of each sample, too */

/*
 * Starts a recording to @file (NULL: "perf.data"). It takes a sample every @period counts
 * (0: 100003; otherwise at least 100) of @event (NULL: "cycles"; see ebbprof(1) for names)
 * in the calling thread, and in all threads and children of fork() that begin afterwards.
 */
int ebbprof_start(const char *file, const char *event, uint64_t period, unsigned int flags);

/* Also samples the calling thread, if it existed before ebbprof_start(). */
int ebbprof_sample_thread(void);

/* ebbprof_pause() stops taking samples of this process until ebbprof_resume(). */
int ebbprof_pause(void);
int ebbprof_resume(void);

/* Completes the file with the samples up to now; the recording continues. */
int ebbprof_dump(void);

/* Ends the recording and completes the file. The end of the program does the same. */
int ebbprof_stop(void);

/* Writes the reason why this thread's last failed call failed to @buffer, and returns @buffer. */
char *ebbprof_strerror(char *buffer, size_t size);

#ifdef __cplusplus
}
#endif

#endif
