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

/// Where a set of selectors keeps a selector's value: a field wide enough for the largest one.
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

/// What an event, or a group of events, needs of the PMU. Two words hold it all, as a driver adds
/// up those of a group for every event that is opened, and the search for every code that it tries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Constraints {
    /// All ones in the lanes of the selectors in use; and [`Constraints::NAMED_PMCS`].
    used: u64,
    /// Their values, 0 in other lanes; and [`Constraints::PROGRAMMABLE_EVENTS`] and
    /// [`Constraints::BUS_ON_PMC4`].
    values: u64,
}

impl Constraints {
    /// Number of programmable counters.
    const PROGRAMMABLE: u64 = 4;
    /// PMC1 to PMC4 as a set.
    pub(super) const PROGRAMMABLE_PMCS: u8 = 0x0f;

    /// In `used`: the counters that codes name, a bit each ([`Pmc::bit`]).
    const NAMED_PMCS: Field = Field::bits(58, 63);
    /// In `values`: number of events on PMC1 to PMC4, whether their codes name one or not. The sum
    /// of two numbers has four bits.
    const PROGRAMMABLE_EVENTS: Field = Field::bits(60, 63);
    /// In `values`: PMC4 counts an event of units 6 to 9 that comes over POWER9's bus.
    const BUS_ON_PMC4: Field = Field::bits(59, 59);

    /// Adds a selector that is not in use.
    fn require(&mut self, selector: Selector, value: u64) {
        self.used |= lane(selector).mask();
        self.values |= lane(selector).prep(value);
    }

    /// The constraints of `req` that do not depend on the code by which it is counted.
    pub(super) fn of_request(machine: Machine, req: &Request) -> Self {
        let code = req.event_code();
        let mut this = Self::default();
        this.require(Selector::Ebb, code.is_ebb().into());
        // An EBB program reads the BHRB as it was recorded. A branch stack, in contrast, can be
        // filtered later, if software is to.
        let unfiltered = code.is_ebb() || machine.strict_branch_filters;
        if let (true, Some(ifm)) = (unfiltered, req.branch_ifm()) {
            this.require(Selector::BranchFilter, ifm.into());
        }
        this
    }

    /// The constraints of `req`, which must be valid, if it is counted as `code`.
    #[inline(always)] // See `Demand::new`.
    pub(super) fn new(model: &CpuModel, machine: Machine, req: &Request, code: EventCode) -> Self {
        let pmc = Pmc::from_number(code.pmc());
        let mut this = Self::of_request(machine, req);
        this.used |= Self::NAMED_PMCS.prep(pmc.map_or(0, Pmc::bit).into());
        // PMC5 and PMC6 depend on no unit, and on no further selector.
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

    /// The constraints of both, or why they cannot be met together.
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
            // INVARIANT: `in_both` has no bit outside the lanes here, so there is one.
            let culprit = culprit.copied().unwrap_or(Selector::Ebb);
            return Err(Refusal::Conflict(culprit));
        }
        Ok(Constraints {
            used: self.used | other.used,
            values: (self.values | other.values) & !events.mask() | events.prep(sum),
        })
    }

    /// The counters that codes name, a bit each ([`Pmc::bit`]).
    pub(super) const fn named_pmcs(&self) -> u8 {
        // CAST: Six bits.
        Self::NAMED_PMCS.get(self.used) as u8
    }

    /// Number of events on PMC1 to PMC4, whether their codes name one or not.
    pub(super) const fn programmable(&self) -> u8 {
        // CAST: Four bits.
        Self::PROGRAMMABLE_EVENTS.get(self.values) as u8
    }

    /// The counters that a single event can use, a bit each.
    pub(super) const fn usable_pmcs(&self) -> u8 {
        match self.named_pmcs() {
            0 => Self::PROGRAMMABLE_PMCS,
            named => named,
        }
    }

    /// Checks the rule about a whole group.
    pub(super) fn check_group(&self) -> Result<(), Refusal> {
        if self.on_bus() && !Self::BUS_ON_PMC4.is_set(self.values) {
            return Err(Refusal::BusNeedsPmc4);
        }
        Ok(())
    }

    /// Whether there are events of units 6 to 9 that come over POWER9's bus.
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
}

/// The other selectors of an event on PMC1 to PMC4, for which user space gave the code `asked` and
/// this `config1`: no [plain](EventCode::is_plain) code has any, except on POWER8.
#[cold]
fn rare_selectors(
    model: &CpuModel,
    code: EventCode,
    asked: EventCode,
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
        // POWER8 does not count events without threshold beside one that has one.
        need.require(
            Selector::Threshold,
            Threshold::new(model, asked, config1).packed(),
        );
    }
    need
}
