// SPDX-License-Identifier: GPL-2.0

//! What can be wrong with one event by itself: reserved bits, and bits that
//! contradict each other or that nothing would read.
//!
//! Sources: the rules of `isa207_get_constraint()` and of `isa3XX_check_attr_
//! config()` in the kernel's `arch/powerpc/perf/isa207-common.c`, and beyond
//! them: the in-tree driver ORs a threshold without a select or a cache select
//! of another unit into the registers of the whole group, and ignores bits that
//! no register field gets. Here all of these are refused.

use super::{
    cpu::{
        CpuModel,
        Isa, //
    },
    event_code::EventCode,
    mmcr::SDAR_ON_DCACHE_MISS,
    refusal::Refusal,
    request::{
        Pmc,
        Request, //
    },
    threshold::Threshold, //
};

/// The only event PMC5 counts: instructions completed.
const PMC5_INSTRUCTIONS: EventCode = EventCode(0x500fa);
/// The only event PMC6 counts: cycles.
const PMC6_CYCLES: EventCode = EventCode(0x600f4);

/// Says whether `req` is an event that `cpu` has.
pub(super) fn check(cpu: &CpuModel, req: &Request) -> Result<(), Refusal> {
    let code = req.event_code();
    if code.0 & !cpu.layout.config_mask() != 0 {
        return Err(Refusal::ReservedBits);
    }
    if req.config1 & !cpu.layout.thresh_cmp_config1.mask() != 0 {
        return Err(Refusal::Config1);
    }
    if req.config2 != 0 {
        return Err(Refusal::Config2);
    }
    if cpu.blacklist.contains(&code.hardware().0) {
        return Err(Refusal::Blacklisted);
    }
    counter(code)?;
    linux_bits(req)?;
    sampling(cpu, code)?;
    Threshold::check(cpu, req)?;
    caches(cpu, code)
}

/// Counters 1 to 4 take any event, 5 and 6 one each.
fn counter(code: EventCode) -> Result<(), Refusal> {
    if code.pmc() == 0 {
        return Ok(());
    }
    let fixed = match Pmc::from_number(code.pmc()) {
        None => return Err(Refusal::NoSuchPmc),
        Some(Pmc::Pmc5) => PMC5_INSTRUCTIONS,
        Some(Pmc::Pmc6) => PMC6_CYCLES,
        Some(_) => return Ok(()),
    };
    if code.hardware() == fixed {
        Ok(())
    } else {
        Err(Refusal::FixedCounter)
    }
}

/// EBB, BHRB and its filter.
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
        // A branch stack beside the EBB program's own use of the BHRB.
        Some(ifm) if code.wants_bhrb() && code.ifm() != ifm.into() => {
            Err(Refusal::BranchFilterOfEbb)
        }
        _ => Ok(()),
    }
}

/// Random sampling (marked events) and continuous sampling (SDAR mode).
fn sampling(cpu: &CpuModel, code: EventCode) -> Result<(), Refusal> {
    if cpu.reserved_sample_modes.contains(code.sample_mode()) {
        return Err(Refusal::SampleModeReserved);
    }
    if code.sample_mode() != 0 && !code.is_marked() {
        return Err(Refusal::SampleModeWithoutMark);
    }
    // To name the default is to ask for nothing; the kernel's l3_bank_test does so.
    let sdar_mode = cpu.layout.sdar_mode.of(code.0);
    if !matches!(sdar_mode, 0 | SDAR_ON_DCACHE_MISS) && code.is_marked() {
        return Err(Refusal::SdarModeOnMarked);
    }
    Ok(())
}

/// The selects within L1, L2 and L3.
fn caches(cpu: &CpuModel, code: EventCode) -> Result<(), Refusal> {
    /// Bit 0 of the field in IBM order: the L3 bank, for units 8 and 9. POWER9 has
    /// no such select, but codes of POWER8 that have the bit count there as well.
    const L3_BANK: u64 = 8;
    /// Bit 1: the field qualifies an L1 event.
    const L1_QUALIFIER: u64 = 4;

    if cpu.layout.l2l3_sel.is_set(code.0) && code.unit() != 6 {
        return Err(Refusal::L2l3SelOutsideUnit);
    }
    let select = cpu.layout.cache_sel.of(code.0);
    let beyond_l1 = matches!(code.unit(), 6..=9);
    let meant = match cpu.isa {
        Isa::V207 if beyond_l1 && select & !L3_BANK != 0 => {
            return Err(Refusal::CacheSelNeedsHypervisor);
        }
        Isa::V207 if beyond_l1 => select == 0 || code.unit() >= 8,
        // The two lower bits are the qualifier's value.
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
