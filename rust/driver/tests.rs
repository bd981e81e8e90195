// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the driver (see `Documentation/testing.md`). They run when the module is loaded
//! and has the PMU, with no event open.

use kernel::prelude::*;

#[kunit_tests(ebb_pmu_driver)]
mod cases {
    use super::super::count;
    use crate::perf::KernelEvent;
    use crate::power::interrupt::OtherOwner;
    use crate::power::pmu::NEGATIVE;
    use crate::power::regs::Mmcr0;
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
        assert_eq!(count::start_value(1), NEGATIVE - 1);
        assert_eq!(count::start_value(1000), NEGATIVE - 1000);
        // At least one event is left, or there would be no alert.
        assert_eq!(count::start_value(0), NEGATIVE - 1);
        assert_eq!(count::start_value(-5), NEGATIVE - 1);
        assert_eq!(count::start_value(i64::MIN), NEGATIVE - 1);
        // Longer periods take several rounds of 2^31.
        assert_eq!(count::start_value(0x8000_0000), 0);
        assert_eq!(count::start_value(i64::MAX), 0);
    }

    #[test]
    fn counts_go_on_over_the_end_of_the_counter() {
        assert_eq!(count::delta(10, 15), 5);
        assert_eq!(count::delta(0xffff_fff0, 0x10), 0x20);
        assert_eq!(count::delta(7, 7), 0);
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
}
