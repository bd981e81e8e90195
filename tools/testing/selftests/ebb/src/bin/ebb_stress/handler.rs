// SPDX-License-Identifier: GPL-2.0
//! The handler of every process: checks that the EBB is its own, and that it was requested.

use crate::ways::listed;
use ebb::EbbContext;
use ebb::Pmc;
use ebb::Rearm;
use ebb::pmc;
use ebb::reg::Mmcr2;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

listed! {
    /// Fault of an EBB.
    Foreign {
        /// The EBB came when none was requested.
        Unasked,
        /// The EBB came while BESCR\[GE\] was off.
        GateClosed,
        /// The process's own counter has not overflowed.
        NotOwn,
        /// A counter overflowed that is not the process's.
        OtherCounter,
        /// MMCR2 does not hold the process's tag.
        Tag,
        /// The BHRB has an address of the kernel.
        KernelBranch,
    }
}

/// Index of this process's counter, and its value of MMCR2.
static OWN: AtomicU32 = AtomicU32::new(0);
static TAG: AtomicU64 = AtomicU64::new(0);
/// EBBs that are still to come in this round.
static WANTED: AtomicU32 = AtomicU32::new(0);
/// Whether the program has BESCR\[GE\] off.
static CLOSED: AtomicBool = AtomicBool::new(false);
static FOREIGN: [AtomicU32; Foreign::ALL.len()] = [const { AtomicU32::new(0) }; Foreign::ALL.len()];

/// Sets the counter and the tag of this process.
pub fn set_own(pmc: Pmc, tag: Mmcr2) {
    OWN.store(pmc.index() as u32, Relaxed);
    TAG.store(tag.0, Relaxed);
}

/// Requests `n` EBBs; 0 requests no more.
pub fn want(n: u32) {
    WANTED.store(n, Relaxed);
}

/// Returns how many EBBs are still to come.
pub fn wanted() -> u32 {
    WANTED.load(Relaxed)
}

/// Records that BESCR\[GE\] is off from here on, or about to be on.
pub fn closed(closed: bool) {
    CLOSED.store(closed, Relaxed);
}

/// Returns the number of EBBs so far with this fault.
pub fn foreign(kind: Foreign) -> u32 {
    FOREIGN[kind as usize].load(Relaxed)
}

/// Returns the numbers of all faults that occurred.
pub fn all_foreign() -> Vec<(Foreign, u32)> {
    let kinds = Foreign::ALL.iter().map(|&kind| (kind, foreign(kind)));
    kinds.filter(|&(_, n)| n > 0).collect()
}

fn note(kind: Foreign) {
    FOREIGN[kind as usize].fetch_add(1, Relaxed);
}

/// Counts the EBB as one of those requested if it is the process's own.
pub fn own_only(context: &mut EbbContext<'_>) {
    let own = Pmc::ALL[OWN.load(Relaxed) as usize];
    for pmc in Pmc::ALL {
        match (context.overflowed(pmc), pmc == own) {
            (true, false) => note(Foreign::OtherCounter),
            (false, true) => note(Foreign::NotOwn),
            _ => {}
        }
    }
    if Mmcr2::read().0 != TAG.load(Relaxed) {
        note(Foreign::Tag);
    }
    let branches = [pmc::bhrb_entry::<0>(), pmc::bhrb_entry::<7>()];
    if branches.iter().any(|address| address >> 62 != 0) {
        note(Foreign::KernelBranch);
    }
    if CLOSED.load(Relaxed) {
        note(Foreign::GateClosed);
    }
    match WANTED.load(Relaxed) {
        0 => {
            note(Foreign::Unasked);
            context.rearm(Rearm::Stop);
        }
        // The process's own EBB is still to come.
        _ if !context.overflowed(own) => context.rearm(Rearm::Keep),
        wanted => {
            WANTED.store(wanted - 1, Relaxed);
            // The library would apply the request of the last EBB, Stop, as the program has not
            // called resume.
            let is_last = wanted == 1;
            context.rearm([Rearm::Restart, Rearm::Stop][usize::from(is_last)]);
        }
    }
}
