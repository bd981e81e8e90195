// SPDX-License-Identifier: GPL-2.0

//! Checks one event by itself for reserved bits, for contradictory bits, and for bits that would
//! have no effect.
//!
//! Sources: `isa207_get_constraint()` and `isa3XX_check_attr_config()` in the kernel's
//! `arch/powerpc/perf/isa207-common.c`. The checks here are stricter: the in-tree driver ORs a
//! threshold without a select, or a cache select of another unit, into the registers of the whole
//! group, and ignores bits that reach no register. All of these are refused here.

use super::{
    super::{
        codes::event_code::EventCode,
        isa::Isa,
        models::model::CpuModel,
        refusal::Refusal,
        registers::SDAR_MODE_DCACHE,
        request::Request, //
    },
    threshold::Threshold, //
};

/// The only event of PMC5: instructions completed.
const PMC5_INSTRUCTIONS: EventCode = EventCode(0x500fa);
/// The only event of PMC6: cycles.
const PMC6_CYCLES: EventCode = EventCode(0x600f4);

impl CpuModel {
    /// Checks whether the request is an event that this CPU has, on any counter and independent of
    /// other events.
    ///
    /// # Errors
    ///
    /// The error in the event itself. [`CpuModel::solve`] may still refuse an event that passes,
    /// even on its own.
    #[inline]
    pub fn validate_event(&self, req: &Request) -> Result<(), Refusal> {
        let code = req.event_code();
        if code.0 & !self.layout.config_mask != 0 {
            return Err(Refusal::ReservedBits);
        }
        if req.config1 & !self.layout.thresh_cmp_config1.mask() != 0 {
            return Err(Refusal::Config1);
        }
        if req.config2 != 0 {
            return Err(Refusal::Config2);
        }
        if self.blacklist.has(code.hardware()) {
            return Err(Refusal::Blacklisted);
        }
        counter(code)?;
        linux_bits(req)?;
        if code.is_plain() && req.config1 == 0 {
            return Ok(());
        }
        rare_fields(self, code, req.config1)
    }
}

/// Checks the fields that no [plain](EventCode::is_plain) code has.
#[cold]
fn rare_fields(model: &CpuModel, code: EventCode, config1: u64) -> Result<(), Refusal> {
    sampling(model, code)?;
    Threshold::validate(model, code, config1)?;
    caches(model, code)
}

/// Checks the counter field: PMC1 to PMC4 count any event, PMC5 and PMC6 one fixed event each.
#[inline]
fn counter(code: EventCode) -> Result<(), Refusal> {
    match code.pmc() {
        0..=4 => Ok(()),
        5 if code.hardware() == PMC5_INSTRUCTIONS => Ok(()),
        6 if code.hardware() == PMC6_CYCLES => Ok(()),
        5 | 6 => Err(Refusal::FixedCounter),
        _ => Err(Refusal::NoSuchPmc),
    }
}

/// Checks the bits for EBB, the BHRB and its filter.
#[inline]
fn linux_bits(req: &Request) -> Result<(), Refusal> {
    let code = req.event_code();
    if code.is_ebb() && code.pmc() == 0 {
        return Err(Refusal::EbbWithoutPmc);
    }
    if code.wants_bhrb() && !code.is_ebb() {
        return Err(Refusal::BhrbWithoutEbb);
    }
    if code.ifm() != 0 && !code.wants_bhrb() {
        return Err(Refusal::IfmWithoutBhrb);
    }
    match req.branch_filter_ifm {
        Some(4..) => Err(Refusal::NoSuchBranchFilter),
        // The event has a branch stack, and its EBB program also uses the BHRB.
        Some(ifm) if code.wants_bhrb() && code.ifm() != ifm.into() => {
            Err(Refusal::BranchFilterOfEbb)
        }
        _ => Ok(()),
    }
}

/// Checks random sampling (marked events) and continuous sampling (SDAR mode).
#[inline]
fn sampling(model: &CpuModel, code: EventCode) -> Result<(), Refusal> {
    if model.reserved_sample_modes.contains(code.sample_mode()) {
        return Err(Refusal::SampleModeReserved);
    }
    if code.sample_mode() != 0 && !code.is_marked() {
        return Err(Refusal::SampleModeWithoutMark);
    }
    // The default mode is no request: the kernel's l3_bank_test has it in a marked event.
    let sdar_mode = model.layout.sdar_mode.get(code.0);
    if !matches!(sdar_mode, 0 | SDAR_MODE_DCACHE) && code.is_marked() {
        return Err(Refusal::SdarModeOnMarked);
    }
    Ok(())
}

/// Checks the selects within L1, L2 and L3.
#[inline]
fn caches(model: &CpuModel, code: EventCode) -> Result<(), Refusal> {
    /// The field's highest bit: the L3 bank, for units 8 and 9. POWER9 has no such select, but
    /// counts POWER8's codes that have the bit.
    const L3_BANK: u64 = 8;
    /// The next lower bit: if it is set, the lower two bits are the qualifier of an L1 event.
    const L1_QUALIFIER: u64 = 4;

    if model.layout.l2l3_sel.is_set(code.0) && code.unit() != 6 {
        return Err(Refusal::L2l3SelOutsideUnit);
    }
    let select = model.layout.cache_sel.get(code.0);
    let beyond_l1 = matches!(code.unit(), 6..=9);
    let meant = match model.isa {
        Isa::V207 if beyond_l1 && select & !L3_BANK != 0 => {
            return Err(Refusal::CacheSelNeedsHypervisor);
        }
        Isa::V207 if beyond_l1 => select == 0 || code.unit() >= 8,
        Isa::V207 => select == 0 || matches!(select, L1_QUALIFIER..=7),
        Isa::V300 if code.unit() >= 8 && beyond_l1 => matches!(select, 0 | L3_BANK),
        Isa::V300 | Isa::V31 => select == 0 || (select <= 3 && !beyond_l1),
    };
    if meant {
        Ok(())
    } else {
        Err(Refusal::CacheSelOutsideUnit)
    }
}
