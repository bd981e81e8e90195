// SPDX-License-Identifier: GPL-2.0

//! What events should have counted and sampled, by the instructions of the programs that ran while
//! they were on a CPU with their counter running.
//!
//! What events that include the kernel count in it is told by the machine.

use super::text::{Marked, marked_at};
use crate::{
    machine::{Alert, KERNEL_TEXT},
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

/// Where a counter overflowed.
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
}

/// In the kernel itself.
const KERNEL: Place = Place {
    address: KERNEL_TEXT,
    next: KERNEL_TEXT,
    in_kernel: true,
    siar_is_kernel: true,
};

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
    /// Less what it counted in the kernel.
    count: u64,
    /// What is left of the period. At 0 or less, a sample is to come with the next occurrence.
    left: i64,
    /// The period.
    period: u64,
    /// What it counted in the kernel, as far as it is taken off the period.
    in_kernel: u64,
    /// The samples that were compared.
    samples: usize,
    /// Those without an instruction.
    lost: u64,
}

/// What all events should be.
pub struct Oracle {
    processor: Processor,
    events: HashMap<usize, Expected>,
}

impl Oracle {
    pub fn new(processor: Processor) -> Self {
        Self {
            processor,
            events: HashMap::new(),
        }
    }

    /// An event was opened.
    pub fn open(&mut self, event: &Event, counts: Counts) {
        let period = event.attr().__bindgen_anon_1.sample_period;
        let new = Expected {
            counts,
            count: 0,
            left: period as i64,
            period,
            in_kernel: 0,
            samples: 0,
            lost: 0,
        };
        self.events.insert(event.id, new);
    }

    pub fn counts(&self, event: &Event) -> Option<Counts> {
        self.events.get(&event.id).map(|expected| expected.counts)
    }

    /// The count is 0 now, but for the `since` events that the counter counted in the kernel on
    /// the way out.
    pub fn reset(&mut self, event: &Event, since: u64) {
        if let Some(expected) = self.events.get_mut(&event.id) {
            expected.count = since.wrapping_sub(event.in_kernel.get());
        }
    }

    /// perf core may have begun a period anew.
    pub fn period(&mut self, event: &Event) {
        let Some((in_kernel, samples)) = event.began.take() else {
            return;
        };
        // Those of the old period.
        self.sampled_in_kernel(event, samples);
        if let Some(expected) = self.events.get_mut(&event.id) {
            expected.period = event.sample_period();
            expected.left = expected.period as i64;
            expected.in_kernel = in_kernel;
        }
    }

    /// A program executed an instruction, and the kernel may have gone on. The event was on the CPU
    /// with its counter running, before.
    pub fn executed(&mut self, event: &Event, instruction: &Instruction, place: Place) {
        let Some(expected) = self.events.get_mut(&event.id) else {
            return;
        };
        if event.excludes_user() {
            return;
        }
        let occurrences = expected.counts.occurrences(instruction);
        expected.count = expected.count.wrapping_add(occurrences);
        if event.sample_period() == 0 || occurrences == 0 {
            return;
        }
        expected.left -= occurrences as i64;
        // An event of the group that overflowed too may have throttled this one first. Its sample
        // comes with its next occurrence then.
        let samples = event.samples.borrow().len();
        let is_throttled = samples == expected.samples && !event.counter_runs();
        if expected.left <= 0 && !is_throttled {
            assert!(
                samples > expected.samples,
                "event {}: a sample is missing",
                event.id
            );
            self.sampled(event, place);
        }
        self.went_on_in_kernel(event);
    }

    /// Compares the next sample, which came at `place`.
    fn sampled(&mut self, event: &Event, place: Place) {
        let Some(expected) = self.events.get_mut(&event.id) else {
            return;
        };
        let sample = event.samples.borrow()[expected.samples];
        let id = event.id;
        assert!(
            expected.left <= 0,
            "event {id}: {} before the sample {sample:x?}",
            expected.left
        );
        assert_eq!(sample.period, expected.period, "event {id}: its period");
        expected.samples += 1;
        expected.period = sample.next_period;
        expected.left += sample.next_period as i64;
        if expected.left <= 0 {
            expected.left = sample.next_period as i64;
        }
        let is_lost = if sample.is_marking {
            check_marked(self.processor, event, &sample, place)
        } else {
            check_place(event, &sample, place);
            false
        };
        // Those of inherited events count with the program's own.
        let owner = event.parent.as_ref().map_or(event.id, |parent| parent.id);
        if let Some(expected) = self.events.get_mut(&owner).filter(|_| is_lost) {
            expected.lost += 1;
        }
    }

    /// Compares samples up to a number, all of what the event counted in the kernel.
    fn sampled_in_kernel(&mut self, event: &Event, samples: usize) {
        while let Some(expected) = self.events.get_mut(&event.id) {
            if expected.samples >= samples {
                return;
            }
            let in_kernel = event.samples.borrow()[expected.samples].in_kernel;
            expected.left -= (in_kernel - expected.in_kernel) as i64;
            expected.in_kernel = in_kernel;
            self.sampled(event, KERNEL);
        }
    }

    /// Compares the samples of what an event has counted in the kernel up to now.
    pub fn went_on_in_kernel(&mut self, event: &Event) {
        let samples = event.samples.borrow().len();
        self.sampled_in_kernel(event, samples);
        if let Some(expected) = self.events.get_mut(&event.id) {
            let in_kernel = event.in_kernel.get();
            expected.left -= (in_kernel - expected.in_kernel) as i64;
            expected.in_kernel = in_kernel;
        }
    }

