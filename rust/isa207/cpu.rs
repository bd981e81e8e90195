// SPDX-License-Identifier: GPL-2.0

//! The description of a CPU's PMU, and what can be asked of it.
//!
//! A [`CpuModel`] is data only; each lives in a file of its own. What differs
//! between generations of the architecture hangs on [`Isa`], what differs
//! between processors is a field of [`CpuModel`]. To add a processor: one file, one
//! arm in [`CpuModel::from_pvr`].

use super::{
    alternatives::Pair,
    check,
    event_code::EventCode,
    layout::{
        FormatField,
        Layout, //
    },
    perf_event::{
        CacheEvent,
        GenericEvent, //
    },
    power10,
    power11,
    power8,
    power9,
    refusal::Refusal,
    request::{
        Assignment,
        Machine,
        Request, //
    },
    solver, //
};

/// Generation of the PMU architecture, named after the Power ISA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// v2.07: POWER8
    V207,
    /// v3.0: POWER9
    V300,
    /// v3.1: POWER10 and Power11
    V31,
}

/// An event with a name: one file of sysfs `events/`.
#[derive(Clone, Copy, Debug)]
pub struct NamedEvent {
    /// File name, as `perf list` shows it.
    pub name: &'static str,
    /// Event code.
    pub code: u64,
}

/// Shorthand for the tables of the CPUs.
pub(super) const fn named(name: &'static str, code: u64) -> NamedEvent {
    NamedEvent { name, code }
}

/// A set of values of the sample mode field.
#[derive(Debug)]
pub(super) struct SampleModes(u32);

impl SampleModes {
    /// No mode at all.
    pub(super) const NONE: SampleModes = SampleModes(0);

    /// The modes in which no instruction would be marked sensibly on any CPU:
    /// mode bits 0b11, and eligibilities without meaning for the mode.
    pub(super) const RESERVED: SampleModes = Self::NONE
        .with(&[0x03, 0x07, 0x0b, 0x0f, 0x13, 0x17, 0x1b, 0x1f])
        .with(&[0x05, 0x09, 0x0d, 0x19, 0x1d, 0x1a, 0x1e]);

    /// The set with `modes` (0 to 31) added.
    pub(super) const fn with(mut self, modes: &[u32]) -> Self {
        let mut rest = modes;
        while let [mode, tail @ ..] = rest {
            self.0 |= 1_u32.wrapping_shl(*mode);
            rest = tail;
        }
        self
    }

    /// Whether the set has `mode`.
    pub(super) fn contains(&self, mode: u64) -> bool {
        mode < 32 && (u64::from(self.0) >> mode) & 1 != 0
    }
}

/// A processor's PMU.
#[derive(Debug)]
pub struct CpuModel {
    /// As the in-tree driver calls it in `caps/pmu_name`.
    pub(super) name: &'static str,
    pub(super) isa: Isa,
    pub(super) layout: &'static Layout,
    /// Sample modes that the manual reserves.
    pub(super) reserved_sample_modes: &'static SampleModes,
    /// Codes that count wrongly on this revision.
    pub(super) blacklist: &'static [u64],
    /// Pairs of codes that count the same event.
    pub(super) alternatives: &'static [Pair],
    /// Codes of perf's generic events.
    pub(super) generic_events: &'static [(GenericEvent, u64)],
    /// Codes of perf's cache events.
    pub(super) cache_events: &'static [(CacheEvent, u64)],
    /// The files of sysfs `events/`.
    pub(super) named_events: &'static [NamedEvent],
}

impl CpuModel {
    /// The CPU with this processor version register.
    ///
    /// The upper half names the processor; the lower one the revision, on which
    /// blacklists and tables depend. `None` for a processor this driver does
    /// not know, among them logical PVRs of compatibility mode (`0x0f......`).
    pub fn from_pvr(pvr: u32) -> Option<&'static CpuModel> {
        Some(match pvr >> 16 {
            // POWER8E, POWER8NVL, POWER8
            0x004b..=0x004d => &power8::POWER8,
            0x004e => power9::revision(pvr),
            0x0080 => power10::revision(pvr),
            0x0082 => &power11::POWER11,
            _ => return None,
        })
    }

    /// The name in `caps/pmu_name`, such as `POWER10`.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The generation of the PMU architecture.
    pub const fn isa(&self) -> Isa {
        self.isa
    }

    /// The files of sysfs `format/`.
    pub const fn formats(&self) -> &'static [FormatField] {
        self.layout.formats
    }

    /// The files of sysfs `events/`.
    pub const fn named_events(&self) -> &'static [NamedEvent] {
        self.named_events
    }

    /// The code that counts a generic event; `None` if this CPU cannot
    /// (EOPNOTSUPP for perf).
    pub fn generic_event(&self, event: GenericEvent) -> Option<u64> {
        code_of(self.generic_events, event)
    }

    /// The code that counts a cache event; `None` if this CPU cannot
    /// (EOPNOTSUPP for perf).
    pub fn cache_event(&self, event: CacheEvent) -> Option<u64> {
        code_of(self.cache_events, event)
    }

    /// Whether the request is an event this CPU has, wherever and with whatever
    /// else it may count.
    ///
    /// # Errors
    ///
    /// What is wrong with the event itself. An event that passes may still be
    /// refused by [`CpuModel::solve`], even on its own.
    pub fn check(&self, req: &Request) -> Result<(), Refusal> {
        check::check(self, req)
    }

    /// Finds counters for all of `reqs` at the same time and computes the
    /// control registers' images.
    ///
    /// Checks each request as [`CpuModel::check`] does. The same requests give the
    /// same answer every time. No requests at all is a group too: every counter
    /// is free. Takes bounded time: fewer than 20,000 instructions for six events
    /// with the most alternatives, 1,000 for one event.
    ///
    /// # Errors
    ///
    /// What is wrong with the first wrong event, or what first stood in the way
    /// of counting the events together with the codes as given.
    pub fn solve(&self, reqs: &[Request], machine: Machine) -> Result<Assignment, Refusal> {
        solver::solve(self, reqs, machine)
    }

    /// Whether the code is one of POWER8's two fabric response match events
    /// (`PM_MRK_FAB_RSP_MATCH` and `..._CYC`), for which the threshold start
    /// and stop bits hold the value to match. The lowest bit of PMCxSEL only
    /// chooses between level and edge.
    pub(super) fn is_fab_match(&self, code: EventCode) -> bool {
        let event = (code.pmc(), code.unit(), code.pmcxsel() & 0xfe);
        self.isa == Isa::V207 && matches!(event, (3, 0x0, 0x56) | (4, 0xf, 0x52))
    }
}

fn code_of<E: Copy + PartialEq>(table: &[(E, u64)], event: E) -> Option<u64> {
    let row = table.iter().find(|row| row.0 == event)?;
    Some(row.1)
}
