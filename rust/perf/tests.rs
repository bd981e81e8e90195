// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the perf abstraction (see `Documentation/testing.md`).

use kernel::prelude::*;

#[kunit_tests(ebb_pmu_perf)]
mod cases {
    use super::super::{
        bindings,
        event::PerfEvent,
        memory,
        slots::MAX_SLOTS,
        BranchEntry,
        BranchFields,
        BranchStack,
        BuiltInPmu,
        KernelEvent,
        MemDataSrc,
        PmiCell,
        Sample,
        SampleFormat,
        Slots,
        Weight, //
    };
    use core::mem::MaybeUninit;
    use kernel::{
        error::to_result,
        prelude::*,
        str::CStrExt, //
    };

    /// An event without driver data.
    type Event = super::super::Event<()>;

    /// Returns events that were never opened and differ only by their addresses.
    fn events() -> KVVec<MaybeUninit<bindings::perf_event>> {
        let mut events = KVVec::new();
        for _ in 0..MAX_SLOTS + 1 {
            if events.push(MaybeUninit::zeroed(), GFP_KERNEL).is_err() {
                break;
            }
        }
        events
    }

    /// Returns the numbers of the events in the slots.
    fn numbers(slots: &Slots<()>, events: &[&Event]) -> [Option<usize>; MAX_SLOTS] {
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
        // SAFETY: The events are in memory that outlives the references; `Slots` uses only the
        // address of an event.
        let events: [&Event; MAX_SLOTS + 1] =
            core::array::from_fn(|i| unsafe { Event::from_raw(base.add(i).cast()) });

        let slots = Slots::new();
        for event in &events[..MAX_SLOTS] {
            assert!(slots.has_room());
            // SAFETY: The event is in memory that outlives the slots.
            unsafe { slots.push(event) };
        }
        assert!(!slots.has_room());
        // SAFETY: The event is in memory that outlives the slots.
        unsafe { slots.push(events[MAX_SLOTS]) };
        assert_eq!(slots.len(), MAX_SLOTS);
        assert!(!slots.remove(events[MAX_SLOTS]));

        assert!(slots.remove(events[2]));
        assert!(!slots.remove(events[2]));
        assert!(slots.remove(events[0]));
        let remaining = [
            Some(1),
            Some(3),
            Some(4),
            Some(5),
            Some(6),
            Some(7),
            None,
            None,
        ];
        assert_eq!(numbers(&slots, &events), remaining);
        assert_eq!(slots.iter().count(), MAX_SLOTS - 2);
    }

    #[test]
    fn a_pmu_of_a_module_is_not_taken_over() {
        // The tests run when the module is loaded, so the PMU belongs to the module. It must still
        // do so afterwards.
        for _ in 0..2 {
            let built_in = BuiltInPmu::find();
            assert!(matches!(built_in, Ok(Some(_))));
            let unregistered =
                built_in.and_then(|built_in| built_in.map(BuiltInPmu::unregister).transpose());
            assert!(matches!(unregistered, Err(e) if e == EBUSY));
        }
    }

    #[test]
    fn memory_is_permanent_if_the_kernel_booted_with_it() -> Result {
        static OF_THE_MODULE: u64 = 0;
        let allocated = KBox::new(0u64, GFP_KERNEL)?;
        // SAFETY: The function accepts any pointer.
        let is_permanent = |object| unsafe { bindings::ebb_perf_is_permanent(object) };
        assert!(is_permanent(
            (&raw const kernel::bindings::init_task).cast()
        ));
        assert!(!is_permanent((&raw const *allocated).cast()));
        assert!(!is_permanent((&raw const OF_THE_MODULE).cast()));
        assert!(!is_permanent((&raw const allocated).cast()));
        assert!(!is_permanent(core::ptr::null()));
        Ok(())
    }

    #[test]
    fn a_pmu_that_may_disappear_is_not_unregistered() -> Result {
        unsafe extern "C" fn event_init(event: *mut bindings::perf_event) -> c_int {
            // SAFETY: perf core calls this for an event that is being opened for the PMU.
            let own = unsafe { (*event).attr.type_ == (*(*event).pmu).type_ as u32 };
            if own {
                0
            } else {
                ENOENT.to_errno()
            }
        }

        // A PMU without a module, in memory that is freed. A built-in driver may have such a PMU,
        // too.
        let mut pmu = KBox::new(
            bindings::pmu {
                event_init: Some(event_init),
                ..pin_init::zeroed()
            },
            GFP_KERNEL,
        )?;
        let pmu: *mut bindings::pmu = &raw mut *pmu;
        // SAFETY: The structure is complete for events that are never enabled, and it is
        // unregistered below before it is freed.
        to_result(unsafe { bindings::perf_pmu_register(pmu, c"ebb_kunit".as_char_ptr(), -1) })?;
        // SAFETY: perf core has set the type, and does not change it any more.
        let kind = unsafe { (*pmu).type_ } as u32;
        let [first, second] = [(); 2].map(|()| KernelEvent::open(kind, 0).map(BuiltInPmu));
        let unregister = |event: BuiltInPmu| event.unregister().map(drop);
        let registered = first.map(unregister);
        // SAFETY: The PMU was registered above.
        to_result(unsafe { bindings::perf_pmu_unregister(pmu) })?;
        let unregistered = second.map(unregister);
        assert!(matches!(registered, Ok(Err(e)) if e == EBUSY));
        assert!(matches!(unregistered, Ok(Err(e)) if e == ENODEV));
        Ok(())
    }

