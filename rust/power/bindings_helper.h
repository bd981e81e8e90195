/* SPDX-License-Identifier: GPL-2.0 */
/* What bindgen reads to make bindings_generated.rs: the functions of the shims. */
#include "shim.h"
