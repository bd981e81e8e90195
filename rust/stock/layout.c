// SPDX-License-Identifier: GPL-2.0
/*
 * Never linked: its debug information has all types that bindgen reads, and scripts/btf.py compares
 * them with those of the kernel.
 */
#include <rust/bindings/bindings_helper.h>
#include "../perf/bindings_helper.h"
#include "../power/bindings_helper.h"
