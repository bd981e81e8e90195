// SPDX-License-Identifier: GPL-2.0

//! What events should have counted and sampled, by the instructions of the programs that ran while
//! they were on a CPU with their counter running.
//!
//! What events that include the kernel count in it is told by the machine.

use super::text::{Marked, marked_at};
use crate::{
    machine::Alert,
    perf_bindings::*,
    perf_core::{Event, Recorded},
};
use pmu_model::{Instruction, Isa, Processor, sier};
use std::collections::HashMap;

/// What an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    Instructions,
    Cycles,
    Branches,
    /// [`Instruction::others`].
    Others,
    /// Marked instructions.
    Marked,
}

/// Codes that each processor knows, or refuses.
pub const CODES: [(u64, Counts); 18] = [
    (0x1e, Counts::Cycles),
    (0x02, Counts::Instructions),
    (0x5_00fa, Counts::Instructions),
    (0x6_00f4, Counts::Cycles),
    (0x1_00f0, Counts::Cycles),
    (0x1_00fe, Counts::Instructions),
    (0x2_00fa, Counts::Branches),
    (0x2_001e, Counts::Cycles),
    (0x3_0002, Counts::Instructions),
    (0x4_001e, Counts::Cycles),
    (0x4_00fa, Counts::Instructions),
    (0x1_0050, Counts::Others),
    // With a data source to match, on v3.1.
    (0x1_0050 | 0x1235 << 45, Counts::Others),
    (0x3_0050 | 0x2a81 << 45, Counts::Others),
    // Of POWER9's bus, which needs PMC4.
    (0x1_6050, Counts::Others),
    (0x4_6050, Counts::Others),
    // With random sampling.
    (0x1_01e0, Counts::Marked),
    (0x4_01e0, Counts::Marked),
];
/// Those of [`CODES`] that programs with EBBs use: without random sampling, for which nobody saves
/// what MMCRA has of the threshold counter.
pub const EBB_CODES: usize = 16;

/// Whether an event has the PMU sample at random.
pub fn is_marked(event: &Event) -> bool {
    event.attr().config & 0x100 != 0
}

/// Where a program was when a counter overflowed.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The instruction.
    pub address: u64,
    /// The next one.
    pub next: u64,
    /// The PM interrupt came in the kernel.
    pub in_kernel: bool,
    /// SIAR had an address of the kernel by then.
    pub siar_is_kernel: bool,
    /// The PMU samples at random, and had this when the PM interrupt came.
    pub marking: Option<Alert>,
}

impl Counts {
    fn occurrences(self, instruction: &Instruction) -> u64 {
        match self {
            Self::Instructions => 1,
            Self::Cycles => instruction.cycles.into(),
            Self::Branches => instruction.branch.is_some().into(),
            Self::Others => instruction.others.into(),
            Self::Marked => instruction.marked.is_some().into(),
        }
    }
}

/// What an event should be.
struct Expected {
    counts: Counts,
    count: u64,
    /// What is left of the period.
    left: i64,
    /// The samples that were compared.
    samples: usize,
    /// Those without an instruction.
    lost: u64,
}

/// What all events should be.
pub struct Oracle {
    processor: Processor,
    events: HashMap<usize, Expected>,
    /// There was an event with random sampling.
    had_marked: bool,
}

impl Oracle {
    pub fn new(processor: Processor) -> Self {
        Self {
            processor,
            events: HashMap::new(),
            had_marked: false,
        }
    }

    /// An event was opened.
    pub fn open(&mut self, event: &Event, counts: Counts) {
        let new = Expected {
            counts,
            count: 0,
            left: event.attr().__bindgen_anon_1.sample_period as i64,
            samples: 0,
            lost: 0,
        };
        self.had_marked |= is_marked(event);
        self.events.insert(event.id, new);
    }

    pub fn counts(&self, event: &Event) -> Option<Counts> {
        self.events.get(&event.id).map(|expected| expected.counts)
    }

    /// The count is 0 now, but for the `since` events that the counter counted in the kernel on
    /// the way out.
    pub fn reset(&mut self, event: &Event, since: u64) {
        if let Some(expected) = self.events.get_mut(&event.id) {
            expected.count = 0;
            event.in_kernel.set(since);
        }
    }

    /// A period begins anew.
    pub fn period(&mut self, event: &Event, period: u64) {
        if let Some(expected) = self.events.get_mut(&event.id) {
            expected.left = period as i64;
            expected.samples = event.samples.borrow().len();
        }
    }

    /// A program executed an instruction. The event was on the CPU with its counter running, before.
    pub fn executed(&mut self, event: &Event, instruction: &Instruction, place: Place) {
        let Some(expected) = self.events.get_mut(&event.id) else {
            return;
        };
        if event.excludes_user() {
            return;
        }
        let occurrences = expected.counts.occurrences(instruction);
        expected.count += occurrences;
        let period = event.sample_period() as i64;
        if period == 0 || occurrences == 0 || !event.excludes_kernel() {
            return;
        }
        let mut is_lost = false;
        let samples = event.samples.borrow();
        expected.left -= occurrences as i64;
        // An event of the group that overflowed too may have throttled this one first. Its sample
        // comes with its next occurrence then.
        let is_throttled = samples.len() == expected.samples && !event.counter_runs();
        if expected.left <= 0 && !is_throttled {
            expected.left += period;
            if expected.left <= 0 {
                expected.left = period;
            }
            expected.samples += 1;
            let sample = samples.get(expected.samples - 1);
            let sample =
                sample.unwrap_or_else(|| panic!("event {}: a sample is missing", event.id));
            match place.marking {
                Some(alert) => {
                    is_lost = check_marked(self.processor, event, sample, place, alert);
                }
                None => check_place(event, sample, place),
            }
        }
        assert_eq!(
            samples.len(),
            expected.samples,
            "event {}: samples",
            event.id
        );
        // Those of inherited events count with the program's own.
        let owner = event.parent.as_ref().map_or(event.id, |parent| parent.id);
        if let Some(expected) = self.events.get_mut(&owner).filter(|_| is_lost) {
            expected.lost += 1;
        }
    }

