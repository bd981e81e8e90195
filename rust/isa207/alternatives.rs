// SPDX-License-Identifier: GPL-2.0

//! The codes by which one event can be counted.
//!
//! Some events exist on two counters under two codes, and for an event that
//! follows a task the run latch makes no difference. Either gives the solver a
//! way out when a counter is taken.

use super::{
    constraint::Demands,
    cpu::CpuModel,
    event_code::EventCode,
    request::Request, //
};

/// Two codes that count the same event.
pub(super) type Pair = [u64; 2];

/// The same for an event that only counts while the run latch is on: cycles and
/// run cycles, instructions and run instructions completed.
const RUN_LATCH: [Pair; 2] = [[0x0001e, 0x600f4], [0x00002, 0x500fa]];

/// A code an event may be counted by, with its demands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Candidate {
    pub(super) code: EventCode,
    pub(super) demands: Demands,
}

/// The codes an event may be counted by; the one asked for comes first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Candidates {
    list: [Candidate; Self::MAX],
    len: usize,
}

impl Candidates {
    /// The code itself, its partner, and the run latch equivalent of either.
    const MAX: usize = 4;

    /// The candidates of `req`, which must have passed
    /// [`check`](super::check::check).
    ///
    /// A code with any of Linux's own bits has no alternative: an EBB program
    /// counts on the PMC it named.
    pub(super) fn new(cpu: &CpuModel, req: &Request) -> Self {
        let mut this = Self::default();
        let asked = req.code;
        let same = partner(cpu.alternatives, asked);
        this.add(cpu, req, Some(asked));
        this.add(cpu, req, same);
        if req.runlatch_may_differ {
            this.add(cpu, req, partner(&RUN_LATCH, asked));
            this.add(cpu, req, same.and_then(|code| partner(&RUN_LATCH, code)));
        }
        this
    }

    /// The candidates in order of preference, at least one.
    pub(super) fn as_slice(&self) -> &[Candidate] {
        self.list.get(..self.len).unwrap_or(&[])
    }

    fn add(&mut self, cpu: &CpuModel, req: &Request, code: Option<u64>) {
        let Some(code) = code.map(EventCode) else {
            return;
        };
        if self.as_slice().iter().any(|c| c.code == code) {
            return;
        }
        if let Some(free) = self.list.get_mut(self.len) {
            *free = Candidate {
                code,
                demands: Demands::new(cpu, req, code),
            };
            self.len = self.len.wrapping_add(1);
        }
    }
}

/// Whether none of the codes belongs to the units behind POWER9's bus, for which
/// a rule about the whole group holds. The search relies on that.
pub(super) const fn none_on_bus(pairs: &[Pair]) -> bool {
    let mut rest = pairs;
    while let [[a, b], tail @ ..] = rest {
        if matches!(EventCode(*a).unit(), 6..=9) || matches!(EventCode(*b).unit(), 6..=9) {
            return false;
        }
        rest = tail;
    }
    true
}

/// The other code of the pair that `code` belongs to.
fn partner(pairs: &[Pair], code: u64) -> Option<u64> {
    pairs.iter().find_map(|&[a, b]| match code {
        _ if code == a => Some(b),
        _ if code == b => Some(a),
        _ => None,
    })
}
