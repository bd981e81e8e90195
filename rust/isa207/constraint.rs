// SPDX-License-Identifier: GPL-2.0

//! What an event demands of the PMU, and whether the demands of several events
//! go together.
//!
//! Two kinds of resource exist: counters, of which each event takes one, and
//! selectors, settings that the PMU has only once and on which all events that
//! use them must agree. POWER9 adds one rule about the group as a whole.
//!
//! Invariant: a [`Tally`] only ever holds demands that go together.
//!
//! Source: `isa207_get_constraint()` in the kernel's
//! `arch/powerpc/perf/isa207-common.c`.

use super::cpu::Cpu;
use super::cpu::Isa;
use super::event_code::EventCode;
use super::layout::Field;
use super::refusal::Refusal;
use super::request::Pmc;
use super::request::Request;
use super::threshold::Threshold;

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
    fn merge(self, other: Selectors) -> Result<Selectors, Selector> {
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

/// What one event demands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Constraint {
    /// The counter, or `None` for any of PMC1 to PMC4.
    pub(super) pmc: Option<Pmc>,
    selectors: Selectors,
    /// The event comes over POWER9's bus from units 6 to 9.
    on_bus: bool,
}

impl Constraint {
    /// The demands of `req` if it is counted as `code`, which must have passed
    /// [`check`](super::check::check).
    pub(super) fn new(cpu: &Cpu, req: &Request, code: EventCode) -> Self {
        let mut this = Self {
            pmc: Pmc::from_number(code.pmc()),
            ..Self::default()
        };
        // PMC5 and PMC6 listen to no unit and heed no selector but these.
        if this.pmc.is_none_or(Pmc::is_programmable) {
            this.selectors = unit_selectors(cpu, req, code);
            this.on_bus = cpu.isa == Isa::V300 && matches!(code.unit(), 6..=9);
        }
        this.selectors.require(Selector::Ebb, code.is_ebb().into());
        if code.wants_bhrb() {
            this.selectors.require(Selector::BranchFilter, code.ifm());
        }
        if let Some(ifm) = req.branch_filter_ifm {
            this.selectors.require(Selector::BranchFilter, ifm.into());
        }
        this
    }
}

/// The selectors of an event on PMC1 to PMC4.
fn unit_selectors(cpu: &Cpu, req: &Request, code: EventCode) -> Selectors {
    let layout = cpu.layout;
    let mut need = Selectors::default();
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
    need
}

/// The demands of several events together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Counters that events name, a bit each ([`Pmc::bit`]).
    pub(super) named: u8,
    /// Number of events on PMC1 to PMC4, named or not.
    programmable: u8,
    selectors: Selectors,
    on_bus: bool,
    bus_on_pmc4: bool,
}

impl Tally {
    /// Number of programmable counters.
    const PROGRAMMABLE: u8 = 4;

    /// The tally with one more event, or why the event does not go together
    /// with the others.
    pub(super) fn with(mut self, event: &Constraint) -> Result<Tally, Refusal> {
        let bit = event.pmc.map_or(0, Pmc::bit);
        if self.named & bit != 0 {
            return Err(Refusal::PmcTaken);
        }
        self.named |= bit;
        if event.pmc.is_none_or(Pmc::is_programmable) {
            if self.programmable == Self::PROGRAMMABLE {
                return Err(Refusal::ProgrammableCountersFull);
            }
            self.programmable = self.programmable.wrapping_add(1);
        }
        let merged = self.selectors.merge(event.selectors);
        self.selectors = merged.map_err(Refusal::Conflict)?;
        self.on_bus |= event.on_bus;
        self.bus_on_pmc4 |= event.on_bus && event.pmc == Some(Pmc::Pmc4);
        Ok(self)
    }

    /// Whether the group as a whole can count.
    pub(super) fn complete(&self) -> Result<(), Refusal> {
        if self.on_bus && !self.bus_on_pmc4 {
            return Err(Refusal::BusNeedsPmc4);
        }
        Ok(())
    }
}
