// SPDX-License-Identifier: GPL-2.0
/* The part of ebbprof_work that is in a shared object. */
#include "ebbprof_work.h"

WORK(fifth)
