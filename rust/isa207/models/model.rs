// SPDX-License-Identifier: GPL-2.0

//! A processor's PMU model: the tables that differ between processors.
//!
//! A [`CpuModel`] is data only. Code depends on the generation ([`Isa`]), not on the model.

use super::super::codes::{
    event_code::EventCode,
    layout::FormatField,
    perf_event::{
        CACHE_NAMES,
        GENERIC_NAMES, //
    }, //
};

// The types that a model's tables consist of, for `use super::model::*`.
pub(super) use super::super::{
    codes::{
        layout::Layout,
        perf_event::{
            Cache::*,
            CacheEvent,
            CacheOp::*,
            CacheResult::*,
            GenericEvent::{
                self,
                *, //
            }, //
        }, //
    },
    isa::Isa, //
};

/// An event with a name: one file of sysfs `events/`.
#[derive(Clone, Copy, Debug)]
pub struct NamedEvent {
    /// File name, as `perf list` shows it.
    pub name: &'static str,
    /// Event code.
    pub code: u64,
}

/// Returns an event with a name.
pub(super) const fn named(name: &'static str, code: u64) -> NamedEvent {
    NamedEvent { name, code }
}

/// Codes of perf's generic events.
pub(super) type GenericCodes = &'static [(GenericEvent, u64)];

/// Codes of perf's cache events.
pub(super) type CacheCodes = &'static [(CacheEvent, u64)];

/// Codes that count the same event, in the order in which the solver tries them.
pub(crate) type Codes = &'static [u64];

/// Codes that count wrongly on a revision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blacklist {
    codes: &'static [u64],
    /// A bit for each value that the upper six bits of their PMCxSEL have. Most opened events have
    /// a different value, so `has` need not search.
    selects: u64,
}

impl Blacklist {
    /// The empty list.
    pub(super) const NONE: Self = Self::new(&[]);

    /// Returns the list of these codes.
    pub(super) const fn new(codes: &'static [u64]) -> Self {
        let mut selects = 0;
        let mut rest = codes;
        while let [code, tail @ ..] = rest {
            selects |= Self::select(EventCode(*code));
            rest = tail;
        }
        Self { codes, selects }
    }

    /// Returns the bit of `selects` for a code.
    const fn select(code: EventCode) -> u64 {
        // CAST: PMCxSEL has eight bits, so the value has six.
        1_u64.wrapping_shl((code.pmcxsel() >> 2) as u32)
    }

    /// Returns whether `code` is on the list.
    #[inline]
    pub(crate) fn has(&self, code: EventCode) -> bool {
        self.selects & Self::select(code) != 0 && self.codes.contains(&code.0)
    }
}

/// Codes that count the same while the run latch is on: (run) cycles, and (run) instructions
/// completed.
pub(super) const RUN_LATCH: &[Codes] = &[
    &[0x0001e, 0x600f4, 0x200f4],
    &[0x00002, 0x500fa, 0x400fa], //
];

/// A set of values of the sample mode field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleModes(u32);

impl SampleModes {
    /// The empty set.
    pub(super) const NONE: SampleModes = SampleModes(0);

    /// The modes that POWER9 and later reserve: mode bits 0b11, and eligibilities that have no
    /// meaning in their mode.
    pub(super) const RESERVED: SampleModes = Self::NONE
        .with(&[0x03, 0x07, 0x0b, 0x0f, 0x13, 0x17, 0x1b, 0x1f])
        .with(&[0x05, 0x09, 0x0d, 0x19, 0x1d, 0x1a, 0x1e]);

    /// Returns the set with `modes` (0 to 31) added.
    pub(super) const fn with(mut self, modes: &[u32]) -> Self {
        let mut rest = modes;
        while let [mode, tail @ ..] = rest {
            self.0 |= 1_u32.wrapping_shl(*mode);
            rest = tail;
        }
        self
    }

    /// Returns whether `mode` is in the set.
    pub(crate) fn contains(self, mode: u64) -> bool {
        mode < 32 && (u64::from(self.0) >> mode) & 1 != 0
    }
}

