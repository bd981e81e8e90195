// SPDX-License-Identifier: GPL-2.0

//! Checks of what events have counted and sampled. An event counts the instructions of the programs
//! that ran while it was on a CPU with its counter running. Each of its samples comes once, after
//! the end of its period, and shows the instruction that ended it.
//!
//! `Event` keeps the remainder of the period. A sample may be late, because the PM interrupt was
//! delayed or the event left the PMU before it. `history/world/samples.rs` checks that no sample is
//! lost.

use super::program_code::{Marked, marked_at};
use crate::{
    machine::{Alert, with_machine},
    perf_bindings::*,
    perf_core::{Event, Recorded},
};
use pmu_model::{Instruction, Isa, Processor, sier};
use std::collections::HashMap;

/// The occurrences that an event counts.
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

/// Event codes. Each processor accepts a code or refuses it.
pub const CODES: [(u64, Counts); 18] = [
    (0x1e, Counts::Cycles),
    (0x02, Counts::Instructions),
    (0x5_00fa, Counts::Instructions),
    (0x6_00f4, Counts::Cycles),
    (0x1_00f0, Counts::Cycles),
    (INSTRUCTIONS_V300, Counts::Instructions),
    (0x2_00fa, Counts::Branches),
    (0x2_001e, Counts::Cycles),
    (0x3_0002, Counts::Instructions),
    (0x4_001e, Counts::Cycles),
    (0x4_00fa, Counts::Instructions),
    (0x1_0050, Counts::Others),
    // These have a data source to match, on v3.1.
    (0x1_0050 | 0x1235 << 45, Counts::Others),
    (0x3_0050 | 0x2a81 << 45, Counts::Others),
    // Events of POWER9's bus, which need PMC4.
    (0x1_6050, Counts::Others),
    (0x4_6050, Counts::Others),
    // Events with random sampling.
    (0x1_01e0, Counts::Marked),
    (0x4_01e0, Counts::Marked),
];
/// A code that has no known meaning on v2.07.
const INSTRUCTIONS_V300: u64 = 0x1_00fe;
/// Number of [`CODES`] that programs with EBBs use: those without random sampling, because no code
/// saves the threshold counter in MMCRA.
pub const EBB_CODES: usize = 16;

/// Threshold fields of a code: the threshold counter counts, its start and its stop event.
pub const THRESHOLD: u64 = 1 << 29 | 0x21 << 32;

/// Returns whether an event uses random sampling.
pub fn is_marked(event: &Event) -> bool {
    event.attr().config & 0x100 != 0
}

impl Counts {
    /// Returns what an event counts, according to its code.
    pub fn of(event: &Event) -> Self {
        Self::on(with_machine(|machine| machine.kind.processor), event)
    }

    /// Returns what an event counts on a processor.
    pub fn on(processor: Processor, event: &Event) -> Self {
        let code = event.attr().config & !(0b1111 << 60 | THRESHOLD);
        // The ISA defines this event from v3.0 on.
        if code == INSTRUCTIONS_V300 && processor.isa() == Isa::V207 {
            return Self::Others;
        }
        let known = CODES.iter().find(|(known, _)| *known == code);
        known.map_or(Self::Others, |(_, counts)| *counts)
    }

    /// Returns whether an event with a code counts only while the run latch is on.
    ///
    /// These are `PM_RUN_INST_CMPL` and, before v3.1, the events of PMC5 and PMC6. From v3.1 on the
    /// kernel lets PMC5 and PMC6 count all the time (MMCR0\[CC56RUN\]).
    pub fn needs_run_latch(processor: Processor, code: u64) -> bool {
        let fixed = [0x5_00fa, 0x6_00f4].contains(&code);
        code == 0x4_00fa || fixed && processor.isa() < Isa::V31
    }

    /// Returns how often the event occurs in an instruction.
    pub fn occurrences(self, instruction: &Instruction) -> u64 {
        match self {
            Self::Instructions => 1,
            Self::Cycles => instruction.cycles.into(),
            Self::Branches => instruction.branch.is_some().into(),
            Self::Others => instruction.others.into(),
            Self::Marked => instruction.marked.is_some().into(),
        }
    }
}

/// The correct counts of all events in programs, by their numbers.
#[derive(Default)]
pub struct Oracle {
    counts: HashMap<usize, u64>,
}

impl Oracle {
    /// Adds an event that was opened.
    pub fn open(&mut self, event: &Event) {
        self.counts.insert(event.id, 0);
    }

