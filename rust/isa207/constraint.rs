// SPDX-License-Identifier: GPL-2.0

//! What an event demands of the PMU, and whether the demands of several events
//! go together.
//!
//! Two kinds of resource exist: counters, of which each event takes one, and
//! selectors, settings that the PMU has only once and on which all events that
//! use them must agree. POWER9 adds one rule about the group as a whole.
//!
//! Invariant: a [`Demands`] only ever holds demands that go together.
//!
//! Source: `isa207_get_constraint()` in the kernel's
//! `arch/powerpc/perf/isa207-common.c`.

use super::{
    cpu::{
        CpuModel,
        Isa, //
    },
    event_code::EventCode,
    layout::Field,
    refusal::Refusal,
    request::{
        Pmc,
        Request, //
    },
    threshold::Threshold, //
};

/// A setting that the PMU has only once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Threshold start, stop, select and compare.
    Threshold,
    /// Which instructions are marked, and when.
    SampleMode,
    /// Match value of POWER8's fabric response events.
    FabMatch,
    /// Source qualifier of L1 reload events.
    L1Qualifier,
    /// The group of L2/L3 events on POWER10's bus.
    L2l3Select,
    /// The event of units 6 to 9 on POWER9's bus.
    BusEvent,
    /// Scope of radix translation events.
    RadixScope,
    /// When SDAR is updated.
    SdarMode,
    /// Whether the PMU raises event based branches or interrupts.
    Ebb,
    /// Which branches the BHRB records.
    BranchFilter,
}

impl Selector {
    /// Each selector once.
    const ALL: [Selector; 10] = [
        Self::Threshold,
        Self::SampleMode,
        Self::FabMatch,
        Self::L1Qualifier,
        Self::L2l3Select,
        Self::BusEvent,
        Self::RadixScope,
        Self::SdarMode,
        Self::Ebb,
        Self::BranchFilter,
    ];

    /// Where a [`Selectors`] keeps the value, wide enough for the largest one.
    const fn lane(self) -> Field {
        match self {
            Self::Threshold => Field::bits(0, 21),
            Self::SampleMode => Field::bits(22, 26),
            Self::FabMatch => Field::bits(27, 34),
            Self::L1Qualifier => Field::bits(35, 36),
            Self::L2l3Select => Field::bits(37, 41),
            Self::BusEvent => Field::bits(42, 49),
            Self::RadixScope => Field::bits(50, 50),
            Self::SdarMode => Field::bits(51, 52),
            Self::Ebb => Field::bits(53, 53),
            Self::BranchFilter => Field::bits(54, 55),
        }
    }

    /// What to tell someone whose events disagree on it.
    pub(super) const fn conflict_reason(self) -> &'static str {
        match self {
            Self::Threshold => "two events want different thresholds",
            Self::SampleMode => "two marked events want different sample modes",
            Self::FabMatch => "two events want different fabric match values",
            Self::L1Qualifier => "two events want different L1 cache selects",
            Self::L2l3Select => "two events want different L2/L3 selects",
            Self::BusEvent => "two different events of units 6 to 9",
            Self::RadixScope => "two events want different radix scopes",
            Self::SdarMode => "two events want different SDAR modes",
            Self::Ebb => "EBB events and others do not mix",
            Self::BranchFilter => "two events want different branch filters",
        }
    }
}

/// The selectors that events use, with their values. All fit into one word
/// each, as the search compares them at every step.
#[derive(Clone, Copy, Debug, Default)]
struct Selectors {
    /// All ones in the lanes of the selectors in use.
    used: u64,
    /// Their values; 0 elsewhere.
    values: u64,
}

impl Selectors {
    /// Also demands `value` of `selector`.
    fn require(&mut self, selector: Selector, value: u64) {
        self.used |= selector.lane().mask();
        self.values |= selector.lane().put(value);
    }

    /// Both sets' demands, or the first selector they disagree on.
    #[inline(always)] // For the sake of Demands::with().
    fn merge(&self, other: &Selectors) -> Result<Selectors, Selector> {
        let differ = (self.values ^ other.values) & self.used & other.used;
        if differ != 0 {
            let culprit = Selector::ALL.iter().find(|s| s.lane().is_set(differ));
            // INVARIANT: `used` has no bit outside the lanes, so there is one.
            return Err(culprit.copied().unwrap_or(Selector::Ebb));
        }
        Ok(Selectors {
            used: self.used | other.used,
            values: self.values | other.values,
        })
    }
}

/// What an event, or a group of them, demands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demands {
    /// The counters that events name, a bit each ([`Pmc::bit`]).
    named: u8,
    /// Number of events on PMC1 to PMC4, whether they name one or not.
    programmable: u8,
    /// PMC4 counts an event that comes over POWER9's bus from units 6 to 9.
    bus_on_pmc4: bool,
    selectors: Selectors,
}

