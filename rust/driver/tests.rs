// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the driver (see `Documentation/testing.md`). They run when the module is loaded
//! and has the PMU, with no event open.

use kernel::prelude::*;

#[kunit_tests(ebb_pmu_driver)]
mod cases {
    use super::super::{
        branch_stack::{
            decide_by_types,
            EntryDecision,
            StackSpec, //
        },
        count, //
        sample_location::{
            SampleDisposition,
            SampleLocation, //
        },
    };
    use crate::{
        isa207::{
            BranchTypes,
            Record, //
        },
        perf::{
            BranchEntry,
            BranchFields,
            BranchSampleType,
            KernelEvent, //
        },
        power::{
            code::Code,
            interrupt::OtherOwner, //
            pmu::{
                LocalPmu,
                NEGATIVE, //
            },
            regs::{
                Mmcr0,
                Sier, //
            },
        },
    };
    use kernel::prelude::*;

    #[test]
    fn a_second_owner_makes_events_busy_and_nothing_leaks() {
        for _ in 0..3 {
            let owner = OtherOwner::reserve();
            assert!(owner.is_ok());
            assert!(matches!(KernelEvent::open_cycles(), Err(e) if e == EBUSY));
            assert!(matches!(KernelEvent::open_cycles(), Err(e) if e == EBUSY));
            drop(owner);

            let event = KernelEvent::open_cycles();
            assert!(event.is_ok());
            // The PMU is ours while an event is open.
            assert!(OtherOwner::reserve().is_err());
            drop(event);
        }
    }

    #[test]
    fn a_counter_starts_so_that_it_is_negative_when_the_period_is_over() {
        assert_eq!(count::preload(1), NEGATIVE - 1);
        assert_eq!(count::preload(1000), NEGATIVE - 1000);
        // At least one event is left, or there would be no alert.
        assert_eq!(count::preload(0), NEGATIVE - 1);
        assert_eq!(count::preload(-5), NEGATIVE - 1);
        assert_eq!(count::preload(i64::MIN), NEGATIVE - 1);
        // Longer periods take several rounds of 2^31.
        assert_eq!(count::preload(0x8000_0000), 0);
        assert_eq!(count::preload(i64::MAX), 0);
    }

    #[test]
    fn what_is_left_of_a_period_is_exact() {
        assert_eq!(count::left_after(1000, 10), 990);
        assert_eq!(count::left_after(1000, 1000), 0);
        assert_eq!(count::left_after(1000, 1010), -10);
        // That nothing is left and the sample is due.
        assert_eq!(count::left_after(i64::MIN, 0), 0);
        assert_eq!(count::left_after(i64::MIN, 10), -10);
    }

    #[test]
    fn counts_go_on_over_the_end_of_the_counter() {
        assert_eq!(count::delta(10, 15), 5);
        assert_eq!(count::delta(0xffff_fff0, 0x10), 0x20);
        assert_eq!(count::delta(7, 7), 0);
        // A step back is none forward, unless it is too long for one.
        assert_eq!(count::delta(300, 45), 0);
        assert_eq!(count::delta(300, 44), 0xffff_ff00);
        assert_eq!(count::delta(0, 0xffff_ffff), 0xffff_ffff);
    }

    #[test]
    fn a_program_owns_three_bits_of_mmcr0() {
        // FC, PMAE and PMAO.
        const USER: u64 = 0x8400_0080;
        assert_eq!(u64::from(Mmcr0::from(u64::MAX).user()), USER);

        // PMC1CE and PMCjCE, then alerts with FCECE.
        let kernel = Mmcr0::from(0xc000).alerting();
        assert_eq!(u64::from(kernel), 0x0600_c000);
        // EBE, BHRBA and PMCC=0b10 come with EBBs; PMAE is the program's.
        assert_eq!(u64::from(kernel.for_ebb(Mmcr0::from(0))), 0x0238_c000);
        assert_eq!(
            u64::from(kernel.for_ebb(Mmcr0::from(u64::MAX))),
            0x0238_c000 | USER
        );
        // Stopped, nothing is left of that, and nothing of an alert.
        let stopped = kernel.for_ebb(Mmcr0::from(u64::MAX)).stopped();
        assert_eq!(u64::from(stopped), 0x8200_c000);
    }

    // Bits of `enum perf_branch_sample_type`.
    const USER: u32 = 1 << 0;
    const KERNEL: u32 = 1 << 1;
    const ANY: u32 = 1 << 3;
    const ANY_RETURN: u32 = 1 << 5;
    const NO_FLAGS: u32 = 1 << 14;
    const PRIV_SAVE: u32 = 1 << 18;

    const PROGRAM: u64 = 0x1000_0000;
    const KERNEL_TEXT: u64 = 0xc000_0000_0001_0000;

    /// What a stack that wants `wanted` gets of a branch, without its instruction.
    fn entry(wanted: u32, from: u64, to: u64) -> Option<BranchEntry> {
        let record = Record {
            from,
            to: Some(to),
            mispredicted: false,
        };
        StackSpec::new(BranchSampleType::from_raw(wanted.into()), 0, false)
            .entry::<true>(&record, None)
    }

