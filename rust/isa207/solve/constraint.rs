// SPDX-License-Identifier: GPL-2.0

//! What an event needs of the PMU, and whether several events can have what they need together.
//!
//! There are two kinds of resource: counters, of which each event takes one, and selectors,
//! settings that the PMU has only once and that events which use them must agree on. POWER9 adds a
//! rule about the group as a whole.
//!
//! Invariant: a [`Constraints`] only ever holds constraints that can be met together.
//!
//! Source: `isa207_get_constraint()` in the kernel's `arch/powerpc/perf/isa207-common.c`.

use super::{
    super::{
        codes::{
            event_code::EventCode,
            field::Field, //
        },
        isa::Isa,
        models::model::CpuModel,
        pmc::Pmc,
        refusal::{
            Refusal,
            Selector, //
        },
        request::{
            Machine,
            Request, //
        }, //
    },
    threshold::Threshold, //
};

/// Where a [`Selectors`] keeps a selector's value: a field wide enough for the largest one.
const fn lane(selector: Selector) -> Field {
    match selector {
        Selector::Threshold => Field::bits(0, 21),
        Selector::SampleMode => Field::bits(22, 26),
        Selector::FabMatch => Field::bits(27, 34),
        Selector::L1Qualifier => Field::bits(35, 36),
        Selector::L2l3Select => Field::bits(37, 41),
        Selector::BusEvent => Field::bits(42, 49),
        Selector::RadixScope => Field::bits(50, 50),
        Selector::SdarMode => Field::bits(51, 52),
        Selector::Ebb => Field::bits(53, 53),
        Selector::BranchFilter => Field::bits(54, 55),
    }
}

/// The selectors that events use, with their values. A word holds them all, as the search compares
/// them for every code that it tries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Selectors {
    /// All ones in the lanes of the selectors in use.
    used: u64,
    /// Their values; 0 in other lanes.
    values: u64,
}

impl Selectors {
    /// Adds a selector that is not in use.
    fn require(&mut self, selector: Selector, value: u64) {
        self.used |= lane(selector).mask();
        self.values |= lane(selector).prep(value);
    }

    /// The selectors of both, or the first one that they disagree on.
    #[inline(always)] // As Constraints::with().
    fn with(&self, other: &Selectors) -> Result<Selectors, Selector> {
        let differ = (self.values ^ other.values) & self.used & other.used;
        if differ != 0 {
            let culprit = Selector::ALL.iter().find(|s| lane(**s).is_set(differ));
            // INVARIANT: `used` has no bit outside the lanes, so there is one.
            return Err(culprit.copied().unwrap_or(Selector::Ebb));
        }
        Ok(Selectors {
            used: self.used | other.used,
            values: self.values | other.values,
        })
    }
}

/// What an event, or a group of events, needs of the PMU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Constraints {
    /// The counters that codes name, a bit each ([`Pmc::bit`]).
    named_pmcs: u8,
    /// Number of events on PMC1 to PMC4, whether their codes name one or not.
    programmable: u8,
    /// PMC4 counts an event of units 6 to 9 that comes over POWER9's bus.
    bus_on_pmc4: bool,
    selectors: Selectors,
}

impl Constraints {
    /// Number of programmable counters.
    const PROGRAMMABLE: u8 = 4;
    /// Those of an event that left, whichever it was: it may have been the one on PMC4.
    pub(super) const OF_ONE_THAT_LEFT: Self = Self {
        named_pmcs: 0,
        programmable: 0,
        bus_on_pmc4: true,
        selectors: Selectors { used: 0, values: 0 },
    };
    /// PMC1 to PMC4 as a set.
    pub(super) const PROGRAMMABLE_PMCS: u8 = 0x0f;

    /// Where [`Constraints::to_words`] keeps what is not a selector: beside those in use, and
    /// beside their values.
    const NAMED_PMCS: Field = Field::bits(56, 61);
    const PROGRAMMABLE_EVENTS: Field = Field::bits(56, 58);
    const BUS_ON_PMC4: Field = Field::bits(59, 59);
    /// The lanes of all selectors.
    const LANES: Field = Field::bits(0, 55);

    /// The constraints as words.
    pub(super) const fn to_words(self) -> [u64; 2] {
        [
            self.selectors.used | Self::NAMED_PMCS.prep(self.named_pmcs as u64),
            self.selectors.values
                | Self::PROGRAMMABLE_EVENTS.prep(self.programmable as u64)
                | Self::BUS_ON_PMC4.prep(self.bus_on_pmc4 as u64),
        ]
    }

    /// The constraints that became these words.
    #[inline(always)] // As Constraints::with().
    pub(super) const fn from_words([used, values]: [u64; 2]) -> Self {
        Self {
            // CAST: Six bits, and three.
            named_pmcs: Self::NAMED_PMCS.get(used) as u8,
            programmable: Self::PROGRAMMABLE_EVENTS.get(values) as u8,
            bus_on_pmc4: Self::BUS_ON_PMC4.is_set(values),
            selectors: Selectors {
                used: Self::LANES.get(used),
                values: Self::LANES.get(values),
            },
        }
    }

