// SPDX-License-Identifier: GPL-2.0

//! What goes into the solver and what comes out of it.

use super::{
    event_code::EventCode,
    mmcr::Mmcr, //
};

/// Capacity of the arrays in an [`Assignment`]. Six events at most are ever
/// placed, as there are six counters.
pub const MAX_EVENTS: usize = 8;

/// Number of counters: PMC1 to PMC4 programmable, PMC5 and PMC6 fixed.
pub const COUNTERS: usize = 6;

/// A performance monitor counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pmc {
    /// PMC1, programmable
    Pmc1,
    /// PMC2, programmable
    Pmc2,
    /// PMC3, programmable
    Pmc3,
    /// PMC4, programmable
    Pmc4,
    /// PMC5: instructions completed
    Pmc5,
    /// PMC6: cycles
    Pmc6,
}

impl Pmc {
    /// Every counter in order.
    pub const ALL: [Pmc; COUNTERS] = [
        Self::Pmc1,
        Self::Pmc2,
        Self::Pmc3,
        Self::Pmc4,
        Self::Pmc5,
        Self::Pmc6,
    ];

    /// The counter with this number, 1 to 6.
    pub const fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::Pmc1,
            2 => Self::Pmc2,
            3 => Self::Pmc3,
            4 => Self::Pmc4,
            5 => Self::Pmc5,
            6 => Self::Pmc6,
            _ => return None,
        })
    }

    /// 0 for PMC1 to 5 for PMC6.
    pub const fn index(self) -> usize {
        match self {
            Self::Pmc1 => 0,
            Self::Pmc2 => 1,
            Self::Pmc3 => 2,
            Self::Pmc4 => 3,
            Self::Pmc5 => 4,
            Self::Pmc6 => 5,
        }
    }

    /// 1 for PMC1 to 6 for PMC6.
    pub const fn number(self) -> usize {
        self.index().wrapping_add(1)
    }

    /// The counter's bit in a set of counters, PMC1 in the lowest place.
    pub(super) const fn bit(self) -> u8 {
        1_u8.wrapping_shl(self.position())
    }

    /// [`Pmc::index`] as the type that shifts and register fields use.
    pub(super) const fn position(self) -> u32 {
        // CAST: at most 5.
        self.index() as u32
    }

    /// Whether the counter counts any event, as PMC1 to PMC4 do.
    pub const fn is_programmable(self) -> bool {
        self.index() < 4
    }
}

/// The contexts in which an event does not count (`attr.exclude_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exclude {
    /// Problem state.
    pub user: bool,
    /// The privileged state the kernel runs in.
    pub kernel: bool,
    /// Hypervisor state. Without effect where the kernel itself runs there.
    pub hv: bool,
    /// The wait state (CTRL\[RUN\] off).
    pub idle: bool,
}

/// One event as the user asked for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The event code: `attr.config` of a raw event, or the code that a
    /// generic or cache event stands for.
    pub code: u64,
    /// `attr.config1`
    pub config1: u64,
    /// `attr.config2`
    pub config2: u64,
    /// `attr.exclude_*`
    pub exclude: Exclude,
    /// The event follows a task, so it never counts while the run latch is
    /// off, and run cycles and cycles (likewise instructions) are the same.
    pub runlatch_may_differ: bool,
    /// For an event with a branch stack the BHRB filter (MMCRA\[IFM\]) the
    /// hardware is to apply, 0 (all branches) to 3; `None` for any other event.
    /// If events differ in it all branches are recorded, unless that is ruled out
    /// ([`Machine::strict_branch_filters`]).
    pub branch_filter_ifm: Option<u8>,
}

impl Request {
    /// The event code as a typed value.
    pub const fn event_code(&self) -> EventCode {
        EventCode(self.code)
    }

    /// Whether branches are wanted, through a branch stack or by an EBB event.
    pub const fn wants_branches(&self) -> bool {
        self.branch_ifm().is_some()
    }

    /// The BHRB filter that the event wants, if it wants branches.
    pub(super) const fn branch_ifm(&self) -> Option<u8> {
        let code = self.event_code();
        if code.wants_bhrb() {
            // CAST: two bits.
            Some(code.ifm() as u8)
        } else {
            self.branch_filter_ifm
        }
    }
}

/// What the register images depend on besides the events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The kernel runs with MSR\[HV\]=1 (bare metal): to exclude the kernel is
    /// to freeze in hypervisor state, and there is no hypervisor to exclude.
    pub hypervisor_mode: bool,
    /// Nobody filters branches but the hardware, so all branch stacks at a time
    /// must want the same of it.
    pub strict_branch_filters: bool,
}

/// A solved group: who counts where, and what the control registers get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Number of events; the arrays' entries from here on mean nothing.
    pub len: usize,
    /// The counter of each event, in the order of the requests.
    pub pmc: [Pmc; MAX_EVENTS],
    /// The code that is really counted: the one asked for or an alternative.
    pub code: [EventCode; MAX_EVENTS],
    /// Images of the control registers.
    pub mmcr: Mmcr,
}

impl Assignment {
    /// Each event's counter and code, in the order of the requests.
    pub fn placements(&self) -> impl Iterator<Item = (Pmc, EventCode)> + '_ {
        let both = self.pmc.iter().zip(self.code.iter());
        both.map(|(&pmc, &code)| (pmc, code)).take(self.len)
    }
}