    /// Resets the count of an event. It is now 0, except for the `since` events that the counter
    /// counted in the kernel before the reset.
    pub fn reset(&mut self, event: &Event, since: u64) {
        self.open(event);
        event.in_kernel.set(since);
    }

    /// Exchanges the counts of two events in programs. `PerfCore` has exchanged those in the
    /// kernel.
    pub fn exchange(&mut self, event: usize, other: usize) {
        let counts = [event, other].map(|event| self.counts[&event]);
        self.counts.extend([(event, counts[1]), (other, counts[0])]);
    }

    /// Counts an instruction of a program for an event that was on the CPU with its counter
    /// running.
    pub fn executed(&mut self, event: &Event, instruction: &Instruction) {
        if event.excludes_user() {
            return;
        }
        let occurrences = Counts::of(event).occurrences(instruction);
        event.occurred(occurrences);
        if let Some(count) = self.counts.get_mut(&event.id) {
            *count += occurrences;
        }
    }

    /// Checks the count of an event. `pmc` is the value of its counter if it is on one.
    pub fn check(&self, event: &Event, pmc: Option<u32>) {
        let since = pmc.map_or(0, |pmc| pmc.wrapping_sub(event.prev_count()).into());
        let count = event.count().wrapping_add(since);
        let id = event.id;
        let counted = self.counts[&id] + event.in_kernel.get();
        assert_eq!(count, counted, "event {id}: count");
        let lost = event.lost_samples();
        assert_eq!(lost, event.lost.get(), "event {id}: lost samples");
    }
}

/// Checks a sample as it is recorded. Fails with a description of the error.
pub fn check_sample(
    processor: Processor,
    event: &Event,
    sample: &Recorded,
    alert: Alert,
) -> Result<(), String> {
    let Some(period) = event.end_period() else {
        return Err(format!("its period has {} left", event.left()));
    };
    if sample.period != period {
        return Err(format!("it stands for a period of {period}"));
    }
    if let Some(sampled) = alert.sampled {
        // Before the driver lets the PMU mark instructions it clears both registers, SDAR first.
        let is_cleared = alert.is_marking && !alert.in_program && alert.sdar == 0;
        let is_data = !alert.is_sdar_known || alert.sdar == sampled.data || is_cleared;
        if alert.siar != sampled.address || !is_data {
            return Err("SIAR and SDAR are something else".into());
        }
    }
    if sample.addr.is_some_and(|data| !event.may_show(data)) {
        return Err("it shows a data address of another program".into());
    }
    let right = if alert.is_marking {
        let lost = is_lost(event, alert);
        if lost {
            event.lose(1);
        } else if alert.sampled.is_none() {
            return Err("no instruction was marked".into());
        }
        is_right_marked(processor, event, sample, alert, lost)
    } else {
        is_right(event, sample, alert)
    };
    right
        .then_some(())
        .ok_or_else(|| "it shows something else".into())
}

/// Returns whether perf core got the registers of the place where the program entered the kernel,
/// or those of the interrupt if there is no program.
fn is_at_entry(sample: &Recorded, alert: Alert) -> bool {
    match alert.program {
        Some(next) => sample.nip == next && sample.user,
        None => is_at_interrupt(sample, alert),
    }
}

/// Returns whether perf core got the registers of the interrupt.
fn is_at_interrupt(sample: &Recorded, alert: Alert) -> bool {
    sample.nip == alert.nip && sample.user == alert.in_program
}

fn is_kernel(address: u64) -> bool {
    address >> 63 != 0
}

/// Returns whether a sample without random sampling shows the right place and values.
///
/// SIAR has the instruction, and NIP the next one. The driver uses NIP where that is as close. If
/// the driver has written SIAR since the alert, because it disabled the PMU, the place is that of
/// the interrupt, which comes when the PMU is enabled again. An event that excludes the kernel
/// shows the place where the program entered the kernel instead of one in the kernel.
fn is_right(event: &Event, sample: &Recorded, alert: Alert) -> bool {
    let wants_data = event.samples_with(perf_event_sample_format_PERF_SAMPLE_ADDR);
    let places = match alert.sampled {
        Some(sampled) if alert.in_program && !is_kernel(sampled.address) => {
            vec![sampled.address, alert.nip]
        }
        // The handler had read MMCR0 before the alert, and considers SIAR undefined.
        Some(sampled) if alert.is_late => vec![sampled.address, alert.nip],
        Some(sampled) => vec![sampled.address],
        None => vec![alert.nip],
    };
    if event.excludes_kernel() && places.iter().any(|place| is_kernel(*place)) {
        let entry = alert.program.unwrap_or(0);
        let shown = [sample.addr, sample.data_src, sample.weight];
        return sample.ip == entry && is_at_entry(sample, alert) && shown == [None; 3];
    }
    let is_visible = !(event.excludes_kernel() && is_kernel(alert.sdar));
    let data = (wants_data && is_visible).then_some(alert.sdar);
    let is_data = sample.addr == data || !alert.is_sdar_known && wants_data;
    // Outside of random sampling the source of data is in implementation-specific bits of SIER.
    let wants_source = event.samples_with(perf_event_sample_format_PERF_SAMPLE_DATA_SRC);
    let is_described =
        sample.weight == weight(event, 0, 0) && (sample.data_src.is_none() || wants_source);
    places.contains(&sample.ip) && is_at_interrupt(sample, alert) && is_data && is_described
}

