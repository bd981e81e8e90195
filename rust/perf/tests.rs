// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the perf abstraction (see `Documentation/testing.md`).

use kernel::prelude::*;

#[kunit_tests(ebb_pmu_perf)]
mod cases {
    use super::super::bindings;
    use super::super::slots::MAX_SLOTS;
    use super::super::Event;
    use super::super::Foreign;
    use super::super::Slots;
    use core::mem::MaybeUninit;
    use kernel::prelude::*;

    /// Events that nobody ever opened, to be told apart by their addresses.
    fn events() -> KVVec<MaybeUninit<bindings::perf_event>> {
        let mut events = KVVec::new();
        for _ in 0..MAX_SLOTS + 1 {
            if events.push(MaybeUninit::zeroed(), GFP_KERNEL).is_err() {
                break;
            }
        }
        events
    }

    /// The numbers of the events in the slots.
    fn held(slots: &Slots, events: &[&Event]) -> [Option<usize>; MAX_SLOTS] {
        core::array::from_fn(|slot| {
            let event = slots.get(slot)?;
            events.iter().position(|other| other.is(event))
        })
    }

    #[test]
    fn slots_keep_the_order_of_what_remains() {
        let mut memory = events();
        assert_eq!(memory.len(), MAX_SLOTS + 1);
        let base = memory.as_mut_ptr();
        // SAFETY: The events are in memory that outlives the references; of an event, `Slots` needs
        // the address only.
        let events: [&Event; MAX_SLOTS + 1] =
            core::array::from_fn(|i| unsafe { Event::from_raw(base.add(i).cast()) });

        let slots = Slots::new();
        for event in &events[..MAX_SLOTS] {
            assert!(slots.has_room());
            // SAFETY: As above.
            unsafe { slots.push(event) };
        }
        assert!(!slots.has_room());
        // SAFETY: As above.
        unsafe { slots.push(events[MAX_SLOTS]) };
        assert_eq!(slots.len(), MAX_SLOTS);
        assert_eq!(slots.position(events[MAX_SLOTS]), None);

        assert_eq!(slots.position(events[2]), Some(2));
        slots.remove(2);
        assert_eq!(slots.position(events[2]), None);
        slots.remove(0);
        slots.remove(MAX_SLOTS);
        let left = [
            Some(1),
            Some(3),
            Some(4),
            Some(5),
            Some(6),
            Some(7),
            None,
            None,
        ];
        assert_eq!(held(&slots, &events), left);
        assert_eq!(slots.iter().count(), MAX_SLOTS - 2);
    }

    #[test]
    fn a_pmu_of_a_module_is_not_taken_over() {
        // The tests run when the module is loaded, so the PMU is its own.
        assert!(matches!(Foreign::find_cycles(), Err(e) if e == EBUSY));
    }
}