/// A processor's PMU.
#[derive(Debug)]
pub struct CpuModel {
    /// The name that the in-tree driver shows in `caps/pmu_name`.
    pub(super) name: &'static str,
    pub(crate) isa: Isa,
    pub(crate) layout: &'static Layout,
    /// PMC5 and PMC6 count even while the run latch is off (MMCR0\[CC56RUN\]).
    pub(crate) cc56run: bool,
    /// SIER\[SIARV\] is set if SIAR holds the marked instruction. False on POWER10 DD1, which
    /// leaves the bit 0 for some marked instructions.
    pub(super) has_siar_valid: bool,
    /// SIER, SIER2 and MMCRA have data source and latency at the User's Guides' positions.
    pub(crate) has_memory_fields: bool,
    /// Sample modes that the manual reserves.
    pub(crate) reserved_sample_modes: SampleModes,
    /// Codes that count wrongly on this revision.
    pub(crate) blacklist: Blacklist,
    /// Codes that count the same event as others. A code is in one row at most.
    pub(crate) alternatives: &'static [Codes],
    /// Codes that count the same while the run latch is on. A code is in one row at most.
    pub(crate) run_latch: &'static [Codes],
    pub(super) generic_events: GenericCodes,
    pub(super) cache_events: CacheCodes,
    /// Files of sysfs `events/` beyond the generic and cache events.
    pub(super) other_events: &'static [NamedEvent],
}

impl CpuModel {
    /// Returns the name in `caps/pmu_name`, such as `POWER10`.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the generation of the PMU architecture.
    pub const fn isa(&self) -> Isa {
        self.isa
    }

    /// Returns whether SIER\[SIARV\] shows if SIAR holds the marked instruction.
    pub const fn has_siar_valid(&self) -> bool {
        self.has_siar_valid
    }

    /// Returns the files of sysfs `format/`.
    pub fn formats(&self) -> impl Iterator<Item = &'static FormatField> {
        let formats = self.layout.formats.iter();
        formats.filter(|format| format.field.exists())
    }

    /// Returns the files of sysfs `events/`.
    pub fn named_events(&self) -> impl Iterator<Item = NamedEvent> + '_ {
        let generic = GENERIC_NAMES
            .iter()
            .map(|&(name, event)| (name, self.generic_event(event)));
        let cache = CACHE_NAMES
            .iter()
            .map(|&(name, event)| (name, self.cache_event(event)));
        let both = generic.chain(cache);
        let both = both.filter_map(|(name, code)| Some(NamedEvent { name, code: code? }));
        both.chain(self.other_events.iter().copied())
    }

    /// Returns the code that counts a generic event; `None` if this CPU cannot (EOPNOTSUPP to
    /// perf).
    pub fn generic_event(&self, event: GenericEvent) -> Option<u64> {
        code_of(self.generic_events, event)
    }

    /// Returns the code that counts a cache event; `None` if this CPU cannot (EOPNOTSUPP to perf).
    pub fn cache_event(&self, event: CacheEvent) -> Option<u64> {
        code_of(self.cache_events, event)
    }

    /// Returns whether the code is one of POWER8's fabric response events (`PM_MRK_FAB_RSP_MATCH`
    /// and `PM_MRK_FAB_RSP_MATCH_CYC`). Their match value is in the position of other codes'
    /// threshold start and stop. The lowest bit of PMCxSEL only chooses between level and edge.
    pub(crate) fn is_fab_match(&self, code: EventCode) -> bool {
        let event = (code.pmc(), code.unit(), code.pmcxsel() & 0xfe);
        self.isa == Isa::V207 && matches!(event, (3, 0x0, 0x56) | (4, 0xf, 0x52))
    }
}

fn code_of<E: Copy + PartialEq>(table: &[(E, u64)], event: E) -> Option<u64> {
    let row = table.iter().find(|row| row.0 == event)?;
    Some(row.1)
}
