// SPDX-License-Identifier: GPL-2.0

//! The driver's own code for the machine's registers, `rust/power`, on the model: it is included
//! here as it is, and only the instructions that it is made of, `spr.rs`, are the model's.

mod missed_alert;
#[allow(dead_code, clippy::all, unused_imports)]
mod power;
mod switch;
mod taken_away;
