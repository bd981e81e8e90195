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
        count,
        period,
        sample_location::{
            data_address,
            SampleDisposition,
            SampleLocation, //
        }, //
    };
    use crate::{
        isa207::{
            BhrbRecord,
            BranchTypes, //
        },
        perf::{
            BranchEntry,
            BranchFields,
            BranchSampleType,
            KernelEvent, //
        },
        power::{
            callback::CallbackPermit,
            exec::{
                ExecWatch,
                Execve,
                OnExec, //
            },
            instructions::Instructions,
            interrupt::OtherOwner,
            pmu::{
                LocalPmu,
                NEGATIVE, //
            },
            regs::{
                Mmcr0,
                Sier, //
            }, //
        }, //
    };
    use kernel::{
        prelude::*,
        sync::Arc, //
    };

    #[test]
    fn events_are_busy_while_another_driver_has_the_pmu() {
        // Repeat three times, to check that a failure leaves no reservation.
        for _ in 0..3 {
            let owner = OtherOwner::reserve();
            assert!(owner.is_ok());
            let refused = [(); 2].map(|()| KernelEvent::open_cycles().err());
            drop(owner); // Drop it here: a failed assertion does not, and later tests need the PMU.
            assert!(refused == [Some(EBUSY); 2]);

            let event = KernelEvent::open_cycles();
            assert!(event.is_ok());
            // The PMU is reserved while an event is open.
            assert!(OtherOwner::reserve().is_err());
            drop(event);
        }
    }

    #[test]
    fn there_is_one_watch_of_execve() -> Result {
        struct Ignore;
        impl OnExec for Ignore {
            fn exec(&self, _execve: &Execve<'_>) {}
        }

        // The module has the only watch. A second one must leave nothing registered.
        for _ in 0..2 {
            // SAFETY: If there is a watch, it is dropped at once.
            let permit = unsafe { CallbackPermit::new() };
            let second = ExecWatch::new(permit, Arc::new(Ignore, GFP_KERNEL)?);
            assert!(second.is_err_and(|e| e == EBUSY));
        }
        Ok(())
    }

    #[test]
    fn a_preloaded_counter_is_negative_when_the_period_is_over() {
        assert_eq!(period::preload(1), NEGATIVE - 1);
        assert_eq!(period::preload(1000), NEGATIVE - 1000);
        // A counter that starts negative raises no alert, so at least one event remains.
        assert_eq!([0, -5, i64::MIN].map(period::preload), [NEGATIVE - 1; 3]);
        // Longer periods take one alert for every 2^31 events.
        assert_eq!([0x8000_0000, i64::MAX].map(period::preload), [0; 2]);
    }

    #[test]
    fn what_is_left_of_a_period_is_exact() {
        assert_eq!(period::left_after(1000, 10), 990);
        assert_eq!(period::left_after(1000, 1000), 0);
        assert_eq!(period::left_after(1000, 1010), -10);
        // i64::MIN means that the period is over and the sample is due.
        assert_eq!(period::left_after(i64::MIN, 0), 0);
        assert_eq!(period::left_after(i64::MIN, 10), -10);
    }

    #[test]
    fn a_delta_is_right_across_a_wrap_and_a_step_back() {
        assert_eq!(count::delta(10, 15), 5);
        assert_eq!(count::delta(0xffff_fff0, 0x10), 0x20);
        assert_eq!(count::delta(7, 7), 0);
        // A decrease of up to 255 is a step back and counts nothing. A larger decrease is a wrap.
        assert_eq!(count::delta(300, 45), 0);
        assert_eq!(count::delta(300, 44), 0xffff_ff00);
        assert_eq!(count::delta(0, 0xffff_ffff), 0xffff_ffff);
    }

    #[test]
    fn a_program_owns_three_bits_of_mmcr0() {
        // FC, PMAE and PMAO.
        const USER: u64 = 0x8400_0080;
        assert_eq!(u64::from(Mmcr0::from(u64::MAX).user()), USER);

        // In addition to PMC1CE and PMCjCE, PMAE, FCECE and PMCC=0b01 are set.
        let kernel = Mmcr0::from(0xc000).alerting();
        assert_eq!(u64::from(kernel), 0x0604_c000);
        // EBE, BHRBA and PMCC=0b10 are set for EBBs; PMAE has the program's value.
        let ebb = kernel.for_ebb(true);
        assert_eq!(u64::from(ebb), 0x0238_c000);
        assert_eq!(u64::from(kernel.for_ebb(false)), 0x0218_c000);
        let running = ebb.with_program(Mmcr0::from(u64::MAX).user());
        assert_eq!(u64::from(running), 0x0238_c000 | USER);
        // While the counters are frozen, all of these bits, PMAE and PMAO are clear, and PMCC is
        // 0b01.
        let frozen = running.frozen();
        assert_eq!(u64::from(frozen), 0x8204_c000);
        assert_eq!(u64::from(frozen.with_default_access()), 0x8200_c000);
    }

    // Bits of `enum perf_branch_sample_type`.
    const USER: u32 = 1 << 0;
    const KERNEL: u32 = 1 << 1;
    const ANY: u32 = 1 << 3;
    const ANY_RETURN: u32 = 1 << 5;
    const NO_FLAGS: u32 = 1 << 14;
    const PRIV_SAVE: u32 = 1 << 18;

    // Addresses in a program, and in the kernel.
    const USER_TEXT: u64 = 0x1000_0000;
    const KERNEL_TEXT: u64 = 0xc000_0000_0001_0000;

    /// Returns the specification for a BHRB that was recorded without a filter.
    fn spec(branch_sample_type: u32) -> StackSpec {
        StackSpec::new(
            BranchSampleType::from_raw(branch_sample_type.into()),
            0,
            false,
        )
    }

    /// Returns the entry for a branch in the stack that `branch_sample_type` asks for; `None` if
    /// the branch is left out. The branch's instruction cannot be read.
    fn entry(branch_sample_type: u32, from: u64, to: u64) -> Option<BranchEntry> {
        let record = BhrbRecord {
            from,
            to: Some(to),
            mispredicted: false,
        };
        spec(branch_sample_type).entry::<true>(&record, |_| None)
    }

    #[test]
    fn a_stack_without_kernel_branches_has_no_kernel_address() {
        let user = ANY | USER | NO_FLAGS;
        let entered = BranchEntry::new(USER_TEXT, USER_TEXT + 8, BranchFields::NONE);
        assert_eq!(entry(user, USER_TEXT, USER_TEXT + 8), Some(entered));
        assert_eq!(entry(user, KERNEL_TEXT, KERNEL_TEXT + 8), None);
        assert_eq!(entry(user, KERNEL_TEXT, USER_TEXT), None);
        assert_eq!(entry(user, USER_TEXT, KERNEL_TEXT), None);
        assert_eq!(entry(user, USER_TEXT, u64::MAX & !3), None);
        // With kernel branches, the same branches are entered.
        let both = user | KERNEL;
        assert!(entry(both, KERNEL_TEXT, KERNEL_TEXT + 8).is_some());
        assert!(entry(both, KERNEL_TEXT, USER_TEXT).is_some());
        assert!(entry(both, USER_TEXT, KERNEL_TEXT).is_some());
        let kernel = ANY | KERNEL;
        assert!(entry(kernel, KERNEL_TEXT, KERNEL_TEXT + 8).is_some());
        assert_eq!(entry(kernel, USER_TEXT, USER_TEXT + 8), None);
        // Without any privilege level, no branch is entered.
        assert_eq!(entry(ANY, USER_TEXT, USER_TEXT + 8), None);
        assert_eq!(entry(ANY, KERNEL_TEXT, KERNEL_TEXT + 8), None);
    }

    #[test]
    fn an_entry_has_the_fields_that_are_asked_for() {
        let entry = |flags| entry(flags | ANY | USER | KERNEL, KERNEL_TEXT, USER_TEXT);
        let with = |fields| Some(BranchEntry::new(KERNEL_TEXT, USER_TEXT, fields));
        assert_eq!(entry(NO_FLAGS), with(BranchFields::NONE));
        assert_eq!(entry(0), with(BranchFields::PREDICTED));
        assert_eq!(entry(NO_FLAGS | PRIV_SAVE), with(BranchFields::PRIV_KERNEL));
    }

    #[test]
    fn a_branch_that_cannot_be_read_has_no_type() {
        assert_eq!(entry(ANY_RETURN | USER, USER_TEXT, USER_TEXT + 8), None);
        assert!(entry(ANY_RETURN | ANY | USER, USER_TEXT, USER_TEXT + 8).is_some());
        // It has no target either, unless the BHRB holds the target.
        let direct = BhrbRecord {
            from: USER_TEXT,
            to: None,
            mispredicted: true,
        };
        let without_target = BranchEntry::new(USER_TEXT, 0, BranchFields::MISPRED);
        assert_eq!(
            spec(ANY | USER).entry::<true>(&direct, |_| None),
            Some(without_target)
        );
    }

    #[test]
    fn instructions_are_read_where_they_tell_more_than_the_bhrb() {
        use EntryDecision::*;
        let mut types = BranchTypes::default();
        assert_eq!(decide_by_types(types, 0), [Skip, Skip]);
        types.any_return = true;
        assert_eq!(decide_by_types(types, 0), [Skip, EnterIfWanted]);
        types = BranchTypes::default();
        types.call = true;
        assert_eq!(decide_by_types(types, 0), [EnterIfWanted, Skip]);
        types.indirect_call = true;
        assert_eq!(decide_by_types(types, 0), [EnterIfWanted, EnterIfWanted]);
        // With IFM 1 all indirect branches are calls, but not all direct branches are.
        assert_eq!(decide_by_types(types, 1), [EnterIfWanted, Enter]);
        types = BranchTypes::default();
        types.conditional = true;
        assert_eq!(decide_by_types(types, 0), [EnterIfWanted, EnterIfWanted]);
    }

    #[test]
    fn only_mapped_instructions_are_read() {
        #[inline(never)]
        fn own_address() -> usize {
            own_address as fn() -> usize as usize
        }
        let _off = kernel::interrupt::local_interrupt_disable();
        // SAFETY: Interrupts are off until the end, where `_off` is dropped after it.
        let local = unsafe { LocalPmu::new() };
        // CAST: Addresses have 64 bits on this machine.
        let address = own_address() as u64;
        // SAFETY: A function has at least one instruction.
        let first = unsafe { *(address as *const u32) };
        // The first page, the end of the address space, and the range between programs and the
        // kernel are never mapped.
        let unmapped = [0, u64::MAX & !3, 1 << 62, 0xbfff_ffff_ffff_fffc];
        Instructions::open(&local, |instructions| {
            assert_eq!(unmapped.map(|address| instructions.at(address)), [None; 4]);
            let nested = Instructions::open(&local, |nested| nested.at(address));
            assert_eq!([nested, instructions.at(address)], [Some(first); 2]);
        });
    }

    /// Returns the location of a sample whose PMI came at `nip`.
    fn location(marked: bool, siar: u64, sier: Sier, nip: u64) -> SampleLocation {
        SampleLocation {
            marked,
            siar,
            sier,
            has_sipr: true,
            has_siar_valid: true,
            nip,
            in_program: nip < KERNEL_TEXT,
        }
    }

    #[test]
    fn a_sample_is_where_the_counter_overflowed() {
        use SampleDisposition::{
            KernelEntry,
            Unknown, //
        };
        let none = Sier::from(0);
        let sipr = none.with_const_sipr::<1>();
        let valid = none.with_const_siar_valid::<1>();
        let shown = |ip, by_siar| SampleDisposition::Instruction { ip, by_siar };

        // A PMI in a program occurs at once, so the sample has NIP.
        let siar = USER_TEXT + 8;
        for exclude_kernel in [false, true] {
            let disposition = |location: SampleLocation| location.disposition(true, exclude_kernel);
            let at_nip = shown(USER_TEXT, false);
            assert_eq!(disposition(location(false, siar, sipr, USER_TEXT)), at_nip);
            assert_eq!(disposition(location(false, 0, none, USER_TEXT)), at_nip);
            // If the PMI came late, in the kernel, or if the instruction is a marked one, the
            // sample has SIAR.
            let at_siar = shown(siar, true);
            assert_eq!(
                disposition(location(false, siar, sipr, KERNEL_TEXT)),
                at_siar
            );
            let marked = sipr.with_const_siar_valid::<1>();
            assert_eq!(
                disposition(location(true, siar, marked, USER_TEXT)),
                at_siar
            );
        }

        // A sample of the kernel is only for events that do not exclude the kernel, also if the PMI
        // came so late that a program is running.
        let siar_in_kernel = KERNEL_TEXT + 8;
        let by_siar = location(false, siar_in_kernel, none, KERNEL_TEXT);
        let by_nip = location(false, 0, none, KERNEL_TEXT);
        let late = location(false, siar_in_kernel, none, USER_TEXT);
        assert_eq!(
            by_siar.disposition(true, false),
            shown(siar_in_kernel, true)
        );
        assert_eq!(by_nip.disposition(true, false), shown(KERNEL_TEXT, false));
        for location in [by_siar, late, by_nip] {
            assert_eq!(location.disposition(true, true), KernelEntry);
        }
        // Data source and weight of the kernel's instruction are hidden, too.
        assert_eq!(by_siar.disposition(false, true), KernelEntry);

        // A marked instruction without a valid SIAR is unknown.
        let unknown = location(true, siar, sipr, USER_TEXT);
        for exclude_kernel in [false, true] {
            assert_eq!(unknown.disposition(true, exclude_kernel), Unknown);
        }
        // POWER10 DD1 does not always set SIARV for a valid SIAR.
        let mut dd1 = unknown;
        dd1.has_siar_valid = false;
        assert_eq!(dd1.disposition(true, true), shown(siar, true));
        // In a PMI that the driver made pending, SIER is older than SIAR, which is 0.
        assert_eq!(
            location(true, 0, valid, USER_TEXT).disposition(true, false),
            Unknown
        );

        // A low address is the program's if SIPR shows that, and on v3.1, where SIPR is not
        // reliable.
        let mut low = location(true, siar, valid, USER_TEXT);
        assert_eq!(low.disposition(true, false), shown(siar, true));
        assert_eq!(low.disposition(true, true), KernelEntry);
        low.has_sipr = false;
        assert_eq!(low.disposition(true, true), shown(siar, true));
    }

    #[test]
    fn a_data_address_is_valid_and_not_hidden_from_the_owner() {
        let none = Sier::from(0);
        let valid = none.with_const_sdar_valid::<1>();
        assert_eq!(data_address(false, none, 0x1000, true), Some(0x1000));
        assert_eq!(data_address(true, none, 0x1000, true), None);
        assert_eq!(data_address(true, valid, 0x1000, true), Some(0x1000));
        assert_eq!(
            data_address(true, valid, KERNEL_TEXT, false),
            Some(KERNEL_TEXT)
        );
        assert_eq!(data_address(true, valid, KERNEL_TEXT, true), None);
        assert_eq!(data_address(false, none, KERNEL_TEXT, true), None);
    }

    #[test]
    fn an_alert_is_found_by_the_counter_that_caused_it() {
        let counting = Mmcr0::from(0)
            .alerting()
            .with_const_pmc1ce::<1>()
            .with_const_pmcjce::<1>();
        let alerts = |mmcr0: Mmcr0| [0, 1, 2, 3, 4, 5].map(|index| mmcr0.raises_alert(index));
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

        // This is the state after the hardware froze: alerts off, and frozen if MMCR0 asked for
        // that.
        let after = counting.after_alert();
        assert!(after.pmao() == 1 && after.pmae() == 0);
        assert!(after.fc() == 1);
        let after = counting.with_const_fcece::<0>().after_alert();
        assert!(after.pmao() == 1 && after.pmae() == 0);
        assert!(after.fc() == 0);
    }
}
