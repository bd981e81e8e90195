// SPDX-License-Identifier: GPL-2.0

//! The codes that count one event.
//!
//! Some events exist on several counters, with one code for each; and an event that follows a task
//! can be counted with or without the run latch. Both let the solver choose another counter if one
//! is taken.
//!
//! Source: `isa207_get_alternatives()` and its callers in the kernel's `arch/powerpc/perf/`.

use super::{
    super::{
        codes::event_code::EventCode,
        models::model::{
            Codes,
            CpuModel, //
        },
        pmc::Pmc,
        request::{
            Platform,
            Request, //
        }, //
    },
    constraint::Constraints, //
};

/// A code for an event, with the constraints of that code.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Alternative {
    pub(super) code: EventCode,
    pub(super) constraints: Constraints,
}

/// The codes for an event; the requested code comes first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Alternatives {
    list: [Alternative; Self::MAX],
    len: usize,
}

impl Alternatives {
    /// The largest number of codes that any model has for an event: cycles on PMC1, PMC2 and PMC6,
    /// and on the first free counter.
    const MAX: usize = 4;

    /// Returns the alternatives of `req`, which must be valid.
    ///
    /// A code with any of Linux's own bits has no alternatives: an EBB program uses the PMC that it
    /// named.
    pub(super) fn new(model: &CpuModel, platform: Platform, req: &Request) -> Self {
        let mut this = Self::default();
        this.add(model, platform, req, EventCode(req.code));
        for row in alternative_rows(model, req.code, req.only_count_run) {
            for code in row {
                this.add(model, platform, req, EventCode(*code));
            }
        }
        this
    }

    /// Returns the alternatives in order of preference, at least one.
    pub(super) fn as_slice(&self) -> &[Alternative] {
        self.list.get(..self.len).unwrap_or(&[])
    }

    fn add(&mut self, model: &CpuModel, platform: Platform, req: &Request, code: EventCode) {
        if self.as_slice().iter().any(|known| known.code == code) {
            return;
        }
        if let Some(free) = self.list.get_mut(self.len) {
            *free = Alternative {
                code,
                constraints: Constraints::new(model, platform, req, code),
            };
            self.len = self.len.wrapping_add(1);
        }
    }
}

/// Returns two rows of codes that count what `requested` counts. A row may contain `requested`
/// itself, and a code may be in both rows.
fn alternative_rows(model: &CpuModel, requested: u64, only_count_run: bool) -> [Codes; 2] {
    let while_running = if only_count_run { model.run_latch } else { &[] };
    [model.alternatives, while_running].map(|rows| row_of(rows, requested))
}

/// Returns the counters that an event with the code `requested` could use, one bit each, and
/// whether the event has alternative codes.
pub(super) fn usable_pmcs(model: &CpuModel, requested: u64, only_count_run: bool) -> (u8, bool) {
    let pmcs_of = |code| {
        let named = Pmc::from_number(EventCode(code).pmc());
        named.map_or(Constraints::PROGRAMMABLE_PMCS, Pmc::bit)
    };
    let (mut pmcs, mut choice) = (pmcs_of(requested), false);
    for row in alternative_rows(model, requested, only_count_run) {
        for code in row {
            pmcs |= pmcs_of(*code);
            choice |= *code != requested;
        }
    }
    (pmcs, choice)
}

/// Returns the row with `code`, or an empty one.
#[expect(
    clippy::manual_contains,
    reason = "`contains` takes more instructions with rows this short, at each try of a group"
)]
fn row_of(rows: &[Codes], code: u64) -> Codes {
    let row = rows
        .iter()
        .find(|row| row.iter().any(|known| *known == code));
    row.copied().unwrap_or(&[])
}
