/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The definitions that a program needs, in addition to linux/perf_event.h, to
 * use Event Based Branches (EBB) of the POWER PMU: Linux's own bits of
 * perf_event_attr.config for PERF_TYPE_RAW events, and the numbers of registers
 * in problem state.
 *
 * Documentation/ebb.md explains their use; tools/ebb does it for Rust programs.
 */
#ifndef _UAPI_LINUX_EBB_PMU_H
#define _UAPI_LINUX_EBB_PMU_H

/* perf_event_attr.config: bits above the event code of the hardware. */
#define EBB_PMU_CONFIG_EBB	(1ULL << 63)	/* the event raises EBBs */
#define EBB_PMU_CONFIG_BHRB	(1ULL << 62)	/* with branches recorded */
#define EBB_PMU_CONFIG_IFM_SHIFT	60	/* which branches, 2 bits */

/* BHRB filters (MMCRA[IFM]). */
#define EBB_PMU_IFM_ANY		0ULL
#define EBB_PMU_IFM_CALL	1ULL	/* branches that set LR; POWER8 and later */
#define EBB_PMU_IFM_IND		2ULL	/* indirect branches; POWER10 and later */
#define EBB_PMU_IFM_COND	3ULL	/* conditional branches; POWER10 and later */

/*
 * Special purpose registers in problem state. Those of the PMU are accessible
 * while an EBB event is scheduled; BESCR, EBBHR, EBBRR and TAR always are. See
 * Power ISA, Book III, chapter "Performance Monitor Facility"; Book II, chapter
 * "Event-Based Branch Facility".
 */
#define EBB_PMU_SPR_SIER2	736	/* read only; ISA v3.1 */
#define EBB_PMU_SPR_SIER3	737	/* read only; ISA v3.1 */
#define EBB_PMU_SPR_MMCR3	738	/* read only; ISA v3.1 */
#define EBB_PMU_SPR_SIER	768	/* read only */
#define EBB_PMU_SPR_MMCR2	769	/* bits FC1P to FC6P only */
#define EBB_PMU_SPR_MMCRA	770	/* threshold counter only */
#define EBB_PMU_SPR_PMC1	771	/* PMC2 to PMC6 follow */
#define EBB_PMU_SPR_MMCR0	779	/* bits FC, PMAE and PMAO only */
#define EBB_PMU_SPR_SIAR	780	/* read only */
#define EBB_PMU_SPR_SDAR	781	/* read only */
#define EBB_PMU_SPR_MMCR1	782	/* read only */
#define EBB_PMU_SPR_BESCRS	800	/* sets bits of BESCR */
#define EBB_PMU_SPR_BESCRR	802	/* resets bits of BESCR */
#define EBB_PMU_SPR_EBBHR	804	/* address of the handler */
#define EBB_PMU_SPR_EBBRR	805	/* the address to which rfebb returns */
#define EBB_PMU_SPR_BESCR	806
#define EBB_PMU_SPR_TAR		815	/* a handler must save it */

#define EBB_PMU_BESCR_GE	(1ULL << 63)	/* EBBs are enabled */
#define EBB_PMU_BESCR_PME	(1ULL << 32)	/* EBBs of the PMU are enabled */
#define EBB_PMU_BESCR_PMEO	(1ULL << 0)	/* an EBB of the PMU occurred */

#define EBB_PMU_MMCR0_FC	(1ULL << 31)	/* the counters are frozen */
#define EBB_PMU_MMCR0_PMAE	(1ULL << 26)	/* alerts are enabled */
#define EBB_PMU_MMCR0_PMAO	(1ULL << 7)	/* an alert occurred */

/* MMCR2[FC1P] to [FC6P]: PMC1 to PMC6 are frozen in problem state. */
#define EBB_PMU_MMCR2_USER	0x4020100804020000ULL

/* The threshold counter, the only part of MMCRA that problem state sees. */
#define EBB_PMU_MMCRA_USER	0x3ff80000ULL

#endif
