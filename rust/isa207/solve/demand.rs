// SPDX-License-Identifier: GPL-2.0

//! What an event asks of the PMU when it is counted by a certain code: its constraints, and what it
//! adds to the control registers' images.
//!
//! That is the same whatever the event counts beside, so the driver has it worked out once, when
//! the event is opened, and keeps it with the event. Whether a group can count by the codes asked
//! for, and with which images, is then found by adding up what its events ask.

use super::{
    super::{
        codes::{
            event_code::EventCode,
            field::Field, //
        },
        models::model::CpuModel,
        pmc::Pmc,
        refusal::Refusal,
        request::{
            Machine,
            Request, //
        }, //
    },
    constraint::Constraints,
    mmcr,
    threshold::Threshold, //
};

/// What an event asks of the PMU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    pub(super) constraints: Constraints,
    /// The event's part of MMCR1, but for what depends on a counter that the code does not name.
    pub(super) mmcr1: u64,
    /// The event's part of MMCRA, without the BHRB's, and with the SDAR mode as it asks for it.
    pub(super) mmcra: u64,
    /// The rest, in the fields below.
    rest: u64,
}

impl Demand {
    /// Number of words that a demand can be kept in.
    pub const WORDS: usize = 5;

    /// MMCR1: the counter's unit; as the next two, unless the code names the counter.
    pub(super) const UNIT: Field = Field::bits(0, 3);
    /// MMCR1: the counter's PMCxCOMB.
    pub(super) const COMBINE: Field = Field::bits(4, 5);
    /// MMCR1: the counter's PMCxSEL.
    pub(super) const PMCXSEL: Field = Field::bits(8, 15);
    /// MMCR3: the data source that the counter matches.
    pub(super) const SOURCE: Field = Field::bits(16, 30);
    /// MMCR2: the states in which the counter is frozen.
    pub(super) const FREEZE: Field = Field::bits(32, 40);
    /// MMCR2: the group of L2 and L3 events.
    pub(super) const L2L3_SEL: Field = Field::bits(44, 48);
    /// Whether the event uses the BHRB.
    const BRANCHES: Field = Field::bits(52, 52);
    /// MMCRA: the BHRB filter that it wants then.
    const IFM: Field = Field::bits(53, 54);

    /// What `req`, which must be valid, asks for if it is counted as `code`.
    #[inline(always)] // As Constraints::new().
    pub(super) fn new(model: &CpuModel, machine: Machine, req: &Request, code: EventCode) -> Self {
        let frozen = mmcr::frozen_states(model.isa, req, machine);
        let mut this = Self {
            constraints: Constraints::new(model, machine, req, code),
            mmcr1: 0,
            mmcra: 0,
            rest: 0,
        };
        // PMC5 and PMC6 have no selects.
        if this.constraints.programmable() != 0 {
            this.rest = Self::UNIT.prep(code.unit())
                | Self::COMBINE.prep(model.layout.combine.get(code.0))
                | Self::PMCXSEL.prep(code.pmcxsel());
            if let Some(pmc) = this.named_pmc() {
                this.mmcr1 = mmcr::counter_select(model, pmc, &this);
                this.rest = 0;
            }
        }
        this.rest |= Self::FREEZE.prep(frozen);
        if !code.is_plain() {
            let threshold = Threshold::new(model, req.event_code(), req.config1);
            this.add_rare(model, threshold, code);
        }
        if let Some(ifm) = req.branch_ifm() {
            this.rest |= Self::BRANCHES.prep(1) | Self::IFM.prep(ifm.into());
        }
        this
    }

    /// Adds what no [plain](EventCode::is_plain) code asks for.
    #[inline(always)] // As Constraints::new().
    fn add_rare(&mut self, model: &CpuModel, threshold: Threshold, code: EventCode) {
        self.mmcra = mmcr::sampling(model, threshold, code);
        self.rest |= Self::L2L3_SEL.prep(model.layout.l2l3_sel.get(code.0));
        if self.constraints.programmable() != 0 {
            self.mmcr1 |= mmcr::shared_select(model, code);
            self.rest |= Self::SOURCE.prep(model.layout.source.get(code.0));
        }
    }