    /// Returns a branch in bindgen's type.
    fn entry(fields: BranchFields) -> bindings::perf_branch_entry {
        // SAFETY: The sizes are the same, and every bit pattern is a branch.
        unsafe { core::mem::transmute(BranchEntry::new(0x1000, 0x2000, fields)) }
    }

    #[test]
    fn fields_of_a_branch_are_where_c_has_them() {
        let none = entry(BranchFields::NONE);
        assert_eq!((none.from, none.to), (0x1000, 0x2000));
        assert_eq!((none.mispred(), none.predicted()), (0, 0));
        assert_eq!((none.type_(), none.priv_(), none.cycles()), (0, 0, 0));
        let wrong = entry(BranchFields::MISPRED);
        assert_eq!((wrong.mispred(), wrong.predicted()), (1, 0));
        let right = entry(BranchFields::PREDICTED);
        assert_eq!((right.mispred(), right.predicted()), (0, 1));

        let call = BranchFields::COND_CALL.with(BranchFields::PRIV_KERNEL);
        let call = entry(call.with(BranchFields::PREDICTED));
        assert_eq!(call.type_(), u64::from(bindings::PERF_BR_COND_CALL));
        assert_eq!(call.priv_(), u64::from(bindings::PERF_BR_PRIV_KERNEL));
        assert_eq!((call.mispred(), call.predicted()), (0, 1));
        assert_eq!((call.in_tx(), call.abort(), call.cycles()), (0, 0, 0));
        assert_eq!((call.spec(), call.new_type(), call.reserved()), (0, 0, 0));
    }

    #[test]
    fn a_stack_holds_the_newest_branches() {
        let mut stack = BranchStack::new();
        assert_eq!(stack.len(), 0);
        let branches = || (1..=35).map(|from| BranchEntry::new(from, 0, BranchFields::NONE));
        stack.fill(3, branches());
        assert_eq!(stack.len(), 3);
        stack.fill(u16::MAX, branches());
        assert_eq!(stack.len(), BranchStack::CAPACITY as u64);
        stack.truncate(2);
        stack.truncate(7);
        let raw = stack.as_raw();
        // SAFETY: The stack lives, and has two entries.
        let (nr, hw_idx, last) = unsafe {
            let raw = raw.as_ref();
            (raw.nr, raw.hw_idx, (*raw.entries.as_ptr().add(1)).from)
        };
        assert_eq!((nr, hw_idx, last), (2, u64::MAX, 2));
    }

    /// Returns an event that was never opened, with these attributes.
    fn event_with(
        attr: bindings::perf_event_attr,
    ) -> Result<KBox<MaybeUninit<bindings::perf_event>>> {
        let mut event = KBox::new(MaybeUninit::<bindings::perf_event>::zeroed(), GFP_KERNEL)?;
        // SAFETY: The pointer is to owned memory.
        unsafe { (*event.as_mut_ptr()).attr = attr };
        Ok(event)
    }

    /// Returns a stack of `len` branches.
    fn stack(len: u64) -> BranchStack {
        let mut stack = BranchStack::new();
        let branches = (0..len).map(|from| BranchEntry::new(from, 0, BranchFields::NONE));
        stack.fill(u16::MAX, branches);
        stack
    }

