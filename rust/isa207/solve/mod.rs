// SPDX-License-Identifier: GPL-2.0

//! From requests to register images: what an event may ask for, which events can count together,
//! by which codes and on which counters.

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