    /// One of the fields above.
    pub(super) const fn get(&self, field: Field) -> u64 {
        field.get(self.rest)
    }

    /// The BHRB filter that the event wants; `None` if it does not use the BHRB.
    pub(super) const fn branch_ifm(&self) -> Option<u64> {
        if Self::BRANCHES.is_set(self.rest) {
            Some(self.get(Self::IFM))
        } else {
            None
        }
    }

    /// Whether there is nothing but [`Demand::FREEZE`] to be put in its place, as for most events
    /// whose code names a counter.
    #[inline]
    pub(super) const fn is_simple(&self) -> bool {
        self.rest & !Self::FREEZE.mask() == 0
    }

    /// Not 0 if it asks for something, in the fields above, that is not of its counter alone.
    /// [`Demand::SOURCE`] is, but hardly any event has one.
    #[inline]
    pub(super) const fn shared(&self) -> u64 {
        let own = Self::UNIT.mask() | Self::COMBINE.mask() | Self::PMCXSEL.mask();
        self.rest & !(own | Self::FREEZE.mask())
    }

    /// The counter that the code names.
    pub(super) fn named_pmc(&self) -> Option<Pmc> {
        Pmc::lowest(self.constraints.named_pmcs())
    }

    /// The demand as words, for a driver to keep with the event.
    pub const fn to_words(&self) -> [u64; Self::WORDS] {
        let [used, values] = self.constraints.to_words();
        [used, values, self.mmcr1, self.mmcra, self.rest]
    }

    /// The demand that became these words.
    #[inline]
    pub const fn from_words([used, values, mmcr1, mmcra, rest]: [u64; Self::WORDS]) -> Self {
        Self {
            constraints: Constraints::from_words([used, values]),
            mmcr1,
            mmcra,
            rest,
        }
    }

    /// Whether events that ask for this can count together, by the codes asked for.
    ///
    /// # Errors
    ///
    /// What first keeps them from it. [`CpuModel::solve`] may still find other codes.
    #[inline]
    pub fn together(demands: impl Iterator<Item = Self>) -> Result<(), Refusal> {
        Self::all(&Constraints::default(), demands).map(|_| ())
    }

    /// The constraints of all of them and of `other`.
    #[inline]
    pub(super) fn all(
        other: &Constraints,
        mut demands: impl Iterator<Item = Self>,
    ) -> Result<Constraints, Refusal> {
        let all = demands.try_fold(*other, |all, event| all.with(&event.constraints))?;
        all.check_group()?;
        Ok(all)
    }
}

/// What a group of events asks of the PMU at most: the driver keeps it with the group's leader and
/// adds each event that is opened, so that none of the others is looked at again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupDemand(Constraints);

impl GroupDemand {
    /// Number of words that it can be kept in.
    pub const WORDS: usize = 2;

    /// Of a group about which no more is known: no event is sure to go with it.
    pub const UNKNOWN: Self = Self::from_words([!0; Self::WORDS]);

    /// That of an event alone.
    #[inline]
    pub fn of(event: &Demand) -> Self {
        Self(event.constraints)
    }

    /// The same as words.
    pub const fn to_words(self) -> [u64; Self::WORDS] {
        self.0.to_words()
    }

    /// What became these words.
    #[inline]
    pub const fn from_words(words: [u64; Self::WORDS]) -> Self {
        Self(Constraints::from_words(words))
    }

    /// What the group asks for with one more event; `None` if they may not go together, by the
    /// codes asked for.
    #[inline]
    pub fn with(&self, event: &Demand) -> Option<Self> {
        self.0.with(&event.constraints).ok().map(Self)
    }

    /// Whether all events that went into it can count together, and so can any of them without the
    /// others.
    #[inline]
    pub fn holds_for_any(&self) -> bool {
        !self.0.on_bus()
    }
}
