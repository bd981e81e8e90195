// SPDX-License-Identifier: GPL-2.0

//! Why an event or a group cannot be counted.
//!
//! A refusal carries no errno: the driver decides that in one place. All of
//! them are faults of the request, not of the machine's state, so EINVAL fits
//! each; what is wrong with branch filters that the hardware alone would have to
//! apply is rather a thing it does not support.

use super::constraint::Selector;

/// Why an event or a group cannot be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A bit of `attr.config` is set that no field of this CPU owns.
    ReservedBits,
    /// A bit of `attr.config1` is set that no field of this CPU owns.
    Config1,
    /// `attr.config2` is not 0; no CPU has a field there.
    Config2,
    /// The counter field is above 6.
    NoSuchPmc,
    /// The code names PMC5 or PMC6 with anything but its fixed event (`500fa`,
    /// `600f4`).
    FixedCounter,
    /// The event is known to count wrongly on this revision of the CPU.
    Blacklisted,
    /// The sample mode is one the CPU's manual reserves.
    SampleModeReserved,
    /// A sample mode is given, but the event is not a marked one.
    SampleModeWithoutMark,
    /// The threshold's start or stop event is 15, which is reserved.
    ThresholdEventReserved,
    /// Threshold start, stop or compare bits are set, but no threshold select.
    ThresholdWithoutSelect,
    /// The threshold's mantissa is too small for its exponent: the two upper
    /// bits may be 0 only if the exponent is 0.
    ThresholdMantissa,
    /// POWER8's fabric match events use the threshold start and stop bits for
    /// their own purpose, so they cannot have a threshold too.
    ThresholdOnFabMatch,
    /// An SDAR mode is given for a marked event, which always updates SDAR
    /// with the marked instruction.
    SdarModeOnMarked,
    /// Cache select bits are set that do not mean anything for this unit.
    CacheSelOutsideUnit,
    /// POWER8's L2 and L3 selects live in MMCRC, which only the hypervisor
    /// writes; it leaves them 0.
    CacheSelNeedsHypervisor,
    /// L2/L3 select bits are set, but the unit is not the L2/L3 one (6).
    L2l3SelOutsideUnit,
    /// An EBB event must name its counter: the program has to know which PMC
    /// to read and reset.
    EbbWithoutPmc,
    /// Only an EBB event may ask for the BHRB through its event code.
    BhrbWithoutEbb,
    /// A BHRB filter is set in the event code, but not the BHRB itself.
    IfmWithoutBhrb,
    /// The branch filter asked for is above 3.
    NoSuchBranchFilter,
    /// The event is an EBB event that uses the BHRB, and the branch stack beside it
    /// wants another filter.
    BranchFilterOfEbb,
    /// The hardware alone cannot choose the types of branches that are wanted.
    NoHardwareBranchFilter,

    /// More events than counters.
    TooManyEvents,
    /// Two events want the same counter.
    PmcTaken,
    /// More than four events want one of PMC1 to PMC4.
    ProgrammableCountersFull,
    /// Two events want different values of a setting that exists only once.
    Conflict(Selector),
    /// POWER9 counts events of units 6 to 9 only if PMC4 counts one of them.
    BusNeedsPmc4,
}

impl Refusal {
    /// The reason as a readable sentence without the final stop.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::ReservedBits => "the event code has reserved bits set",
            Self::Config1 => "config1 has bits set that this CPU does not use",
            Self::Config2 => "config2 must be 0",
            Self::NoSuchPmc => "the event code names a counter above PMC6",
            Self::FixedCounter => "PMC5 counts only event 500fa and PMC6 only 600f4",
            Self::Blacklisted => "the event counts wrongly on this revision of the CPU",
            Self::SampleModeReserved => "the sample mode is reserved",
            Self::SampleModeWithoutMark => "a sample mode needs a marked event",
            Self::ThresholdEventReserved => "threshold start or stop event 15 is reserved",
            Self::ThresholdWithoutSelect => "threshold bits need a threshold select",
            Self::ThresholdMantissa => "the threshold's mantissa is too small for its exponent",
            Self::ThresholdOnFabMatch => "a fabric match event cannot have a threshold",
            Self::SdarModeOnMarked => "a marked event cannot have an SDAR mode",
            Self::CacheSelOutsideUnit => "the cache select means nothing for the event's unit",
            Self::CacheSelNeedsHypervisor => "only the hypervisor could set this cache select",
            Self::L2l3SelOutsideUnit => "the L2/L3 select means nothing for the event's unit",
            Self::EbbWithoutPmc => "an EBB event must name its counter",
            Self::BhrbWithoutEbb => "only an EBB event may ask for the BHRB in its code",
            Self::IfmWithoutBhrb => "a BHRB filter is set but not the BHRB bit",
            Self::NoSuchBranchFilter => "the branch filter is above 3",
            Self::BranchFilterOfEbb => "the branch stack's filter is not that of the EBB event",
            Self::NoHardwareBranchFilter => "the hardware has no filter for these branch types",
            Self::TooManyEvents => "more events than the six counters",
            Self::PmcTaken => "two events want the same counter",
            Self::ProgrammableCountersFull => "more than four events want PMC1 to PMC4",
            Self::Conflict(selector) => selector.conflict_reason(),
            Self::BusNeedsPmc4 => "events of units 6 to 9 need one of them on PMC4",
        }
    }
}