    /// The kernel worked for a while, and left the PMU alone: samples of what the event counted
    /// there have come. (One of which the period ends as the kernel stops the PMU comes with the
    /// next occurrence.)
    pub fn kernel_worked(&mut self, event: &Event) {
        let before = self
            .events
            .get(&event.id)
            .map(|expected| expected.in_kernel);
        self.went_on_in_kernel(event);
        if let Some(expected) = self.events.get(&event.id) {
            let is_due = event.sample_period() > 0 && expected.left <= 0 && event.counter_runs();
            let has_counted = before != Some(expected.in_kernel);
            assert!(
                !(is_due && has_counted),
                "event {}: a sample is missing",
                event.id
            );
        }
    }

    /// Compares an event, whose counter holds `pmc` if it is on one.
    pub fn check(&mut self, event: &Event, pmc: Option<u32>) {
        self.went_on_in_kernel(event);
        let Some(expected) = self.events.get(&event.id) else {
            return;
        };
        let since = pmc.map_or(0, |pmc| pmc.wrapping_sub(event.prev_count()).into());
        let count = event.count().wrapping_add(since);
        let id = event.id;
        let counted = expected.count.wrapping_add(event.in_kernel.get());
        assert_eq!(count, counted, "event {id}: count");
        let (found, lost) = (event.lost_samples(), expected.lost);
        assert_eq!(found, lost, "event {id}: lost samples");
    }
}

/// SIAR has the instruction, and NIP the next one. The driver takes NIP unless SIER cannot tell
/// that the instruction was the program's, as on v3.1. If the interrupt came in the kernel, NIP
/// is the kernel's; with a SIAR of the kernel the sample of an event that excludes the kernel shows
/// where the program entered it.
fn check_place(event: &Event, sample: &Recorded, place: Place) {
    let Place { address, next, .. } = place;
    let right = if place.siar_is_kernel && event.excludes_kernel() {
        sample.ip == next && sample.nip == next && sample.user
    } else if place.siar_is_kernel {
        sample.ip == KERNEL_TEXT && sample.nip == KERNEL_TEXT && !sample.user
    } else if place.in_kernel {
        sample.ip == address && !sample.user
    } else {
        (sample.ip == next || sample.ip == address) && sample.user && sample.nip == next
    };
    assert!(right, "event {}: {sample:x?} of {place:x?}", event.id);
    let hides = |address: u64| event.excludes_kernel() && address >> 63 != 0;
    let Alert { siar, sdar, .. } = sample.alert;
    let wanted = (event.samples_with(perf_event_sample_format_PERF_SAMPLE_ADDR)
        && !hides(siar)
        && !hides(sdar))
    .then_some(sdar);
    let instruction = !(place.siar_is_kernel && event.excludes_kernel());
    let weight = perf_event_sample_format_PERF_SAMPLE_WEIGHT
        | perf_event_sample_format_PERF_SAMPLE_WEIGHT_STRUCT;
    let weight = (instruction && event.samples_with(weight)).then_some(0);
    let shown = [sample.addr, sample.data_src, sample.weight];
    assert_eq!(
        shown,
        [wanted, None, weight],
        "event {}: {sample:x?}",
        event.id
    );
}

/// With random sampling SIAR and the like have the last marked instruction, whichever event the
/// sample is of. Nothing is known of it if SIAR is not valid, or if SIER, which the event asks for,
/// has a reserved type. Returns whether such a sample counts as lost.
fn check_marked(processor: Processor, event: &Event, sample: &Recorded, place: Place) -> bool {
    let Place { next, .. } = place;
    let (alert, hides) = (sample.alert, event.excludes_kernel());
    let wants = |format: u32| event.samples_with(format);
    let is_valid = alert.sier & sier::SIARV != 0 && alert.siar != 0;
    // As `Syscall` left it, in this step or before.
    let is_kernel = alert.siar >> 63 != 0;
    let marked = marked_at(alert.siar).filter(|_| is_valid && !is_kernel);
    let is_void = marked.is_none_or(|marked| marked.is_void);
    let is_lost = !is_valid || (wants(perf_event_sample_format_PERF_SAMPLE_DATA_SRC) && is_void);
    let shown = [sample.addr, sample.data_src, sample.weight];
    let is_data = alert.sier & sier::SDARV != 0 && !(hides && alert.sdar >> 63 != 0);
    let addr = is_data
        .then_some(alert.sdar)
        .filter(|_| wants(perf_event_sample_format_PERF_SAMPLE_ADDR));
    let is_there = if place.in_kernel && (!hides || !is_lost && !is_kernel) {
        !sample.user
    } else {
        sample.user && sample.nip == next
    };
    let right = is_there
        && if is_lost {
            sample.ip == 0 && shown == [None; 3]
        } else if is_kernel && hides {
            sample.ip == next && shown == [None; 3]
        } else if is_kernel {
            // The threshold counter is still that of a marked instruction.
            sample.ip == alert.siar && sample.addr == addr && sample.data_src.is_none()
        } else if let Some(marked) = marked {
            let data_src = marked.data_src;
            let wanted = [
                addr,
                data_src.filter(|_| wants(perf_event_sample_format_PERF_SAMPLE_DATA_SRC)),
                weight(processor, event, marked),
            ];
            sample.ip == alert.siar && shown == wanted
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
