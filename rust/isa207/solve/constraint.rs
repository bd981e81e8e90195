// SPDX-License-Identifier: GPL-2.0

//! The parts of the PMU that an event needs, and whether several events can share them.
//!
//! There are two kinds of resource: each event takes one counter; and selectors are settings that
//! the PMU has only once, so that events which use a selector must agree on its value. POWER9 adds
//! a rule about the group as a whole.
//!
//! Invariant: the constraints in a [`Constraints`] can always be met together.
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
            Platform,
            Request, //
        }, //
    },
    threshold::Threshold, //
};

/// Returns the field that holds a selector's value in a set of selectors; it fits the largest
/// value.
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

/// The parts of the PMU that an event, or a group of events, needs. The data fits in two words,
/// because the driver adds up a group's constraints whenever an event is opened, and the search
/// does so for every code that it tries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Constraints {
    /// All ones in the lanes of the selectors in use; and [`Constraints::NAMED_PMCS`].
    used: u64,
    /// The selectors' values, 0 in unused lanes; and [`Constraints::PROGRAMMABLE_EVENTS`] and
    /// [`Constraints::BUS_ON_PMC4`].
    values: u64,
}

impl Constraints {
    /// Number of programmable counters.
    const PROGRAMMABLE: u64 = 4;
    /// PMC1 to PMC4 as a set.
    pub(super) const PROGRAMMABLE_PMCS: u8 = 0x0f;

    /// In `used`: the counters that codes name, one bit each ([`Pmc::bit`]).
    const NAMED_PMCS: Field = Field::bits(58, 63);
    /// In `values`: number of events on PMC1 to PMC4, whether or not their codes name one. Four
    /// bits hold the sum of two such numbers.
    const PROGRAMMABLE_EVENTS: Field = Field::bits(60, 63);
    /// In `values`: PMC4 counts an event of units 6 to 9 that comes over POWER9's bus.
    const BUS_ON_PMC4: Field = Field::bits(59, 59);

    /// Adds a selector that is not used yet.
    fn require(&mut self, selector: Selector, value: u64) {
        self.used |= lane(selector).mask();
        self.values |= lane(selector).prep(value);
    }

    /// Returns the constraints of `req` that do not depend on its code.
    pub(super) fn of_request(platform: Platform, req: &Request) -> Self {
        let code = req.event_code();
        let mut this = Self::default();
        this.require(Selector::Ebb, code.is_ebb().into());
        // An EBB program reads the BHRB exactly as it was recorded. A branch stack can be filtered
        // by software, if software filters are allowed.
        let unfiltered = code.is_ebb() || platform.strict_branch_filters;
        if let (true, Some(ifm)) = (unfiltered, req.branch_ifm()) {
            this.require(Selector::BranchFilter, ifm.into());
        }
        this
    }

    /// Returns the constraints of `req`, which must be valid, with the code `code`.
    #[inline(always)] // Saves two calls per opened event; see `Demand::new`.
    pub(super) fn new(
        model: &CpuModel,
        platform: Platform,
        req: &Request,
        code: EventCode,
    ) -> Self {
        let pmc = Pmc::from_number(code.pmc());
        let mut this = Self::of_request(platform, req);
        this.used |= Self::NAMED_PMCS.prep(pmc.map_or(0, Pmc::bit).into());
        // PMC5 and PMC6 use no unit, and no other selector.
        if pmc.is_none_or(Pmc::is_programmable) {
            this.values |= Self::PROGRAMMABLE_EVENTS.prep(1);
            unit_selectors(model, code, &mut this);
            if !code.is_plain() || model.isa == Isa::V207 {
                let rare = rare_selectors(model, code, req.event_code(), req.config1);
                this.used |= rare.used;
                this.values |= rare.values;
            }
            let bus_on_pmc4 = this.on_bus() && pmc == Some(Pmc::Pmc4);
            this.values |= Self::BUS_ON_PMC4.prep(bus_on_pmc4.into());
        }
        this
    }

