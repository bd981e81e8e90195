// SPDX-License-Identifier: MIT OR Apache-2.0
//! Explains which rule a refused EBB event breaks.
//!
//! The kernel returns EINVAL for all of them, so a program that was refused calls [`broken`]. It
//! explains a refusal, in the order in which the driver checks the rules, but never causes one. The
//! driver has more reasons, such as codes that the processor does not have; its log shows them
//! (`Documentation/ebb.md`).

use crate::config::BHRB;
use crate::config::EBB;
use crate::config::pmc_of;
use perf_event::Attr;

/// Returns the first rule for EBB events that `request` breaks. `leader` is the leader of the group
/// that the event is to join, if any.
pub(crate) fn broken(request: &Attr, leader: Option<&Attr>) -> Option<&'static str> {
    let (attr, pid) = (request.as_raw(), request.target());
    let leader = leader.map(Attr::as_raw);
    let is_ebb = attr.config & EBB != 0;
    let group = leader.unwrap_or(attr);
    let rules = [
        (
            is_ebb != (group.config & EBB != 0),
            "leader and members of a group must all be EBB events or none",
        ),
        (
            !is_ebb && attr.config & BHRB != 0,
            "the BHRB bit of the event code needs the EBB bit",
        ),
        (
            is_ebb && pid == -1,
            "an EBB event must be attached to a thread, not to a CPU",
        ),
        (
            is_ebb && group.pinned() == 0,
            "the leader of an EBB group must be pinned",
        ),
        (
            is_ebb && group.exclusive() == 0,
            "the leader of an EBB group must be exclusive",
        ),
        (is_ebb && attr.freq() != 0, "an EBB event has no frequency"),
        (
            is_ebb && attr.inherit() != 0,
            "an EBB event cannot be inherited",
        ),
        (
            is_ebb && attr.sample_type != 0,
            "an EBB event has no samples, so no sample type",
        ),
        (
            is_ebb && attr.sample_period != 0,
            "an EBB event has no sample period: the program sets the counter",
        ),
        (
            is_ebb && attr.enable_on_exec() != 0,
            "an EBB event cannot be enabled on exec",
        ),
        (
            is_ebb && attr.exclude_host() != 0,
            "an EBB event cannot exclude the host, which its thread belongs to",
        ),
        (
            is_ebb && pmc_of(attr.config) == 0,
            "the code of an EBB event must name its counter (bits 16-19)",
        ),
    ];
    rules
        .into_iter()
        .find_map(|(broken, reason)| broken.then_some(reason))
}
