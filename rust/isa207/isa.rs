// SPDX-License-Identifier: GPL-2.0

//! The generations of the PMU architecture, named after the Power ISA.

/// A generation of the PMU architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// v2.07: POWER8
    V207,
    /// v3.0: POWER9
    V300,
    /// v3.1: POWER10, Power11 and Power12
    V31,
}
