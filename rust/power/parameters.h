/* SPDX-License-Identifier: GPL-2.0 */
/* The values of the module's parameters. */
#ifndef EBB_PMU_PARAMETERS_H
#define EBB_PMU_PARAMETERS_H

#include <linux/types.h>

bool ebb_pmu_strict_filters(void);
int ebb_pmu_prompt(void);
bool ebb_pmu_dedicated_cpus(void);

#endif