    #[test]
    fn no_kernel_address_is_in_a_stack_of_a_program() {
        let user = ANY | USER | NO_FLAGS;
        let kept = BranchEntry::new(PROGRAM, PROGRAM + 8, BranchFields::NONE);
        assert_eq!(entry(user, PROGRAM, PROGRAM + 8), Some(kept));
        assert_eq!(entry(user, KERNEL_TEXT, KERNEL_TEXT + 8), None);
        assert_eq!(entry(user, KERNEL_TEXT, PROGRAM), None);
        assert_eq!(entry(user, PROGRAM, KERNEL_TEXT), None);
        assert_eq!(entry(user, PROGRAM, u64::MAX & !3), None);
        // The control: who may see the kernel does.
        let both = user | KERNEL;
        assert!(entry(both, KERNEL_TEXT, KERNEL_TEXT + 8).is_some());
        assert!(entry(both, KERNEL_TEXT, PROGRAM).is_some());
        assert!(entry(both, PROGRAM, KERNEL_TEXT).is_some());
        let kernel = ANY | KERNEL;
        assert!(entry(kernel, KERNEL_TEXT, KERNEL_TEXT + 8).is_some());
        assert_eq!(entry(kernel, PROGRAM, PROGRAM + 8), None);
        // Nobody's.
        assert_eq!(entry(ANY, PROGRAM, PROGRAM + 8), None);
        assert_eq!(entry(ANY, KERNEL_TEXT, KERNEL_TEXT + 8), None);
    }

    #[test]
    fn an_entry_says_what_is_asked_for() {
        let of = |wanted| entry(wanted | ANY | USER | KERNEL, KERNEL_TEXT, PROGRAM);
        let with = |fields| Some(BranchEntry::new(KERNEL_TEXT, PROGRAM, fields));
        assert_eq!(of(NO_FLAGS), with(BranchFields::NONE));
        assert_eq!(of(0), with(BranchFields::PREDICTED));
        assert_eq!(of(NO_FLAGS | PRIV_SAVE), with(BranchFields::PRIV_KERNEL));
    }

    #[test]
    fn a_branch_that_cannot_be_read_is_not_chosen() {
        assert_eq!(entry(ANY_RETURN | USER, PROGRAM, PROGRAM + 8), None);
        assert!(entry(ANY_RETURN | ANY | USER, PROGRAM, PROGRAM + 8).is_some());
        let direct = Record {
            from: PROGRAM,
            to: None,
            mispredicted: true,
        };
        let any = StackSpec::new(BranchSampleType::from_raw((ANY | USER).into()), 0, false);
        let without_target = BranchEntry::new(PROGRAM, 0, BranchFields::MISPRED);
        assert_eq!(any.entry::<true>(&direct, None), Some(without_target));
    }

    #[test]
    fn instructions_are_looked_at_where_they_say_more_than_the_bhrb() {
        use EntryDecision::*;
        let of = |types, ifm| decide_by_types(types, ifm);
        let mut types = BranchTypes::default();
        assert_eq!(of(types, 0), [Skip, Skip]);
        types.any_return = true;
        assert_eq!(of(types, 0), [Skip, EnterIfWanted]);
        types = BranchTypes::default();
        types.call = true;
        assert_eq!(of(types, 0), [EnterIfWanted, Skip]);
        types.indirect_call = true;
        assert_eq!(of(types, 0), [EnterIfWanted, EnterIfWanted]);
        // The hardware filter leaves calls only, and one direct branch that is none.
        assert_eq!(of(types, 1), [EnterIfWanted, Enter]);
        types = BranchTypes::default();
        types.conditional = true;
        assert_eq!(of(types, 0), [EnterIfWanted, EnterIfWanted]);
    }

    #[test]
    fn instructions_that_are_not_there_are_not_read() {
        #[inline(never)]
        fn here() -> usize {
            here as fn() -> usize as usize
        }
        let _off = kernel::interrupt::local_interrupt_disable();
        // SAFETY: Interrupts are off until the end, where `_off` is dropped after it.
        let local = unsafe { LocalPmu::new() };
        let code = Code::open(&local);
        // CAST: An address has 64 bits on this machine.
        let address = here() as u64;
        // SAFETY: A function has at least one instruction.
        let first = unsafe { *(address as *const u32) };
        assert_eq!(code.at(address), Some(first));
        // Neither the first page nor the end of the address space is ever mapped, and what lies
        // between programs and kernel belongs to nobody.
        assert_eq!(code.at(0), None);
        assert_eq!(code.at(u64::MAX & !3), None);
        assert_eq!(code.at(0x4000_0000_0000_0000), None);
        assert_eq!(code.at(0xbfff_ffff_ffff_fffc), None);
    }