    /// The constraints of `req` that do not depend on the code by which it is counted.
    pub(super) fn of_request(machine: Machine, req: &Request) -> Self {
        let code = req.event_code();
        let mut this = Self::default();
        this.selectors.require(Selector::Ebb, code.is_ebb().into());
        // An EBB program reads the BHRB as it was recorded. A branch stack, in contrast, can be
        // filtered later, if software is to.
        let unfiltered = code.is_ebb() || machine.strict_branch_filters;
        if let (true, Some(ifm)) = (unfiltered, req.branch_ifm()) {
            this.selectors.require(Selector::BranchFilter, ifm.into());
        }
        this
    }

    /// The constraints of `req`, which must be valid, if it is counted as `code`.
    #[inline(always)] // For who opens an event, which is most of its work.
    pub(super) fn new(model: &CpuModel, machine: Machine, req: &Request, code: EventCode) -> Self {
        let pmc = Pmc::from_number(code.pmc());
        let mut this = Self::of_request(machine, req);
        this.named_pmcs = pmc.map_or(0, Pmc::bit);
        // PMC5 and PMC6 depend on no unit, and on no further selector.
        if pmc.is_none_or(Pmc::is_programmable) {
            this.programmable = 1;
            unit_selectors(model, req, code, &mut this.selectors);
            this.bus_on_pmc4 = this.on_bus() && pmc == Some(Pmc::Pmc4);
        }
        this
    }

    /// The constraints of both, or why they cannot be met together.
    #[inline(always)] // The search's inner step: a fifth of its time.
    pub(super) fn with(&self, other: &Constraints) -> Result<Constraints, Refusal> {
        if self.named_pmcs & other.named_pmcs != 0 {
            return Err(Refusal::PmcTaken);
        }
        let programmable = self.programmable.wrapping_add(other.programmable);
        if programmable > Self::PROGRAMMABLE {
            return Err(Refusal::ProgrammableCountersFull);
        }
        let selectors = self.selectors.with(&other.selectors);
        Ok(Constraints {
            named_pmcs: self.named_pmcs | other.named_pmcs,
            programmable,
            bus_on_pmc4: self.bus_on_pmc4 | other.bus_on_pmc4,
            selectors: selectors.map_err(Refusal::Conflict)?,
        })
    }

    /// The counters that codes name, a bit each ([`Pmc::bit`]).
    pub(super) const fn named_pmcs(&self) -> u8 {
        self.named_pmcs
    }

    /// Number of events on PMC1 to PMC4, whether their codes name one or not.
    pub(super) const fn programmable(&self) -> u8 {
        self.programmable
    }

    /// The counters that a single event can use, a bit each.
    pub(super) const fn usable_pmcs(&self) -> u8 {
        match self.named_pmcs {
            0 => Self::PROGRAMMABLE_PMCS,
            named => named,
        }
    }

    /// Checks the rule about a whole group.
    pub(super) fn check_group(&self) -> Result<(), Refusal> {
        if self.on_bus() && !self.bus_on_pmc4 {
            return Err(Refusal::BusNeedsPmc4);
        }
        Ok(())
    }

    /// Whether there are events of units 6 to 9 that come over POWER9's bus.
    const fn on_bus(&self) -> bool {
        self.selectors.used & lane(Selector::BusEvent).mask() != 0
    }
}

/// Adds the selectors of an event on PMC1 to PMC4.
#[inline(always)] // As Constraints::new().
fn unit_selectors(model: &CpuModel, req: &Request, code: EventCode, need: &mut Selectors) {
    let layout = model.layout;
    let cache_sel = layout.cache_sel.get(code.0);

    match (model.isa, code.unit()) {
        // On POWER8 the lower two bits are a qualifier only if this one is set; the L2 and L3
        // selects are always 0.
        (Isa::V207, _) => {
            if cache_sel & 4 != 0 {
                need.require(Selector::L1Qualifier, cache_sel);
            }
        }
        (Isa::V300, 6..=9) => need.require(Selector::BusEvent, code.pmcxsel()),
        (Isa::V31, 6) => need.require(Selector::L2l3Select, layout.l2l3_sel.get(code.0)),
        (Isa::V31, 7..=9) => {}
        // From POWER9 on 0 is a qualifier like any other.
        (Isa::V300 | Isa::V31, _) => need.require(Selector::L1Qualifier, cache_sel),
    }
    if model.isa >= Isa::V31 {
        need.require(Selector::RadixScope, layout.radix_scope.get(code.0));
    }
    if code.is_marked() {
        need.require(Selector::SampleMode, code.sample_mode());
    } else if layout.sdar_mode.is_set(code.0) {
        need.require(Selector::SdarMode, layout.sdar_mode.get(code.0));
    }
    if model.is_fab_match(code) {
        need.require(Selector::FabMatch, EventCode::THRESH_CTL.get(code.0));
    } else if code.thresh_sel() != 0 || model.isa == Isa::V207 {
        // POWER8 does not count events without threshold beside one that has one.
        need.require(Selector::Threshold, Threshold::new(model, req).packed());
    }
}