    /// Returns the constraints of both, or why they cannot be met together.
    #[inline]
    pub(super) fn with(&self, other: &Constraints) -> Result<Constraints, Refusal> {
        let in_both = self.used & other.used;
        if Self::NAMED_PMCS.get(in_both) != 0 {
            return Err(Refusal::PmcTaken);
        }
        let events = Self::PROGRAMMABLE_EVENTS;
        let sum = events
            .get(self.values)
            .wrapping_add(events.get(other.values));
        if sum > Self::PROGRAMMABLE {
            return Err(Refusal::ProgrammableCountersFull);
        }
        let differ = (self.values ^ other.values) & in_both;
        if differ != 0 {
            let culprit = Selector::ALL.iter().find(|s| lane(**s).is_set(differ));
            // INVARIANT: The counter fields are equal here, so `differ` has bits only in lanes and
            // `find` succeeds.
            let culprit = culprit.copied().unwrap_or(Selector::Ebb);
            return Err(Refusal::Conflict(culprit));
        }
        Ok(Constraints {
            used: self.used | other.used,
            values: (self.values | other.values) & !events.mask() | events.prep(sum),
        })
    }

    /// Returns the counters that codes name, one bit each ([`Pmc::bit`]).
    pub(super) const fn named_pmcs(&self) -> u8 {
        // CAST: `NAMED_PMCS` has six bits.
        Self::NAMED_PMCS.get(self.used) as u8
    }

    /// Returns the number of events on PMC1 to PMC4, whether or not their codes name one.
    pub(super) const fn programmable(&self) -> u8 {
        // CAST: `PROGRAMMABLE_EVENTS` has four bits.
        Self::PROGRAMMABLE_EVENTS.get(self.values) as u8
    }

    /// Returns the counters that a single event can use, one bit each.
    pub(super) const fn usable_pmcs(&self) -> u8 {
        match self.named_pmcs() {
            0 => Self::PROGRAMMABLE_PMCS,
            named => named,
        }
    }

    /// Checks POWER9's rule about a whole group.
    pub(super) fn check_group(&self) -> Result<(), Refusal> {
        if self.on_bus() && !Self::BUS_ON_PMC4.is_set(self.values) {
            return Err(Refusal::BusNeedsPmc4);
        }
        Ok(())
    }

    /// Returns whether any event of units 6 to 9 uses POWER9's bus.
    pub(super) const fn on_bus(&self) -> bool {
        self.used & lane(Selector::BusEvent).mask() != 0
    }
}

/// Adds the selectors that depend on the unit of an event on PMC1 to PMC4.
#[inline]
fn unit_selectors(model: &CpuModel, code: EventCode, need: &mut Constraints) {
    let layout = model.layout;
    let cache_sel = layout.cache_sel.get(code.0);

    match (model.isa, code.unit()) {
        // On POWER8 the lower two bits are a qualifier only if bit 2 is set. The L2 and L3 selects
        // are always 0.
        (Isa::V207, _) => {
            if cache_sel & 4 != 0 {
                need.require(Selector::L1Qualifier, cache_sel);
            }
        }
        (Isa::V300, 6..=9) => need.require(Selector::BusEvent, code.pmcxsel()),
        (Isa::V31, 6) => need.require(Selector::L2l3Select, layout.l2l3_sel.get(code.0)),
        (Isa::V31, 7..=9) => {}
        // From POWER9 on, 0 is a qualifier like any other.
        (Isa::V300 | Isa::V31, _) => need.require(Selector::L1Qualifier, cache_sel),
    }
    if model.isa >= Isa::V31 {
        need.require(Selector::RadixScope, layout.radix_scope.get(code.0));
    }
}

/// Returns the other selectors of an event on PMC1 to PMC4. User space gave the code `requested`
/// and `config1`. Except on POWER8, a [plain](EventCode::is_plain) code has no such selectors.
#[cold]
fn rare_selectors(
    model: &CpuModel,
    code: EventCode,
    requested: EventCode,
    config1: u64,
) -> Constraints {
    let mut need = Constraints::default();
    if code.is_marked() {
        need.require(Selector::SampleMode, code.sample_mode());
    } else if model.layout.sdar_mode.is_set(code.0) {
        need.require(Selector::SdarMode, model.layout.sdar_mode.get(code.0));
    }
    if model.is_fab_match(code) {
        need.require(Selector::FabMatch, EventCode::THRESH_CTL.get(code.0));
    } else if code.thresh_sel() != 0 || model.isa == Isa::V207 {
        // POWER8 cannot count events without a threshold beside an event with one.
        need.require(
            Selector::Threshold,
            Threshold::new(model, requested, config1).packed(),
        );
    }
    need
}