    #[test]
    fn a_sample_has_the_size_of_the_stack_that_its_event_asks_for() -> Result {
        let mut attr = bindings::perf_event_attr {
            sample_type: SampleFormat::BranchStack as u64,
            sample_max_stack: 3,
            ..pin_init::zeroed()
        };
        let (mut four, mut two) = (stack(4), stack(2));
        let mut event = event_with(attr)?;
        // SAFETY: `Sample` reads only the attributes, in memory that outlives the references.
        let wants = unsafe { PerfEvent::from_raw(event.as_mut_ptr()) };
        let mut sample = Sample::new(wants, 1, 0);
        assert_eq!(sample.dyn_size(), 0);
        // The size is `nr` and three entries of three words each.
        sample.set_branch_stack(&mut four);
        assert_eq!(sample.dyn_size(), 8 + 3 * 24);
        // A second stack replaces the first.
        sample.set_branch_stack(&mut two);
        assert_eq!(sample.dyn_size(), 8 + 2 * 24);

        attr.sample_type = SampleFormat::Ip as u64;
        let mut event = event_with(attr)?;
        // SAFETY: `Sample` reads only the attributes, in memory that outlives the references.
        let wants_not = unsafe { PerfEvent::from_raw(event.as_mut_ptr()) };
        let mut sample = Sample::new(wants_not, 1, 0);
        sample.set_branch_stack(&mut two);
        assert_eq!(sample.dyn_size(), 0);
        Ok(())
    }

    #[test]
    fn a_lost_sample_counts_in_the_event_that_was_opened() -> Result {
        let mut opened = event_with(pin_init::zeroed())?;
        let mut inherited = event_with(pin_init::zeroed())?;
        let (parent, child) = (opened.as_mut_ptr(), inherited.as_mut_ptr());
        // SAFETY: The pointers are to owned memory, which outlives the references. Only `parent`
        // and `lost_samples` of the events are used.
        let lost = unsafe {
            (*child).parent = parent;
            PerfEvent::from_raw(child).count_lost_samples(1);
            PerfEvent::from_raw(parent).count_lost_samples(1);
            [parent, child].map(|event| (*event).lost_samples.counter)
        };
        assert_eq!(lost, [2, 0]);
        Ok(())
    }

    /// Returns a data source in bindgen's type.
    fn source(source: MemDataSrc) -> bindings::perf_mem_data_src__bindgen_ty_1 {
        let union = bindings::perf_mem_data_src { val: source.bits() };
        // SAFETY: Every bit pattern is a data source.
        unsafe { union.__bindgen_anon_1 }
    }

    #[test]
    fn a_cell_keeps_values_of_each_size_and_of_several_parts() {
        #[derive(Clone, Copy, Debug, PartialEq, IntoBytes)]
        #[repr(C, align(8))]
        struct Halves(u32, u32);

        fn keeps<T: Copy + PartialEq + core::fmt::Debug>(first: T, second: T) {
            let cell = PmiCell::new(first);
            assert_eq!(cell.get(), first);
            cell.set(second);
            assert_eq!(cell.get(), second);
        }
        keeps(0x12_u8, 0x34);
        keeps(0x1234_u16, 0x5678);
        keeps(0x1234_5678_u32, 0x9abc_def0);
        keeps(0x1234_5678_9abc_def0_u64, 1);
        keeps(Halves(1, 2), Halves(3, 4));
    }

    #[test]
    fn a_data_source_has_its_fields_where_c_has_them() {
        let remote = source(MemDataSrc {
            op: memory::OP_LOAD,
            lvl: memory::LVL_HIT | memory::LVL_REM_RAM1,
            lvlnum: memory::LVLNUM_RAM,
            snoop: memory::SNOOP_HITM,
            locked: true,
            hops: memory::HOPS_2,
        });
        let lvl = u64::from(memory::LVL_HIT | memory::LVL_REM_RAM1);
        assert_eq!((remote.mem_op(), remote.mem_lvl()), (2, lvl));
        assert_eq!((remote.mem_snoop(), remote.mem_lock()), (0x10, 2));
        assert_eq!((remote.mem_dtlb(), remote.mem_lvl_num()), (1, 0xd));
        assert_eq!((remote.mem_remote(), remote.mem_hops()), (1, 3));
        assert_eq!((remote.mem_snoopx(), remote.mem_blk()), (0, 0));
        let unknown = source(MemDataSrc::UNKNOWN);
        assert_eq!((unknown.mem_op(), unknown.mem_lvl()), (1, 1));
        assert_eq!((unknown.mem_remote(), unknown.mem_hops()), (0, 0));
    }

    #[test]
    fn a_weight_in_parts_has_them_where_c_has_them() {
        let weight = bindings::perf_sample_weight {
            full: Weight::Struct(0x8765_4321, 0x1234, 0xfedc).bits(),
        };
        // SAFETY: Every bit pattern is a weight.
        let parts = unsafe { weight.__bindgen_anon_1 };
        assert_eq!(parts.var1_dw, 0x8765_4321);
        assert_eq!((parts.var2_w, parts.var3_w), (0x1234, 0xfedc));
        assert_eq!(Weight::Full(u64::MAX).bits(), u64::MAX);
    }
}