/// Returns the description of the instruction in SIER, if random sampling marked it.
fn marked(alert: Alert) -> Option<Marked> {
    let is_valid = alert.sier & sier::SIARV != 0 && alert.siar != 0;
    let sampled = alert
        .sampled
        .filter(|sampled| sampled.is_marked && is_valid)?;
    marked_at(sampled.described)
}

/// Returns whether a sample with random sampling counts as lost: SIAR is not valid, or the type in
/// SIER, which the event needs, is a reserved one.
fn is_lost(event: &Event, alert: Alert) -> bool {
    let is_valid = alert.sier & sier::SIARV != 0 && alert.siar != 0;
    let is_void = marked(alert).is_none_or(|marked| marked.is_void);
    let wants_source = event.samples_with(perf_event_sample_format_PERF_SAMPLE_DATA_SRC);
    !is_valid || (wants_source && is_void)
}

/// Returns whether a sample with random sampling is right. SIAR and the other registers describe
/// the last marked instruction, whichever event the sample belongs to.
fn is_right_marked(
    processor: Processor,
    event: &Event,
    sample: &Recorded,
    alert: Alert,
    is_lost: bool,
) -> bool {
    let wants = |format: u32| event.samples_with(format);
    let shown = [sample.addr, sample.data_src, sample.weight];
    // SIAR may have an instruction that was traced after the alert.
    let by_sier = processor.has_reliable_sipr() && alert.sier & sier::SIPR == 0;
    let is_of_kernel = is_kernel(alert.siar) || by_sier;
    if is_lost || (event.excludes_kernel() && is_of_kernel) {
        let ip = if is_lost {
            0
        } else {
            alert.program.unwrap_or(0)
        };
        let is_there = if event.excludes_kernel() {
            is_at_entry(sample, alert)
        } else {
            is_at_interrupt(sample, alert)
        };
        return sample.ip == ip && is_there && shown == [None; 3];
    }
    let is_visible = !(event.excludes_kernel() && is_kernel(alert.sdar));
    let is_data = alert.sier & sier::SDARV != 0 && is_visible;
    let wants_addr = wants(perf_event_sample_format_PERF_SAMPLE_ADDR);
    let addr = (is_data && wants_addr).then_some(alert.sdar);
    let is_described = match marked(alert) {
        Some(marked) => {
            let source = wants(perf_event_sample_format_PERF_SAMPLE_DATA_SRC);
            let data_src = marked.data_src.filter(|_| source);
            shown == [addr, data_src, marked_weight(processor, event, marked)]
        }
        // A kernel instruction that was not marked: the model provides only its address.
        None => sample.addr == addr,
    };
    sample.ip == alert.siar && is_at_interrupt(sample, alert) && is_described
}

/// Returns the weight in a sample of a marked instruction. From v3.1 on the structure has the
/// cycles to finish and to dispatch after the latency.
fn marked_weight(processor: Processor, event: &Event, marked: Marked) -> Option<u64> {
    let latency = if marked.is_void { 0 } else { marked.latency };
    let cycles = u64::from(marked.mark.finish) << 32 | u64::from(marked.mark.dispatch) << 48;
    let v31 = processor.isa() >= Isa::V31;
    weight(event, latency, if v31 { cycles } else { 0 })
}

/// Returns the weight in a sample, in the form that the event requests. Only the structure has the
/// cycles. Both values are 0 for an instruction that is not marked.
fn weight(event: &Event, latency: u64, cycles: u64) -> Option<u64> {
    if event.samples_with(perf_event_sample_format_PERF_SAMPLE_WEIGHT) {
        return Some(latency);
    }
    event
        .samples_with(perf_event_sample_format_PERF_SAMPLE_WEIGHT_STRUCT)
        .then_some(latency | cycles)
}