    #[test]
    fn a_sample_is_where_the_counter_overflowed() {
        const PROGRAM: u64 = 0x1000_0000;
        const KERNEL: u64 = 0xc000_0000_0012_3456;
        let none = Sier::from(0);
        let user = none.with_const_sipr::<1>();
        let valid = none.with_const_siar_valid::<1>();
        let fate = |marked, siar, sier, nip, ip, exclude| {
            let in_program = nip == PROGRAM;
            SampleLocation {
                marked,
                siar,
                sier,
                nip,
                in_program,
            }
            .disposition(ip, exclude)
        };
        let kept = |ip, by_siar| SampleDisposition::Report { ip, by_siar };

        // In a program the interrupt is prompt.
        let siar = PROGRAM + 8;
        for exclude in [false, true] {
            let at_nip = kept(Some(PROGRAM), false);
            assert_eq!(fate(false, siar, user, PROGRAM, true, exclude), at_nip);
            assert_eq!(fate(false, 0, none, PROGRAM, true, exclude), at_nip);
            // One that came late says where by SIAR, and so does a marked instruction.
            let at_siar = kept(Some(siar), true);
            assert_eq!(fate(false, siar, user, KERNEL, true, exclude), at_siar);
            assert_eq!(
                fate(
                    true,
                    siar,
                    user.with_const_siar_valid::<1>(),
                    PROGRAM,
                    true,
                    exclude
                ),
                at_siar
            );
        }
        // Of the kernel: for who may see it.
        let far = KERNEL + 8;
        assert_eq!(
            fate(false, far, none, KERNEL, true, false),
            kept(Some(far), true)
        );
        assert_eq!(
            fate(false, 0, none, KERNEL, true, false),
            kept(Some(KERNEL), false)
        );
        assert_eq!(
            fate(false, far, none, KERNEL, true, true),
            SampleDisposition::DropKernel
        );
        assert_eq!(
            fate(false, far, none, PROGRAM, true, true),
            SampleDisposition::DropKernel
        );
        assert_eq!(
            fate(false, 0, none, KERNEL, true, true),
            SampleDisposition::DropKernel
        );
        // Who does not ask where it was gets it without.
        assert_eq!(
            fate(false, far, none, KERNEL, false, true),
            kept(None, false)
        );
        // A marked instruction that is not known.
        for exclude in [false, true] {
            assert_eq!(
                fate(true, siar, user, PROGRAM, true, exclude),
                SampleDisposition::DropLost
            );
        }
        assert_eq!(
            fate(true, siar, valid, PROGRAM, true, true),
            kept(Some(siar), true)
        );
    }

    #[test]
    fn a_data_address_is_known_and_not_the_kernels() {
        const KERNEL: u64 = 0xc000_0000_0012_3456;
        let address = |marked, sier, sdar, exclude| {
            let (siar, nip, in_program) = (0, 0, true);
            SampleLocation {
                marked,
                siar,
                sier,
                nip,
                in_program,
            }
            .data_address(sdar, exclude)
        };
        let none = Sier::from(0);
        let valid = none.with_const_sdar_valid::<1>();
        assert_eq!(address(false, none, 0x1000, true), Some(0x1000));
        assert_eq!(address(true, none, 0x1000, true), None);
        assert_eq!(address(true, valid, 0x1000, true), Some(0x1000));
        assert_eq!(address(true, valid, KERNEL, false), Some(KERNEL));
        assert_eq!(address(true, valid, KERNEL, true), None);
        assert_eq!(address(false, none, KERNEL, true), None);
    }

    #[test]
    fn an_alert_is_found_by_the_counter_that_caused_it() {
        let counting = Mmcr0::from(0)
            .alerting()
            .with_const_pmc1ce::<1>()
            .with_const_pmcjce::<1>();
        let alerts = |mmcr0: Mmcr0| [0, 1, 2, 3, 4, 5].map(|index| mmcr0.alerts_by(index));
        let (none, pmc1) = ([false; 6], [true, false, false, false, false, false]);

        assert_eq!(alerts(counting), [true; 6]);
        assert_eq!(alerts(counting.with_const_pmcjce::<0>()), pmc1);
        assert_eq!(
            alerts(counting.with_const_pmc1ce::<0>()),
            pmc1.map(|alert| !alert)
        );
        assert_eq!(
            alerts(counting.with_const_fc56::<1>()),
            [true, true, true, true, false, false]
        );
        assert_eq!(
            alerts(counting.with_const_fc14::<1>()),
            [false, false, false, false, true, true]
        );
        assert_eq!(alerts(counting.with_const_pmae::<0>()), none);
        assert_eq!(alerts(counting.with_const_fc::<1>()), none);

        // As the hardware leaves it: alerts off, and frozen if that was asked for.
        let after = counting.alerted();
        assert!(after.pmao() == 1 && after.pmae() == 0);
        assert!(after.fc() == 1);
        let after = counting.with_const_fcece::<0>().alerted();
        assert!(after.pmao() == 1 && after.pmae() == 0);
        assert!(after.fc() == 0);
    }
}