impl Demands {
    /// Number of programmable counters.
    const PROGRAMMABLE: u8 = 4;
    /// PMC1 to PMC4 as a set.
    const PROGRAMMABLE_COUNTERS: u8 = 0x0f;

    /// What `req` demands whichever code it is counted by.
    pub(super) fn of_request(req: &Request) -> Self {
        let code = req.event_code();
        let mut this = Self::default();
        this.selectors.require(Selector::Ebb, code.is_ebb().into());
        // Only a program that reads the BHRB itself depends on the filter; a branch
        // stack can be filtered afterwards.
        if let (true, Some(ifm)) = (code.is_ebb(), req.branch_ifm()) {
            this.selectors.require(Selector::BranchFilter, ifm.into());
        }
        this
    }

    /// The demands of `req` if it is counted as `code`, which must have passed
    /// [`check`](super::check::check).
    pub(super) fn new(cpu: &CpuModel, req: &Request, code: EventCode) -> Self {
        let pmc = Pmc::from_number(code.pmc());
        let mut this = Self::of_request(req);
        this.named = pmc.map_or(0, Pmc::bit);
        // PMC5 and PMC6 listen to no unit and heed no selector but those.
        if pmc.is_none_or(Pmc::is_programmable) {
            this.programmable = 1;
            unit_selectors(cpu, req, code, &mut this.selectors);
            this.bus_on_pmc4 = this.on_bus() && pmc == Some(Pmc::Pmc4);
        }
        this
    }

    /// The demands of both, or why they do not go together.
    #[inline(always)] // The search's inner step: a fifth of its time.
    pub(super) fn with(&self, other: &Demands) -> Result<Demands, Refusal> {
        if self.named & other.named != 0 {
            return Err(Refusal::PmcTaken);
        }
        let programmable = self.programmable.wrapping_add(other.programmable);
        if programmable > Self::PROGRAMMABLE {
            return Err(Refusal::ProgrammableCountersFull);
        }
        let selectors = self.selectors.merge(&other.selectors);
        Ok(Demands {
            named: self.named | other.named,
            programmable,
            bus_on_pmc4: self.bus_on_pmc4 | other.bus_on_pmc4,
            selectors: selectors.map_err(Refusal::Conflict)?,
        })
    }

    /// The counters that events name, a bit each ([`Pmc::bit`]).
    pub(super) const fn named(&self) -> u8 {
        self.named
    }

    /// Number of events on PMC1 to PMC4, whether they name one or not.
    pub(super) const fn programmable(&self) -> u8 {
        self.programmable
    }

    /// The counters that a single event can use, a bit each.
    pub(super) const fn counters(&self) -> u8 {
        match self.named {
            0 => Self::PROGRAMMABLE_COUNTERS,
            named => named,
        }
    }

    /// Whether these can be the demands of a whole group.
    pub(super) fn complete(&self) -> Result<(), Refusal> {
        if self.on_bus() && !self.bus_on_pmc4 {
            return Err(Refusal::BusNeedsPmc4);
        }
        Ok(())
    }

    /// Whether there are events that come over POWER9's bus from units 6 to 9.
    const fn on_bus(&self) -> bool {
        self.selectors.used & Selector::BusEvent.lane().mask() != 0
    }
}

/// Adds the selectors of an event on PMC1 to PMC4.
fn unit_selectors(cpu: &CpuModel, req: &Request, code: EventCode, need: &mut Selectors) {
    let layout = cpu.layout;
    let cache_sel = layout.cache_sel.of(code.0);

    match (cpu.isa, code.unit()) {
        // POWER8 leaves the qualifier alone unless the event says that it has
        // one; its L2 and L3 selects are always 0.
        (Isa::V207, _) => {
            if cache_sel & 4 != 0 {
                need.require(Selector::L1Qualifier, cache_sel);
            }
        }
        (Isa::V300, 6..=9) => need.require(Selector::BusEvent, code.pmcxsel()),
        (Isa::V31, 6) => need.require(Selector::L2l3Select, layout.l2l3_sel.of(code.0)),
        (Isa::V31, 7..=9) => {}
        // From POWER9 on 0 is a qualifier as good as any.
        (Isa::V300 | Isa::V31, _) => need.require(Selector::L1Qualifier, cache_sel),
    }
    if cpu.isa >= Isa::V31 {
        need.require(Selector::RadixScope, layout.radix_scope.of(code.0));
    }
    if code.is_marked() {
        need.require(Selector::SampleMode, code.sample_mode());
    } else if layout.sdar_mode.is_set(code.0) {
        need.require(Selector::SdarMode, layout.sdar_mode.of(code.0));
    }
    if cpu.is_fab_match(code) {
        need.require(Selector::FabMatch, EventCode::THRESH_CTL.of(code.0));
    } else if code.thresh_sel() != 0 || cpu.isa == Isa::V207 {
        // POWER8 does not count plain events beside a threshold.
        need.require(Selector::Threshold, Threshold::new(cpu, req).packed());
    }
}
