// SPDX-License-Identifier: GPL-2.0
/*
 * The kernel's functions for Rust code, which a kernel without CONFIG_RUST does not have. Compiled
 * for a module: some are different in the kernel itself.
 */
#include <helpers.c>
