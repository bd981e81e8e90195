/* SPDX-License-Identifier: GPL-2.0 */
/* What a shared object of libebb_plugins offers; each thread may have EBBs of it. */
#ifndef _LIBEBB_PLUGIN_H
#define _LIBEBB_PLUGIN_H

#include <stdbool.h>

/* Lets EBBs come on the calling thread; 0, or errno. */
int plugin_start(void);

/* Their number. */
unsigned long plugin_count(void);

/* Leaves the handler of the next one by a jump, having closed if @end; 0 unless none comes. */
int plugin_leave(bool end);

/* Ends them; 0 unless they did not come any more. */
int plugin_end(void);

#endif