    /// Compares an event, whose counter holds `pmc` if it is on one.
    pub fn check(&self, event: &Event, pmc: Option<u32>) {
        let Some(expected) = self.events.get(&event.id) else {
            return;
        };
        let since = pmc.map_or(0, |pmc| pmc.wrapping_sub(event.prev_count()).into());
        let count = event.count().wrapping_add(since);
        let id = event.id;
        let counted = expected.count + event.in_kernel.get();
        assert_eq!(count, counted, "event {id}: count");
        // Samples of the kernel's work may be lost: it has no marked instructions here.
        if event.excludes_kernel() || !self.had_marked {
            assert_eq!(
                event.lost_samples(),
                expected.lost,
                "event {id}: lost samples"
            );
        }
        if event.excludes_kernel() {
            let samples = event.samples.borrow();
            assert_eq!(samples.len(), expected.samples, "event {id}: samples");
            let kernel = samples.iter().find(|sample| sample.ip >> 63 != 0);
            assert_eq!(kernel, None, "event {id}: an address of the kernel");
        }
    }
}

/// SIAR has the instruction, and NIP the next one. The driver takes NIP unless SIER cannot tell
/// that the instruction was the program's, as on v3.1. If the interrupt came in the kernel, NIP
/// is the kernel's; with a SIAR of the kernel the sample shows where the program entered it.
fn check_place(event: &Event, sample: &Recorded, place: Place) {
    let Place { address, next, .. } = place;
    let right = if place.siar_is_kernel {
        sample.ip == next && sample.nip == next && sample.user && sample.addr.is_none()
    } else if place.in_kernel {
        sample.ip == address && !sample.user
    } else {
        (sample.ip == next || sample.ip == address) && sample.user && sample.nip == next
    };
    assert!(right, "event {}: {sample:x?} of {place:x?}", event.id);
    let data = sample.addr.unwrap_or(0);
    assert!(data < 1 << 63, "event {}: {sample:x?}", event.id);
}

/// With random sampling SIAR and the like have the last marked instruction, whichever event the
/// sample is of. Nothing is known of it if SIAR is not valid, or if SIER, which the event asks for,
/// has a reserved type. Returns whether such a sample counts as lost.
fn check_marked(
    processor: Processor,
    event: &Event,
    sample: &Recorded,
    place: Place,
    alert: Alert,
) -> bool {
    let Place { next, .. } = place;
    let wants = |format: u32| event.samples_with(format);
    let is_valid = alert.sier & sier::SIARV != 0 && alert.siar != 0;
    // As `Syscall` left it, in this step or before.
    let is_kernel = alert.siar >> 63 != 0;
    let marked = marked_at(alert.siar).filter(|_| is_valid && !is_kernel);
    let is_void = marked.is_none_or(|marked| marked.is_void);
    let is_lost = !is_valid || (wants(perf_event_sample_format_PERF_SAMPLE_DATA_SRC) && is_void);
    let shown = [sample.addr, sample.data_src, sample.weight];
    let right = if is_lost {
        sample.ip == 0 && sample.nip == next && sample.user && shown == [None; 3]
    } else if is_kernel {
        sample.ip == next && sample.nip == next && sample.user && shown == [None; 3]
    } else if let Some(marked) = marked {
        let is_data = alert.sier & sier::SDARV != 0 && alert.sdar >> 63 == 0;
        let data_src = marked.data_src;
        let wanted = [
            is_data
                .then_some(alert.sdar)
                .filter(|_| wants(perf_event_sample_format_PERF_SAMPLE_ADDR)),
            data_src.filter(|_| wants(perf_event_sample_format_PERF_SAMPLE_DATA_SRC)),
            weight(processor, event, marked),
        ];
        let is_there = if place.in_kernel {
            !sample.user
        } else {
            sample.user && sample.nip == next
        };
        sample.ip == alert.siar && is_there && shown == wanted
    } else {
        false
    };
    assert!(
        right,
        "event {}: {sample:x?} of {place:x?}, marked {:x?}",
        event.id,
        marked.map(|marked| marked.mark)
    );
    is_lost
}

/// The weight in a sample of a marked instruction: in the structure the cycles to finish and to
/// dispatch are behind the latency, from v3.1 on.
fn weight(processor: Processor, event: &Event, marked: Marked) -> Option<u64> {
    let latency = if marked.is_void { 0 } else { marked.latency };
    if event.samples_with(perf_event_sample_format_PERF_SAMPLE_WEIGHT) {
        return Some(latency);
    }
    let cycles = u64::from(marked.mark.finish) << 32 | u64::from(marked.mark.dispatch) << 48;
    let cycles = if processor.isa() >= Isa::V31 {
        cycles
    } else {
        0
    };
    event
        .samples_with(perf_event_sample_format_PERF_SAMPLE_WEIGHT_STRUCT)
        .then_some(latency | cycles)
}
