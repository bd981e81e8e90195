// SPDX-License-Identifier: GPL-2.0

//! Why an event or a group cannot be counted.
//!
//! A refusal has no errno: the driver chooses the errno in one place. Every refusal is an error in
//! the request, so EINVAL fits. The exception is branch types that the hardware alone would have to
//! filter: that request is unsupported.

/// A setting that the PMU has only once: all events that use it must agree on its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Threshold start, stop, select and compare.
    Threshold,
    /// Random sampling: eligibility and mode.
    SampleMode,
    /// Match value of POWER8's fabric response events.
    FabMatch,
    /// Source qualifier of L1 reload events.
    L1Qualifier,
    /// The group of L2 and L3 events on POWER10's bus.
    L2l3Select,
    /// The event of units 6 to 9 on POWER9's bus.
    BusEvent,
    /// Scope of radix translation events.
    RadixScope,
    /// When SDAR is updated.
    SdarMode,
    /// Whether an alert causes an event-based branch or an interrupt.
    Ebb,
    /// Type of the branches that the BHRB records.
    BranchFilter,
}

impl Selector {
    /// Each selector once.
    pub const ALL: [Selector; 10] = [
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

    /// Returns the reason why two events with different values conflict.
    const fn conflict_reason(self) -> &'static str {
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

/// Why an event or a group cannot be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `attr.config` has a bit set that belongs to no field on this CPU.
    ReservedBits,
    /// `attr.config1` has a bit set that belongs to no field on this CPU.
    Config1,
    /// `attr.config2`, `config3` or `config4` is not 0; no CPU has fields there.
    Config2,
    /// The counter field is above 6.
    NoSuchPmc,
    /// The code names PMC5 or PMC6 with an event other than its fixed one (`500fa`, `600f4`).
    FixedCounter,
    /// The event is known to count wrongly on this revision of the CPU.
    Blacklisted,
    /// The CPU's manual reserves the sample mode.
    SampleModeReserved,
    /// A sample mode is set, but the event is not a marked one.
    SampleModeWithoutMark,
    /// The threshold's start or stop event is 15, which is reserved.
    ThresholdEventReserved,
    /// Threshold start, stop or compare bits are set, but no threshold select.
    ThresholdWithoutSelect,
    /// The threshold's mantissa is too small for its exponent: with an exponent above 0, one of
    /// its two upper bits must be set.
    ThresholdMantissa,
    /// POWER8's fabric response events have their match value in the position of other codes'
    /// threshold start and stop, so they cannot have a threshold.
    ThresholdOnFabMatch,
    /// An SDAR mode is set for a marked event, whose SDAR always belongs to the marked instruction.
    SdarModeOnMarked,
    /// Cache select bits are set that mean nothing for this unit.
    CacheSelOutsideUnit,
    /// POWER8's L2 and L3 selects are in MMCRC, which only the hypervisor can write; it keeps them
    /// 0.
    CacheSelNeedsHypervisor,
    /// L2/L3 select bits are set, but the unit is not the L2/L3 one (6).
    L2l3SelOutsideUnit,
    /// An EBB event must name its counter: the program reads and resets that PMC itself.
    EbbWithoutPmc,
    /// The event code asks for the BHRB, but is not an EBB event's code.
    BhrbWithoutEbb,
    /// The event code has a BHRB filter (IFM), but does not ask for the BHRB.
    IfmWithoutBhrb,
    /// The branch stack's filter (IFM) is above 3.
    NoSuchBranchFilter,
    /// An EBB event that uses the BHRB has a branch stack with a different filter.
    BranchFilterOfEbb,
    /// A branch stack, or an EBB event that asks for the BHRB, on a machine without one.
    NoBhrb,
    /// The hardware has no filter for the requested branch types.
    NoHardwareBranchFilter,

    /// More events than counters.
    TooManyEvents,
    /// Two events want the same counter.
    PmcTaken,
    /// More than four events want one of PMC1 to PMC4.
    ProgrammableCountersFull,
    /// Two events want different values of a setting that the PMU has only once.
    Conflict(Selector),
    /// On POWER9, events of units 6 to 9 count only if PMC4 counts one of them.
    BusNeedsPmc4,
}

impl Refusal {
    /// Returns the reason as a readable sentence without the final full stop.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::ReservedBits => "the event code has reserved bits set",
            Self::Config1 => "config1 has bits set that this CPU does not use",
            Self::Config2 => "config2, config3 and config4 must be 0",
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
            Self::NoBhrb => "the machine has no BHRB",
            Self::NoHardwareBranchFilter => "the hardware has no filter for these branch types",
            Self::TooManyEvents => "more events than the six counters",
            Self::PmcTaken => "two events want the same counter",
            Self::ProgrammableCountersFull => "more than four events want PMC1 to PMC4",
            Self::Conflict(selector) => selector.conflict_reason(),
            Self::BusNeedsPmc4 => "events of units 6 to 9 need one of them on PMC4",
        }
    }
}
