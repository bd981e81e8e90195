// SPDX-License-Identifier: GPL-2.0
/*
 * The module's parameters. They are declared here rather than in module!, whose
 * parameters have no files in /sys/module/ebb_pmu/parameters/.
 */
#include <linux/moduleparam.h>
#include <linux/sysfs.h>

#include "parameters.h"

#ifdef EBB_ONLY
#define MODE "ebb"
#else
#define MODE "full"
#endif

/* The build decides the mode, so this cannot be set. */
static int refuse_mode(const char *value, const struct kernel_param *param)
{
	return -EINVAL;
}

static int get_mode(char *page, const struct kernel_param *param)
{
	return sysfs_emit(page, MODE "\n");
}

static const struct kernel_param_ops mode_ops = {
	.set = refuse_mode,
	.get = get_mode,
};
module_param_cb(mode, &mode_ops, NULL, 0444);
MODULE_PARM_DESC(mode, "to be read only: full if the module serves all events, else ebb");

static bool strict_filters;
module_param(strict_filters, bool, 0444);
MODULE_PARM_DESC(strict_filters,
		 "refuse filters of branch stacks that the hardware alone cannot apply");

bool ebb_pmu_strict_filters(void)
{
	return strict_filters;
}

static int prompt = -1;
module_param(prompt, int, 0444);
MODULE_PARM_DESC(prompt,
		 "sample in handlers of other interrupts: 1 yes, 0 no, -1 (default) by machine");

int ebb_pmu_prompt(void)
{
	return prompt;
}

static bool dedicated_cpus;
module_param(dedicated_cpus, bool, 0444);
MODULE_PARM_DESC(dedicated_cpus,
		 "no other partition runs on this one's CPUs: keep branch stacks when the hypervisor had a CPU");

bool ebb_pmu_dedicated_cpus(void)
{
	return dedicated_cpus;
}
