// SPDX-License-Identifier: GPL-2.0

//! Computes register images from requests: checks each event, finds out which events can count
//! together, and chooses their codes and counters.

mod alternatives;
pub(super) mod assignment;
mod constraint;
pub(super) mod demand;
mod images;
pub(super) mod mmcr;
mod search;
mod solver;
mod threshold;
mod validate;
