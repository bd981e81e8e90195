// SPDX-License-Identifier: GPL-2.0

//! The demand of an event with a certain code: its constraints, and its part of the control
//! registers' images.
//!
//! A demand does not depend on the other events of a group. The driver computes it once, when the
//! event is opened, and keeps it with the event. Adding up the demands of a group shows whether the
//! group can count with the requested codes, and with which images.

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
            Platform,
            Request, //
        }, //
    },
    constraint::Constraints,
    mmcr,
    threshold::Threshold, //
};

/// The demand of an event on the PMU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    pub(super) constraints: Constraints,
    /// The event's part of MMCR1, without the part of a counter that the code does not name.
    pub(super) mmcr1: u64,
    /// The event's part of MMCRA, without the BHRB's fields, and with the requested SDAR mode.
    pub(super) mmcra: u64,
    /// The other parts, packed in the fields below.
    packed: u64,
}

impl Demand {
    /// MMCR1: the counter's unit. Unit, PMCxCOMB and PMCxSEL are 0 here if the code names the
    /// counter.
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
    /// MMCRA: the BHRB filter that an event with `BRANCHES` wants.
    const IFM: Field = Field::bits(53, 54);

    /// Returns the demand of `req`, which must be valid, with the code `code`.
    #[inline(always)] // Saves an open two calls, which save 10 registers in all.
    pub(super) fn new(
        model: &CpuModel,
        platform: Platform,
        req: &Request,
        code: EventCode,
    ) -> Self {
        let frozen = mmcr::frozen_states(model.isa, req, platform);
        let mut this = Self {
            constraints: Constraints::new(model, platform, req, code),
            mmcr1: 0,
            mmcra: 0,
            packed: 0,
        };
        // PMC5 and PMC6 have no selects.
        if this.constraints.programmable() != 0 {
            let combine = model.layout.combine.get(code.0);
            if let Some(pmc) = Pmc::from_number(code.pmc()) {
                let (unit, pmcxsel) = (code.unit(), code.pmcxsel());
                this.mmcr1 = mmcr::counter_select(model.isa, pmc, unit, combine, pmcxsel);
            } else {
                this.packed = Self::UNIT.prep(code.unit())
                    | Self::COMBINE.prep(combine)
                    | Self::PMCXSEL.prep(code.pmcxsel());
            }
        }
        this.packed |= Self::FREEZE.prep(frozen);
        if !code.is_plain() {
            let programmable = this.constraints.programmable() != 0;
            let rare = Self::rare(model, code, req.event_code(), req.config1, programmable);
            this.mmcr1 |= rare.mmcr1;
            this.mmcra = rare.mmcra;
            this.packed |= rare.packed;
        }
        if let Some(ifm) = req.branch_ifm() {
            this.packed |= Self::BRANCHES.prep(1) | Self::IFM.prep(ifm.into());
        }
        this
    }

    /// Returns the part that no [plain](EventCode::is_plain) code has, without constraints. User
    /// space gave the code `requested` and `config1`.
    #[cold]
    fn rare(
        model: &CpuModel,
        code: EventCode,
        requested: EventCode,
        config1: u64,
        programmable: bool,
    ) -> Self {
        let threshold = Threshold::new(model, requested, config1);
        let mut this = Self {
            mmcra: mmcr::sampling(model, threshold, code),
            packed: Self::L2L3_SEL.prep(model.layout.l2l3_sel.get(code.0)),
            ..Self::default()
        };
        if programmable {
            this.mmcr1 = mmcr::shared_select(model, code);
            this.packed |= Self::SOURCE.prep(model.layout.source.get(code.0));
        }
        this
    }

    /// Returns the value of one of the fields above.
    pub(super) const fn get(&self, field: Field) -> u64 {
        field.get(self.packed)
    }

    /// Returns the BHRB filter that the event wants; `None` if it does not use the BHRB.
    pub(super) const fn branch_ifm(&self) -> Option<u64> {
        if Self::BRANCHES.is_set(self.packed) {
            Some(self.get(Self::IFM))
        } else {
            None
        }
    }

    /// Returns whether [`Demand::FREEZE`] is the only packed field in use, as for most events whose
    /// code names a counter.
    #[inline]
    pub(super) const fn is_simple(&self) -> bool {
        self.packed & !Self::FREEZE.mask() == 0
    }

    /// Returns the counter that the code names.
    pub(super) fn named_pmc(&self) -> Option<Pmc> {
        Pmc::lowest(self.constraints.named_pmcs())
    }

    /// Returns the event's part of MMCR1 that depends on its counter, if the code does not name
    /// one.
    pub(super) fn counter_select(&self, model: &CpuModel, pmc: Pmc) -> u64 {
        let [unit, combine, pmcxsel] =
            [Self::UNIT, Self::COMBINE, Self::PMCXSEL].map(|field| self.get(field));
        mmcr::counter_select(model.isa, pmc, unit, combine, pmcxsel)
    }

    /// Checks whether events with these demands can count together with the requested codes.
    ///
    /// # Errors
    ///
    /// The first reason why they cannot. [`CpuModel::solve`] may still find alternative codes.
    #[inline]
    pub fn check_compatible(mut demands: impl Iterator<Item = Self>) -> Result<(), Refusal> {
        Self::add_up(&mut demands).map(|_| ())
    }

    /// Adds up the constraints of events that will count together.
    #[inline]
    pub(super) fn add_up(demands: &mut impl Iterator<Item = Self>) -> Result<Constraints, Refusal> {
        let all = demands.try_fold(Constraints::default(), |all, event| {
            all.with(&event.constraints)
        })?;
        all.check_group()?;
        Ok(all)
    }
}
