/* SPDX-License-Identifier: GPL-2.0 */
/* The functions of shim_emulator.c: what only an emulated machine needs. */
#ifndef EBB_PMU_SHIM_EMULATOR_H
#define EBB_PMU_SHIM_EMULATOR_H

#include <linux/types.h>

/*
 * A timer for each CPU. fn is called by the timer's interrupt, PM interrupts
 * masked, with whether it interrupted a program, and returns in how many
 * nanoseconds to call it again, 0 for not at all. After the teardown nothing is
 * armed; there must be nobody left who starts a timer.
 */
void ebb_pmu_look_setup(u64 (*fn)(bool in_program));
void ebb_pmu_look_teardown(void);

/*
 * Have fn called on this CPU within so many nanoseconds, from an NMI in
 * EBB_PMU_LOOK_SOON_NS. Interrupts must be off.
 */
void ebb_pmu_look_within(u64 ns);
#define EBB_PMU_LOOK_SOON_NS 20000

/* Whether QEMU emulates the CPU, without KVM. */
bool ebb_pmu_emulated(void);

/* Whether this is an emulator (QEMU before 9.1) that lacks the BHRB's instructions. */
bool ebb_pmu_bhrb_missing(void);

#endif
