// SPDX-License-Identifier: GPL-2.0
//! Groups of six that cost much, in the order in which they cost most. They were
//! found by `isa207_bench search`.

use Asked::Other;
use Asked::Task;

/// An event code, and whether the event follows a task.
#[derive(Clone, Copy)]
pub enum Asked {
    /// It does, so cycles and run cycles are the same (instructions likewise).
    Task(u64),
    /// It does not.
    Other(u64),
}

pub type Group = [Asked; 6];

pub const POWER8: &[Group] = &[
    [
        Task(0x200f4),
        Task(0x600f4),
        Task(0x500fa),
        Task(0x400fa),
        Other(0x600f4),
        Other(0x600f4),
    ],
    [
        Task(0x1e),
        Task(0x500fa),
        Task(0x400fa),
        Task(0x3012e),
        Task(0x400fa),
        Task(0x400fa),
    ],
    [
        Task(0x500fa),
        Task(0x400fa),
        Task(0x200f4),
        Task(0x1e054),
        Other(0x400fa),
        Task(0x1e054),
    ],
    [
        Task(0x600f4),
        Task(0x10401e0),
        Task(0x200f4),
        Task(0x200f4),
        Task(0x400fa),
        Task(0x10134),
    ],
];
pub const POWER9: &[Group] = &[
    [
        Task(0x400fa),
        Task(0x500fa),
        Task(0x600f4),
        Task(0x200f4),
        Other(0x400fa),
        Other(0x500fa),
    ],
    [
        Task(0x1e),
        Task(0x500fa),
        Task(0x400fa),
        Task(0x200f2),
        Task(0x400fa),
        Task(0x500fa),
    ],
    [
        Task(0x200f4),
        Task(0x600f4),
        Task(0x400fa),
        Task(0x400fa),
        Other(0x200f4),
        Other(0x600f4),
    ],
];
pub const POWER10: &[Group] = &[
    [
        Task(0x1e),
        Task(0x500fa),
        Task(0x2),
        Task(0x2),
        Task(0x2),
        Task(0x2),
    ],
    [
        Task(0x2),
        Task(0x600f4),
        Task(0x1e),
        Task(0x1e),
        Task(0x1e),
        Task(0x1e),
    ],
];
